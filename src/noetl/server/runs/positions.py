"""Places in the log of a run: found page by page, whatever the length of the log."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from noetl.engine import events as ev
from noetl.engine.fork import FAILED, BadPosition, belongs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.engine.events import Recorded
    from noetl.store.base import EventLog, ExecutionRow

_PAGE: Final = 1_000
_NEAR: Final = 100


async def end_of(log: EventLog, row: ExecutionRow) -> int | None:
    """The `seq` of the event that ended a run; late reports may stand behind it."""
    if row.completed_at is None:
        return None
    high = row.last_seq
    while high > 0:
        low = max(0, high - _NEAR)
        for item in reversed(await log.read(row.execution_id, low, high - low)):
            if isinstance(item.event, ev.TERMINAL):
                return item.seq
        high = low
    return None


async def place_of(
    log: EventLog,
    row: ExecutionRow,
    *,
    seq: int | None = None,
    event_id: str | None = None,
    step: str | None = None,
) -> int:
    """The `seq` after which a fork begins; exactly one way to name it."""
    given = [item for item in (seq, event_id, step) if item is not None]
    if len(given) != 1:
        raise BadPosition("name one of from_seq, from_event_id and from_step")
    if seq is not None:
        if not 1 <= seq <= row.last_seq:
            raise BadPosition(f"the log has the positions 1..{row.last_seq}, not {seq}")
        return seq
    if event_id is not None:
        found = await log.find(row.execution_id, event_id)
        if found is None:
            raise BadPosition(f"the log has no event {event_id}")
        return found.seq
    return await _before(log, row, str(step))


async def _before(log: EventLog, row: ExecutionRow, step: str) -> int:
    """Just before the last entry of a step; `failed` is the first that failed unhandled."""
    entered: dict[str, int] = {}
    failed: str | None = None
    async for item in whole(log, row):
        event = item.event
        if isinstance(event, ev.StepEntered):
            entered[event.step] = item.seq
        elif failed is None and isinstance(event, ev.StepExited):
            failed = event.step if event.outcome == "FAILED" and not event.handled else None
    wanted = failed if step == FAILED else step
    if wanted is None:
        raise BadPosition("no step of the run has failed unhandled")
    if wanted not in entered:
        raise BadPosition(f"the run has not entered the step `{wanted}`")
    return entered[wanted] - 1


async def whole(log: EventLog, row: ExecutionRow) -> AsyncIterator[Recorded]:
    """Every event of a run, a page at a time."""
    after = 0
    while after < row.last_seq and (page := await log.read(row.execution_id, after, _PAGE)):
        for item in page:
            yield item
        after = page[-1].seq


async def settled(log: EventLog, row: ExecutionRow, seq: int) -> int:
    """The end of the decision that a place lies in, before the end of the run."""
    end = await end_of(log, row)
    while seq < row.last_seq:
        near = await log.read(row.execution_id, max(0, seq - 1), _NEAR)
        start = seq
        for before, following in itertools.pairwise(near):
            if not belongs(before.event, following.event):
                return _not_after(seq, end)
            seq = following.seq
        if seq == start:
            break
    return _not_after(seq, end)


def _not_after(seq: int, end: int | None) -> int:
    return seq if end is None else min(seq, end - 1)
