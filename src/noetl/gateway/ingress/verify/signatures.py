"""Signatures as schemes write and compare them, and the times that they cover."""

from __future__ import annotations

import base64
import binascii
import hmac
import math
import re
from typing import TYPE_CHECKING, Final

from noetl.gateway.ingress.verify.proof import Unproven, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.proof import Secrets

MOST_SIGNATURES: Final = 16
"""So many a header may list; each may cost a check."""
LEAST_TOLERANCE_S: Final = 30
MOST_TOLERANCE_S: Final = 900
ANY_TIME: Final = math.inf
"""The time of a delivery that is looked at once more, long after it came: any time is right."""
_STAMP: Final = re.compile(rb"[0-9]{1,12}")
_SHARED: Final = ("value", "secret", "signing_secret", "webhook_secret", "key", "token", "password")


def shared(secrets: Secrets, aliases: Iterable[str]) -> list[str]:
    """The shared secrets of these credentials."""
    return texts(secrets, aliases, *_SHARED)


def signature(raw: Raw, name: str) -> bytes:
    """The header with the signature."""
    found = raw.one(name)
    if not found:
        raise Unproven("missing_signature")
    return found


def stamp(raw: Raw, name: str) -> bytes:
    """The header with the time."""
    return stamped(raw.one(name))


def stamped(text: bytes | None) -> bytes:
    """A text that is a time: seconds since 1970."""
    if text is None or not _STAMP.fullmatch(text):
        raise Unproven("missing_timestamp")
    return text


def must_be_recent(sent: float, now: float, tolerance_s: int) -> None:
    """Refuse what is too old, or too early."""
    if not LEAST_TOLERANCE_S <= tolerance_s <= MOST_TOLERANCE_S:
        raise Unproven("misconfigured")
    if now != ANY_TIME and abs(now - sent) > tolerance_s:
        raise Unproven("stale_timestamp")


def hmacs(keys: Iterable[bytes], message: bytes, algorithm: str = "sha256") -> list[bytes]:
    """The digests of a message under each of the keys."""
    return [hmac.digest(key, message, algorithm) for key in keys]


def is_any(expected: Sequence[bytes], given: Sequence[bytes]) -> bool:
    """Whether one of these is one of those; each pair is compared, so that time tells nothing."""
    found = False
    for one in expected:
        for other in given:
            found |= hmac.compare_digest(one, other)
    return found


def must_be_any(expected: Sequence[bytes], given: Sequence[bytes]) -> None:
    """Refuse signatures that are none of those expected."""
    if len(given) > MOST_SIGNATURES or not is_any(expected, given):
        raise Unproven("bad_signature")


def written(digest: bytes, encoding: str) -> list[bytes]:
    """Every text that means this signature in an encoding; hex is in lower case."""
    if encoding == "hex":
        return [digest.hex().encode()]
    if encoding == "base64":
        return [base64.b64encode(digest)]
    padded = base64.urlsafe_b64encode(digest)
    return [padded, padded.rstrip(b"=")]


def as_compared(text: bytes, encoding: str) -> bytes:
    """A signature that was sent, as it compares with `written`."""
    return text.lower() if encoding == "hex" else text


def read(text: bytes, encoding: str) -> bytes:
    """The bytes of a signature; none are for a text that `written` would not give."""
    try:
        if encoding == "hex":
            found = binascii.unhexlify(text)
        else:
            altchars = b"-_" if encoding == "base64url" else None
            padded = text + b"=" * (-len(text) % 4) if altchars else text
            found = base64.b64decode(padded, altchars=altchars, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return found if as_compared(text, encoding) in written(found, encoding) else b""
