"""What people decide about dead letters, done by whoever holds the spool."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from noetl.blobs.spool.base import SpoolFull
from noetl.blobs.spool.dead import NoDeadLetter
from noetl.blobs.spool.item import Corrupt, parts_of_name, ref_of
from noetl.ids import made_at
from noetl.intake.lanes import Pace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from noetl.blobs.spool.spool import Spool
    from noetl.clock import Clock

_PAGE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Dead letters that somebody means."""

    refs: tuple[str, ...] | None = None
    """None: all of them."""
    until: datetime | None = None
    """Of all, those that came no later than this: no others can be meant."""
    may_go: Callable[[], bool] = lambda: True
    """Whether this process may go on."""

    @classmethod
    def of(cls, request: Mapping[str, Any], may_go: Callable[[], bool]) -> Wanted:
        """Those that a request of the log means."""
        if not request.get("all"):
            return cls(refs=tuple(str(ref) for ref in request.get("refs") or ()), may_go=may_go)
        return cls(until=datetime.fromisoformat(str(request["at"])), may_go=may_go)


@dataclass(slots=True)
class Handled:
    """What a request came to."""

    done: int = 0
    missing: int = 0
    """There is no such dead letter, or not any more."""
    corrupt: int = 0
    """It cannot be read and stays where it is."""
    left: int = 0
    """There was no room for it, or this process may not go on: the request is to be repeated."""


async def redrive(spool: Spool, wanted: Wanted, clock: Clock, rate: float | None = None) -> Handled:
    """Let dead letters wait again, at their places."""
    handled, pace = Handled(), Pace(rate, clock)
    async for ref in _named(spool, wanted):
        await pace.wait()
        if not wanted.may_go():
            handled.left += 1
            break
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


async def discard(spool: Spool, wanted: Wanted, reason: str = "") -> Handled:
    """Delete dead letters for good."""
    handled = Handled()
    async for ref in _named(spool, wanted):
        if not wanted.may_go():
            handled.left += 1
            break
        try:
            await spool.dead_letters.discard(ref, reason)
            handled.done += 1
        except NoDeadLetter:
            handled.missing += 1
    return handled


async def _named(spool: Spool, wanted: Wanted) -> AsyncIterator[str]:
    if wanted.refs is not None:
        for ref in wanted.refs:
            yield ref
        return
    after = ""
    while page := await spool.dead_letters.list(after, _PAGE):
        for listed in page:
            after = listed.key.rpartition("/")[2]
            parts = parts_of_name(after)
            if parts is None:
                continue
            if wanted.until is not None and made_at(parts[0]) > wanted.until:
                return
            yield ref_of(spool.place.path, str(parts[0]), parts[1])
