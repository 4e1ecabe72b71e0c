"""What a store of large bytes does; a key names bytes, and what was put comes back unchanged."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator

CHUNK_BYTES: Final = 256 * 1024
JSON: Final = "application/json"
LONGEST_KEY: Final = 1024
SMALL_BYTES: Final = 1024 * 1024
"""Up to this size a value counts as `kv`, and lies in the database where there is one."""
LARGEST_BYTES: Final = 5 * 1024 * 1024 * 1024
LARGEST_ROW_BYTES: Final = 64 * 1024 * 1024
"""The most that a row of a database, or the memory of a process, is meant for."""
OBJECTS: Final = "objects"
"""The name of a store in tiers that keeps small values as objects, too."""
_ROWS: Final = frozenset({"db", "object"})
_BOUNDED: Final = frozenset({"db", "kv"})
_KEY: Final = re.compile(r"(?!\.)[A-Za-z0-9_.~%=@-]{1,200}(?:/(?!\.)[A-Za-z0-9_.~%=@-]{1,200})*\Z")
_MEDIA_TYPE: Final = re.compile(r"[\x20-\x7e]{1,100}\Z")


class BlobGone(NoetlError):
    """Nothing lies under that key."""

    code = "result_gone"
    status: ClassVar[int] = 404


class BlobDamaged(NoetlError):
    """What lies under that key is not what was put there."""

    code = "result_damaged"


class InvalidKey(NoetlError):
    """A key that could lead elsewhere, or a media type that is none."""

    code = "invalid_key"
    status: ClassVar[int] = 422


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """What is known of an object without its bytes."""

    key: str
    size: int
    sha256: str
    media_type: str = JSON


class Blobs(Protocol):
    """Bytes by key."""

    @property
    def name(self) -> str:
        """The word for this store in references (`kv`, `db`, `disk`, `s3`, `gcs`)."""

    async def put(self, key: str, data: bytes, *, media_type: str = JSON) -> None:
        """Keep bytes, all of them or none; what was there before is replaced."""

    async def get(self, key: str) -> bytes:
        """All bytes; `BlobGone` when there are none, `BlobDamaged` when they are not the same."""

    async def put_stream(
        self, key: str, chunks: AsyncIterable[bytes], *, media_type: str = JSON
    ) -> Stat:
        """Keep bytes as they come; nothing is kept when their source fails."""

    def get_stream(self, key: str, first: int = 0, last: int | None = None) -> AsyncIterator[bytes]:
        """The bytes in chunks, or those from `first` to `last`, both included.

        Damage of the whole is raised at the latest after its last chunk; a part is not compared.
        """

    async def head(self, key: str) -> Stat | None:
        """What lies under a key."""

    async def delete(self, key: str) -> None:
        """Forget a key; one that is not there is forgotten already."""

    async def listed(
        self, prefix: str = "", *, after: str = "", limit: int | None = None
    ) -> list[str]:
        """Keys that begin with a text, in order; those behind a key, and so many at most."""


def store_word(name: str, size: int) -> str:
    """The word of a reference for where a value of this size lies, in a store of this name."""
    if name == OBJECTS:
        return "object"
    return "kv" if name in _ROWS and size <= SMALL_BYTES else name


def most_bytes(name: str) -> int:
    """How large a value a store of this name takes."""
    return LARGEST_ROW_BYTES if name in _BOUNDED else LARGEST_BYTES


def checked(key: str, media_type: str = JSON) -> str:
    """A key that stays inside every store: plain segments, none of them hidden or `..`."""
    if len(key) > LONGEST_KEY or not _KEY.match(key):
        raise InvalidKey(
            f"{key[:80]!r} is not a key",
            hint="segments of [A-Za-z0-9_.~%=@-] between slashes, none with a leading dot",
        )
    if not _MEDIA_TYPE.match(media_type):
        raise InvalidKey(f"{media_type[:80]!r} is not a media type")
    return key
