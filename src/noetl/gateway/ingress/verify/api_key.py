"""`api_key`: a key that both sides know, in a header, or in the query where that is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.gateway.ingress.verify.proof import Proof, Unproven, texts
from noetl.gateway.ingress.verify.signatures import is_any

if TYPE_CHECKING:
    from noetl.dsl.subscription.verify import ApiKeyVerify
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.proof import Secrets


def verify(config: ApiKeyVerify, raw: Raw, now: float, secrets: Secrets) -> Proof:
    """Prove that the sender knows the key; nothing of the delivery is signed."""
    del now
    known = [one.encode() for one in texts(secrets, config.secret, "key", "value", "token")]
    given = [one for one in (raw.one(config.header), _asked(config, raw)) if one]
    if not given:
        raise Unproven("missing_token")
    if len(given) > 1:
        raise Unproven("ambiguous_signature")
    if not is_any(known, given):
        raise Unproven("bad_token")
    return Proof()


def _asked(config: ApiKeyVerify, raw: Raw) -> bytes | None:
    """The key in the query."""
    if config.query is None or not config.allow_query:
        return None
    found = raw.parameter(config.query)
    return found.encode("utf-8", "surrogateescape") if found else None
