"""Dead letters: messages that nobody runs again unless a person says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from noetl.blobs.naming import SCHEME, parsed
from noetl.blobs.spool.base import Size, SpoolError, SpoolTaken
from noetl.blobs.spool.item import Corrupt, Item, name_of, parts_of_name, ref_of
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Sequence

    from noetl.blobs.spool.base import Listed, SpoolStore
    from noetl.blobs.spool.rules import Place

    Tell = Callable[[str, dict[str, Any]], None]

DEAD_LETTERED = "subscription.message.dead_lettered"
REDRIVEN = "subscription.message.redriven"
DISCARDED = "subscription.message.discarded"


class NoDeadLetter(NoetlError):
    """There is no dead letter of that name."""

    code = "unknown_dead_letter"
    status: ClassVar[int] = 404


class DeadLetters:
    """The dead letters of one subscription.

    They are counted, and the limit on them holds for messages that are only in the way; one that
    cannot be run is kept even then, since it has no other place.
    """

    def __init__(
        self,
        store: SpoolStore,
        place: Place,
        tell: Tell,
        back: Callable[[Item], Awaitable[None]],
    ) -> None:
        """`back` lets a message wait again, at its place in the order."""
        self._store = store
        self._place = place
        self._tell = tell
        self._back = back
        self.size = Size()

    async def count(self) -> None:
        """Count what is there."""
        self.size = await self._store.size(self._place.dead)

    async def among(self, known: Container[int]) -> set[int]:
        """The places of those that are known to wait as well."""
        found: set[int] = set()
        after = ""
        while page := await self._store.list(self._place.dead, after):
            after = page[-1].key
            named = (parts_of_name(one.key.rpartition("/")[2]) for one in page)
            found.update(parts[0] for parts in named if parts and parts[0] in known)
        return found

    async def bury(self, item: Item, reason: str) -> None:
        """Keep a message that never waited."""
        await self._keep(item.name, item.encode())
        self._told(item.name, item, len(item.encode()), item.downstream, reason)

    async def move(self, name: str, data: bytes, downstream: str, reason: str) -> None:
        """Keep a message that waited, as it is; it is deleted where it was when it is kept here."""
        await self._keep(name, data)
        await self._store.delete(self._place.waiting + name)
        self._told(name, _readable(data), len(data), downstream, reason)

    async def list(self, after: str = "", limit: int = 100) -> Sequence[Listed]:
        """Dead letters in receive order; those behind a file name."""
        start = self._place.dead + after if after else ""
        found = await self._store.list(self._place.dead, start, limit)
        return [one for one in found if parts_of_name(one.key.rpartition("/")[2])]

    async def read(self, ref: str) -> Item:
        """One of them; `Corrupt` when it cannot be read."""
        name = self._name(ref)
        data = await self._store.get(self._place.dead + name)
        if data is None:
            raise NoDeadLetter(f"{ref}: no dead letter has this name")
        return Item.decode(data)

    async def redrive(self, ref: str) -> Item:
        """Let one wait again, as if it had never been attempted; `Corrupt` ones stay here."""
        item = (await self.read(ref)).redriven()
        await self._back(item)
        await self.forget(item.name)
        self._tell(REDRIVEN, _about(self._place.path, item.name, item, len(item.encode())))
        return item

    async def discard(self, ref: str, reason: str = "") -> None:
        """Delete one for good."""
        name = self._name(ref)
        data = await self._store.get(self._place.dead + name)
        if data is None:
            raise NoDeadLetter(f"{ref}: no dead letter has this name")
        await self.forget(name, len(data))
        about = _about(self._place.path, name, _readable(data), len(data))
        self._tell(DISCARDED, about | {"reason": reason})

    def _name(self, ref: str) -> str:
        """The file name that a reference means."""
        named = parsed(ref)
        recv_seq, message_id = ref[len(SCHEME) :].split("/")[-2:]
        if named.form != "spool" or named.name != self._place.path:
            raise NoDeadLetter(f"{ref}: that is no message of {self._place.path}")
        return name_of(recv_seq, unquote(message_id))

    async def _keep(self, name: str, data: bytes) -> None:
        """Store it, and read it to be sure."""
        key = self._place.dead + name
        try:
            await self._store.put_new(key, data)
            is_new = True
        except SpoolTaken:  # it died before, and this is what became of it since
            await self._store.put(key, data)
            is_new = False
        if await self._store.get(key) != data:
            raise SpoolError("a dead letter is not what was stored")
        if is_new:
            self.size = Size(self.size.items + 1, self.size.size_bytes + len(data))

    async def forget(self, name: str, size: int | None = None) -> None:
        """It is a dead letter no more."""
        key = self._place.dead + name
        if size is None:
            size = len(await self._store.get(key) or b"")
        await self._store.delete(key)
        self.size = Size(max(0, self.size.items - 1), max(0, self.size.size_bytes - size))

    def _told(self, name: str, item: Item | None, size: int, downstream: str, reason: str) -> None:
        about = _about(self._place.path, name, item, size)
        self._tell(DEAD_LETTERED, about | {"downstream": downstream, "reason": reason})


def _readable(data: bytes) -> Item | None:
    try:
        return Item.decode(data)
    except Corrupt:
        return None


def _about(path: str, name: str, item: Item | None, size: int) -> dict[str, Any]:
    """What events tell of a message; of one that cannot be read, what its name tells."""
    seq, message_id = parts_of_name(name) or (0, "")
    if item is not None:
        message_id = item.message_id
    return {
        "message_id": message_id,
        "recv_seq": str(seq),
        "spool_ref": ref_of(path, str(seq), message_id),
        "sha256": item.sha256 if item else None,
        "downstream": item.downstream if item else "",
        "attempts": item.attempts if item else None,
        "bytes": size,
    }
