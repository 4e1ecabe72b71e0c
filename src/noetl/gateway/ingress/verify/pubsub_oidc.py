"""`pubsub_oidc`: the token with which Google signs that a push is of one service account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.gateway.ingress.verify.jwt import Wanted, proven, published, wanted_at
from noetl.gateway.ingress.verify.proof import Unproven
from noetl.gateway.oidc.bearer import Rules
from noetl.gateway.oidc.keyrings import Published

if TYPE_CHECKING:
    from noetl.dsl.subscription.verify import PubsubVerify
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.proof import Proof, Secrets
    from noetl.gateway.oidc.bearer import Keys

ISSUERS: Final = frozenset({"accounts.google.com", "https://accounts.google.com"})
GOOGLE: Final = Published(
    issuer="https://accounts.google.com", jwks_url="https://www.googleapis.com/oauth2/v3/certs"
)


def verify(config: PubsubVerify, raw: Raw, now: float, secrets: Secrets, keys: Keys) -> Proof:
    """Prove that Pub/Sub pushes on behalf of the account; the body is not signed."""
    del secrets
    if not config.service_account:
        raise Unproven("misconfigured")
    return proven(config.signature_header, rules_of(config), raw, now, published(keys))


def wanted(config: PubsubVerify, raw: Raw) -> Wanted | None:
    """The key of Google that has to be known before a push can be verified."""
    return wanted_at(GOOGLE, config.signature_header, rules_of(config), raw)


def rules_of(config: PubsubVerify) -> Rules:
    """Which tokens count for a listener."""
    return Rules(
        algorithms=("RS256",),
        issuers=ISSUERS,
        audience=config.audience,
        leeway_s=config.leeway_secs,
        email=config.service_account,
    )
