"""Bearer tokens: how one is made, recognised and named without being kept."""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib
from base64 import urlsafe_b64encode
from typing import Final

PREFIX: Final = "ntk_"
SESSION: Final = "nts_"
"""What the text of a session begins with."""
_BYTES: Final = 32
_SUM: Final = 8
_FORM: Final = re.compile(r"nt[ks]_[A-Za-z0-9_-]{43}[0-9a-f]{8}\Z")


def new_token(prefix: str = PREFIX) -> str:
    """A token that nobody has: 32 random bytes and a sum that finds slips of the pen."""
    body = prefix + urlsafe_b64encode(secrets.token_bytes(_BYTES)).rstrip(b"=").decode()
    return body + _sum(body)


def is_token(text: str) -> bool:
    """Whether a text can be a token at all."""
    return bool(_FORM.match(text)) and _sum(text[:-_SUM]) == text[-_SUM:]


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def _sum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"
