"""`Idempotency-Key` of calls that steer runs: the same key again is the same call."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.edge.errors import Unacceptable

if TYPE_CHECKING:
    from starlette.requests import Request

MOST: Final = 200
WINDOW_S: Final = 86_400
_KEY: Final = re.compile(rf"[\x21-\x7e]{{1,{MOST}}}")


def key_of(request: Request) -> str | None:
    """The key of a request, if it has one."""
    key = request.headers.get("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise Unacceptable(f"`Idempotency-Key` has 1..{MOST} visible characters")
    return key


def event_id_of(*parts: str) -> str:
    """The id of the event that a call under a key writes: a repeat finds it in the log.

    Made of the call alone, so that every server gives the same; it is no moment in time.
    """
    digest = sha256("\0".join(parts).encode()).digest()
    return str(int.from_bytes(digest[:8], "big") >> 1 | 1)


def digest_of(body: msgspec.Struct) -> str:
    """What a call asks for, so that another wish under the same key is noticed."""
    return sha256(msgspec.json.encode(body, order="sorted")).hexdigest()
