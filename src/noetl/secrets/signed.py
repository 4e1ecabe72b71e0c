"""The word of a gateway on whose behalf it calls: signed, short-lived, for one server."""

from __future__ import annotations

import base64
import binascii
import hmac
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HEADER: Final = "X-NoETL-Identity"
ISSUER: Final = "noetl-gateway"
AUDIENCE: Final = "noetl-server"
LIFE_S: Final = 60
LEEWAY_S: Final = 5
"""How far the clocks of two machines may be apart."""
MOST_CHARS: Final = 8192
_INFO: Final = b"identity-v1"
_NO_SALT: Final = bytes(sha256().digest_size)
_HEAD: Final = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=").decode()
_PARTS: Final = 3


class BadIdentity(NoetlError):
    """A word that no gateway of ours has given, or that is too old."""

    code = "bad_identity"
    status: ClassVar[int] = 401


def key_of(internal_token: str) -> bytes:
    """The key that gateways and servers derive from the token that they share: HKDF-SHA256.

    One block of it is all that is needed, so the two steps of RFC 5869 stand here: the library
    that has them takes longer to import than a short local run may.
    """
    drawn = hmac.digest(_NO_SALT, internal_token.encode(), sha256)
    return hmac.digest(drawn, _INFO + b"\x01", sha256)


def sign(claims: Mapping[str, Any], key: bytes, now: float, jti: str) -> str:
    """The word that these claims are true from now on, for a minute."""
    body = {
        **claims,
        "iss": ISSUER,
        "aud": AUDIENCE,
        "iat": int(now),
        "exp": int(now) + LIFE_S,
        "jti": jti,
    }
    told = f"{_HEAD}.{_b64(msgspec.json.encode(body))}"
    return f"{told}.{_b64(hmac.digest(key, told.encode(), sha256))}"


def verified(text: str, keys: Iterable[bytes], now: float) -> dict[str, Any]:
    """The claims of a word that one of these keys has signed, and that still counts."""
    parts = text.split(".") if len(text) <= MOST_CHARS and text.isascii() else []
    if len(parts) != _PARTS or parts[0] != _HEAD:
        raise BadIdentity("the identity is not one that a gateway signs")
    told, given = f"{parts[0]}.{parts[1]}".encode(), _unb64(parts[2])
    found = False
    for key in keys:  # each is compared, so that time tells nothing
        found |= hmac.compare_digest(hmac.digest(key, told, sha256), given)
    if not found:
        raise BadIdentity("the identity is not signed by a gateway of this server")
    try:
        claims: Any = msgspec.json.decode(_unb64(parts[1]))
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadIdentity("the identity is not JSON") from None
    if not isinstance(claims, dict):
        raise BadIdentity("the identity is no object")
    _must_count(claims, now)
    return claims


def _must_count(claims: dict[str, Any], now: float) -> None:
    if claims.get("iss") != ISSUER or claims.get("aud") != AUDIENCE:
        raise BadIdentity("the identity is for somebody else")
    begun, ends = claims.get("iat"), claims.get("exp")
    if not isinstance(begun, int) or not isinstance(ends, int):
        raise BadIdentity("the identity does not say how long it counts")
    if not begun - LEEWAY_S <= now < min(ends, begun + LIFE_S) + LEEWAY_S:
        raise BadIdentity("the identity does not count now", hint="are the clocks alike?")


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise BadIdentity("the identity is not base64") from None
