"""What people decide about dead letters, done by whoever holds the spool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.blobs.spool.base import SpoolFull
from noetl.blobs.spool.dead import NoDeadLetter
from noetl.blobs.spool.item import Corrupt, parts_of_name, ref_of
from noetl.intake.lanes import Pace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from noetl.blobs.spool.spool import Spool
    from noetl.clock import Clock

_PAGE: Final = 100


@dataclass(slots=True)
class Handled:
    """What a request came to."""

    done: int = 0
    missing: int = 0
    """There is no such dead letter, or not any more."""
    corrupt: int = 0
    """It cannot be read and stays where it is."""
    left: int = 0
    """There was no room for it: the request is to be repeated."""


async def redrive(
    spool: Spool, refs: Sequence[str] | None, clock: Clock, rate: float | None = None
) -> Handled:
    """Let dead letters wait again, at their places; all of them when none is named."""
    handled, pace = Handled(), Pace(rate, clock)
    async for ref in _named(spool, refs):
        await pace.wait()
        try:
            await spool.dead_letters.redrive(ref)
            handled.done += 1
        except NoDeadLetter:
            handled.missing += 1
        except Corrupt:
            handled.corrupt += 1
        except SpoolFull:
            handled.left += 1
    return handled


async def discard(spool: Spool, refs: Sequence[str] | None, reason: str = "") -> Handled:
    """Delete dead letters for good; all of them when none is named."""
    handled = Handled()
    async for ref in _named(spool, refs):
        try:
            await spool.dead_letters.discard(ref, reason)
            handled.done += 1
        except NoDeadLetter:
            handled.missing += 1
    return handled


async def _named(spool: Spool, refs: Sequence[str] | None) -> AsyncIterator[str]:
    if refs is not None:
        for ref in refs:
            yield ref
        return
    after = ""
    while page := await spool.dead_letters.list(after, _PAGE):
        for listed in page:
            after = listed.key.rpartition("/")[2]
            parts = parts_of_name(after)
            if parts is not None:
                yield ref_of(spool.place.path, str(parts[0]), parts[1])
