"""`bearer`: a token that both sides know, in `Authorization` or in a header of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.gateway.ingress.verify.proof import Proof, Unproven, texts
from noetl.gateway.ingress.verify.signatures import is_any

if TYPE_CHECKING:
    from noetl.dsl.subscription.verify import BearerVerify
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.proof import Secrets

AUTHORIZATION: Final = "authorization"
_SCHEME: Final = b"bearer"


def verify(config: BearerVerify, raw: Raw, now: float, secrets: Secrets) -> Proof:
    """Prove that the sender knows the token; nothing of the delivery is signed."""
    del now
    known = [one.encode() for one in texts(secrets, config.secret, "token", "value", "key")]
    if not is_any(known, [token_of(raw, config.header)]):
        raise Unproven("bad_token")
    return Proof()


def token_of(raw: Raw, header: str) -> bytes:
    """The token of a header; the word `Bearer` may lack only in a header of one's own."""
    given = raw.one(header)
    if not given:
        raise Unproven("missing_token")
    scheme, _, rest = given.partition(b" ")
    if scheme.lower() == _SCHEME and rest.strip():
        return rest.strip()
    if header == AUTHORIZATION:
        raise Unproven("bad_token")
    return given
