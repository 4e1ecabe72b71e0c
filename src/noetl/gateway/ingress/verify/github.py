"""`github`: an HMAC over the body in `X-Hub-Signature-256`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.dsl.subscription.verify import GithubVerify
from noetl.gateway.ingress.verify.proof import Proof, Unproven
from noetl.gateway.ingress.verify.signatures import hmacs, must_be_any, shared, signature
from noetl.gateway.ingress.verify.templates import header_text

if TYPE_CHECKING:
    from noetl.dsl.subscription.verify import HmacVerify
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.proof import Secrets

ID: Final = "x-github-delivery"
_PREFIX: Final = b"sha256="


def verify(config: GithubVerify | HmacVerify, raw: Raw, now: float, secrets: Secrets) -> Proof:
    """Prove that GitHub has signed the body; it tells no time."""
    del now
    keys = [one.encode() for one in shared(secrets, config.secret)]
    given = signature(raw, GithubVerify.signature_header)
    if not given.startswith(_PREFIX):
        raise Unproven("bad_signature")
    expected = [one.hex().encode() for one in hmacs(keys, raw.body)]
    must_be_any(expected, [given.removeprefix(_PREFIX).lower()])
    return Proof(signed=raw.body, id=header_text(raw, ID))
