"""What a store of waiting messages does: small objects by key, each whole or not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Sequence


class SpoolError(NoetlError):
    """The store of waiting messages did not do it: nothing was stored, try again."""

    code = "spool_unavailable"
    retryable: ClassVar[bool] = True
    status: ClassVar[int] = 503


class SpoolFull(NoetlError):
    """No more messages may wait: the source keeps this one."""

    code = "spool_full"
    retryable: ClassVar[bool] = True
    status: ClassVar[int] = 503


class SpoolLocked(NoetlError):
    """Another process uses this folder."""

    code = "spool_locked"
    status: ClassVar[int] = 409


class SpoolTaken(NoetlError):
    """Other bytes lie under that key."""

    code = "spool_key_taken"
    status: ClassVar[int] = 409


@dataclass(frozen=True, slots=True)
class Listed:
    """An object without its bytes."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Size:
    """How many objects there are, and how large they are together."""

    items: int = 0
    size_bytes: int = 0


class SpoolStore(Protocol):
    """Objects by key; what a call promises holds when it returns, also after a power cut.

    A call that fails with `SpoolError` may be repeated.
    """

    @property
    def name(self) -> str:
        """The backend, in the words of a subscription (`local_disk`, `s3`)."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes may add to it."""

    async def put_new(self, key: str, data: bytes) -> None:
        """Store an object that is not there; the same bytes there are fine, others `SpoolTaken`."""

    async def put(self, key: str, data: bytes) -> None:
        """Store an object, whatever was there."""

    async def get(self, key: str) -> bytes | None:
        """The bytes; none when nothing lies there."""

    async def list(self, folder: str, after: str = "", limit: int = 1000) -> Sequence[Listed]:
        """Objects directly in a folder (it ends with `/`) by key; those behind `after`."""

    async def delete(self, key: str) -> None:
        """Forget an object; one that is not there is forgotten already."""

    async def size(self, folder: str) -> Size:
        """What lies directly in a folder."""
