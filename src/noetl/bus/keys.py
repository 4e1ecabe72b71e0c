"""What a bucket of keys does: small facts that processes share, each with a time to live.

Nothing in a bucket is the truth: whoever misses a key asks the server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

LONGEST_KEY: Final = 512
_KEY: Final = re.compile(r"[A-Za-z0-9_=-]+(?:\.[A-Za-z0-9_=-]+)*")


class BadKey(NoetlError):
    """A text that no bucket takes as a key."""

    code = "invalid_bucket_key"
    status: ClassVar[int] = 422


class KeyChanged(NoetlError):
    """Somebody else made, changed or deleted the key first."""

    code = "revision_conflict"
    status: ClassVar[int] = 409


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its newest value."""

    key: str
    value: bytes
    revision: int


class Keys(Protocol):
    """A bucket; a key is 1..512 of `[A-Za-z0-9_=.-]`, its tokens parted by `.`."""

    async def get(self, key: str) -> Entry | None:
        """The newest value; none when there is none, `BusGone` when nobody can say."""

    async def put(self, key: str, value: bytes, ttl_s: float | None = None) -> int:
        """Set a key, whatever it was; its revision.

        It is forgotten some time after `ttl_s`, never before; without one it stays.
        """

    async def create(self, key: str, value: bytes, ttl_s: float | None = None) -> int:
        """Set a key that is not there; `KeyChanged` when it is."""

    async def update(
        self, key: str, value: bytes, revision: int, ttl_s: float | None = None
    ) -> int:
        """Set a key that still has this revision; else `KeyChanged`."""

    async def delete(self, key: str, revision: int | None = None) -> None:
        """Forget a key, also a missing one; with a revision only while it has that one.

        Of all who delete the same revision one succeeds, the others get `KeyChanged`.
        """

    async def names(self, prefix: str) -> list[str]:
        """The keys below `prefix.`, in no order."""

    def watch(self, key: str) -> AbstractAsyncContextManager[AsyncIterator[Entry]]:
        """What a key is set to from now on; a deleted one has no bytes and revision 0.

        That its time is over is not told; over a lost connection some may be missed.
        """


def checked(key: str) -> str:
    """The key, when a bucket takes it; else `BadKey`."""
    if len(key) > LONGEST_KEY or not _KEY.fullmatch(key):
        raise BadKey(
            "a bucket does not take this key",
            hint=f"A key is 1..{LONGEST_KEY} of [A-Za-z0-9_=-] in tokens parted by dots.",
        )
    return key
