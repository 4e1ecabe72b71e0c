"""The timeline of a run: a lane per attempt, read from the log in pages.

A page of lanes holds those that could be claimed within a stretch of the log; the log is read on
until each of them has ended, so that a lane is told once and whole. Memory is that of one page of
the log, one page of lanes and the lanes that are open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from noetl.api.reading import Gap, Lane, Timeline
from noetl.edge.moments import seconds_between
from noetl.engine import events as ev

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.edge.cursor import Cursors
    from noetl.engine.events import Recorded
    from noetl.engine.state import State
    from noetl.server.reading.detail import Details
    from noetl.store.base import Store

LANES: Final = 1_000
MOST_LANES: Final = 5_000
"""Lanes of one page; `next_cursor` leads to the next ones."""
LEAST_GAP_MS: Final = 100
"""A shorter time without a lane is the work of the server, not a gap."""
_PAGE: Final = 1_000
_INDEX: Final = re.compile(r"/i(\d+)\Z")


@dataclass(slots=True)
class _Open:
    """A lane that is being read."""

    step: str
    key: str
    command_id: str | None
    attempt: int
    issued: str
    is_second: bool = False
    """It began because the attempt before was lost."""
    worker_id: str | None = None
    claimed: str | None = None
    ended: str | None = None
    state: str = "PENDING"

    def told(self) -> Lane:
        index = _INDEX.search(self.key)
        return Lane(
            step=self.step,
            index=None if index is None else int(index[1]),
            attempt=self.attempt,
            worker_id=self.worker_id,
            issued=self.issued,
            claimed=self.claimed,
            ended=self.ended,
            state=self.state,
            command_id=self.command_id,
        )


class Weaver:
    """Makes lanes of events; begins no more than it was asked for."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.lanes: dict[int, _Open] = {}
        """By the `seq` of their beginning."""
        self._open: dict[str, int] = {}
        self._ids: dict[str, str | None] = {}
        """Commands by key, as far as the lanes of this page name them."""
        self.next_after: int | None = None
        """Where the next page begins; none while this one is not full."""

    def see(self, item: Recorded) -> None:
        """One event more."""
        rule = _RULES.get(type(item.event))
        if rule is not None:
            rule(self, item, item.event)

    def waits_for(self, state: State) -> bool:
        """Whether a lane is open here that has ended by now."""
        for seq in self._open.values():
            lane = self.lanes[seq]
            command = state.commands.get(lane.key)
            if command is None or command.attempt != lane.attempt:
                return True
        return False

    def _begin(self, item: Recorded, lane: _Open) -> None:
        if len(self.lanes) >= self._limit:
            if self.next_after is None:
                self.next_after = item.seq - 1
            return
        self.lanes[item.seq] = lane
        self._open[lane.key] = item.seq
        self._ids[lane.key] = lane.command_id

    def _lane(self, key: str, attempt: int | None = None) -> _Open | None:
        seq = self._open.get(key)
        lane = None if seq is None else self.lanes[seq]
        return lane if lane is not None and attempt in {None, lane.attempt} else None

    def _end(self, item: Recorded, key: str, state: str, attempt: int | None = None) -> None:
        lane = self._lane(key, attempt)
        if lane is not None:
            lane.ended, lane.state = item.created_at, state
            del self._open[key]

    # ------------------------------------------------------------------------ one rule each

    def _issued(self, item: Recorded, event: ev.CommandIssued) -> None:
        key = event.command_key
        self._begin(item, _Open(event.step, key, item.event_id, 1, item.created_at))

    def _claimed(self, item: Recorded, event: ev.CommandClaimed) -> None:
        lane = self._lane(event.command_key, event.attempt)
        if lane is not None:
            lane.claimed, lane.worker_id, lane.state = item.created_at, event.worker_id, "CLAIMED"

    def _started(self, _item: Recorded, event: ev.CommandStarted) -> None:
        lane = self._lane(event.command_key, event.attempt)
        if lane is not None:
            lane.state = "RUNNING"

    def _done(self, item: Recorded, event: ev.CallDone) -> None:
        self._end(item, event.command_key, event.outcome, event.attempt)

    def _error(self, item: Recorded, event: ev.CallError) -> None:
        self._end(item, event.command_key, "FAILED", event.attempt)

    def _parked(self, item: Recorded, event: ev.CommandParked) -> None:
        if event.worker_id:
            self._end(item, event.command_key, "PARKED", event.attempt)
        elif (lane := self._lane(event.command_key)) is not None:
            lane.state = "PARKED"  # the engine runs it, and it lasts as long as it waits

    def _resumed(self, item: Recorded, event: ev.CommandResumed) -> None:
        self._end(item, event.command_key, "PARKED")
        command_id = self._ids.get(event.command_key)
        self._begin(
            item,
            _Open(event.step, event.command_key, command_id, event.attempt, item.created_at),
        )

    def _lost(self, item: Recorded, event: ev.CommandLost) -> None:
        if event.command_key in self._open and self._lane(event.command_key, event.attempt) is None:
            return  # it was told before: a later attempt is under way
        self._end(item, event.command_key, "LOST", event.attempt)
        lane = _Open(event.step, event.command_key, item.parent_event_id, event.attempt + 1,
                     item.created_at, is_second=True)  # fmt: skip
        self._begin(item, lane)

    def _failed(self, item: Recorded, event: ev.CommandFailed) -> None:
        lane = self._lane(event.command_key)
        if lane is not None and lane.is_second and lane.claimed is None:
            del self.lanes[self._open.pop(event.command_key)]  # it was lost for good
            return
        self._end(item, event.command_key, "FAILED")

    def _completed(self, item: Recorded, event: ev.CommandCompleted) -> None:
        self._end(item, event.command_key, "COMPLETED")

    def _cancelled(self, item: Recorded, event: ev.CommandCancelled) -> None:
        self._end(item, event.command_key, "CANCELLED")

    def _over(self, item: Recorded, _event: ev.Event) -> None:
        for key in list(self._open):
            self._end(item, key, "CANCELLED")


_RULES: Final[dict[type[ev.Event], Callable[[Weaver, Recorded, Any], None]]] = {
    ev.CommandIssued: Weaver._issued,  # noqa: SLF001 - the rules of this class
    ev.CommandClaimed: Weaver._claimed,  # noqa: SLF001 - as above
    ev.CommandStarted: Weaver._started,  # noqa: SLF001 - as above
    ev.CallDone: Weaver._done,  # noqa: SLF001 - as above
    ev.CallError: Weaver._error,  # noqa: SLF001 - as above
    ev.CommandParked: Weaver._parked,  # noqa: SLF001 - as above
    ev.CommandResumed: Weaver._resumed,  # noqa: SLF001 - as above
    ev.CommandLost: Weaver._lost,  # noqa: SLF001 - as above
    ev.CommandFailed: Weaver._failed,  # noqa: SLF001 - as above
    ev.CommandCompleted: Weaver._completed,  # noqa: SLF001 - as above
    ev.CommandCancelled: Weaver._cancelled,  # noqa: SLF001 - as above
    ev.PlaybookCompleted: Weaver._over,  # noqa: SLF001 - as above
    ev.PlaybookFailed: Weaver._over,  # noqa: SLF001 - as above
    ev.PlaybookCancelled: Weaver._over,  # noqa: SLF001 - as above
}


class Timelines:
    """Reads timelines."""

    def __init__(self, store: Store, details: Details, cursors: Cursors) -> None:
        self._log = store.log
        self._details = details
        self._cursors = cursors

    async def page(
        self, execution_id: str, limit: int = LANES, cursor: str | None = None
    ) -> Timeline:
        """A page of lanes, and the gaps before and between them."""
        row = await self._details.row(execution_id)
        filters = {"of": execution_id, "what": "timeline"}
        after, until = 0, None
        if cursor is not None:
            after, until = self._cursors.decode(cursor, filters)
        weaver = Weaver(limit)
        await self._read(weaver, execution_id, int(after), row.last_seq)
        lanes = tuple(lane.told() for lane in weaver.lanes.values())
        gaps, until = gaps_of(lanes, until)
        following = weaver.next_after
        return Timeline(
            execution_id=execution_id,
            lanes=lanes,
            gaps=gaps,
            as_of_seq=row.last_seq,
            next_cursor=None
            if following is None
            else self._cursors.encode(filters, (following, until)),
        )

    async def _read(self, weaver: Weaver, execution_id: str, after: int, last_seq: int) -> None:
        while after < last_seq:
            page = await self._log.read(execution_id, after, min(_PAGE, last_seq - after))
            if not page:
                return
            for item in page:
                weaver.see(item)
            after = page[-1].seq
            if weaver.next_after is not None:
                state = await self._details.state(await self._details.row(execution_id))
                if not weaver.waits_for(state):
                    return


def gaps_of(lanes: tuple[Lane, ...], until: str | None) -> tuple[tuple[Gap, ...], str | None]:
    """The times between lanes, after the last end before them; and the last end so far.

    A lane that is open has no end, so nothing after it is a gap: that end is the empty text.
    """
    found: list[Gap] = []
    for lane in lanes:
        if until and lane.issued > until:
            ms = round(seconds_between(until, lane.issued) * 1000)
            if ms >= LEAST_GAP_MS:
                found.append(Gap(from_=until, to=lane.issued, ms=ms))
        if until is None or until:
            until = max(until or "", lane.ended) if lane.ended is not None else ""
    return tuple(found), until
