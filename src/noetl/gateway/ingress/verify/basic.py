"""`basic`: a user and a password that both sides know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.gateway.ingress.verify.proof import Proof, Unproven, texts
from noetl.gateway.ingress.verify.signatures import is_any, read

if TYPE_CHECKING:
    from noetl.dsl.subscription.verify import BasicVerify
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.proof import Secrets

_SCHEME: Final = b"basic"


def verify(config: BasicVerify, raw: Raw, now: float, secrets: Secrets) -> Proof:
    """Prove that the sender knows user and password; nothing of the delivery is signed."""
    del now
    users = texts(secrets, (config.user,), "username", "user", "value")
    passwords = texts(secrets, config.password, "password", "value", "secret")
    given = raw.one(config.signature_header)
    if not given:
        raise Unproven("missing_token")
    scheme, _, rest = given.partition(b" ")
    user, colon, password = read(rest.strip(), "base64").partition(b":")
    is_user = is_any([one.encode() for one in users], [user])
    is_password = is_any([one.encode() for one in passwords], [password])
    if not (is_user & is_password) or scheme.lower() != _SCHEME or not colon:
        raise Unproven("bad_token")
    return Proof()
