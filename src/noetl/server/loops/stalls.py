"""Finds runs that wait for nothing: they are decided again, and fail when that is in vain twice."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from noetl.edge.moments import from_now
from noetl.engine import events as ev
from noetl.engine.why import is_stalled
from noetl.errors import NoetlError
from noetl.server.ingest.posts import Post, Stamped
from noetl.store.base import Listing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from noetl.engine.state import State
    from noetl.server.plane import Plane
    from noetl.store.base import ExecutionRow

EVERY_S: Final = 30.0
MOST_NUDGES: Final = 2
_PAGE: Final = 1_000
_log: Final = logging.getLogger(__name__)


async def run(plane: Plane) -> None:
    """Look now and then."""
    nudged: dict[str, tuple[int, int]] = {}
    waiting: dict[str, int] = {}
    while True:
        await asyncio.sleep(EVERY_S)
        nudged = await look(plane, nudged, waiting)


async def look(
    plane: Plane, nudged: dict[str, tuple[int, int]], waiting: dict[str, int] | None = None
) -> dict[str, tuple[int, int]]:
    """Nudge what stands still; runs are told by where they stood and how often they were nudged.

    `waiting` are idle runs that wait for something and where they stood: as long as they stand
    there, their state is not read again.
    """
    found: dict[str, tuple[int, int]] = {}
    known = {} if waiting is None else dict(waiting)
    still = {} if waiting is None else waiting
    still.clear()
    async for row in _idle(plane):
        if known.get(row.execution_id) == row.last_seq or not await _is_stalled(plane, row):
            still[row.execution_id] = row.last_seq
            continue
        seq, count = nudged.get(row.execution_id, (row.last_seq, 0))
        count = count + 1 if seq == row.last_seq else 1
        found[row.execution_id] = (row.last_seq, count)
        if count <= MOST_NUDGES:
            plane.ingest.nudge(row.execution_id)
        else:
            await plane.ingest.submit([Post(row.execution_id, _failing(row.last_seq))])
            plane.metrics.stalled.inc()
    return found


async def _is_stalled(plane: Plane, row: ExecutionRow) -> bool:
    """Whether a run stands still; one that cannot be read is told of, and keeps nobody waiting."""
    try:
        return is_stalled(await plane.details.state(row))
    except Exception as fault:
        if isinstance(fault, NoetlError) and fault.retryable:
            raise
        _log.exception("a run cannot be read", extra={"execution_id": row.execution_id})
        return False


async def _idle(plane: Plane) -> AsyncIterator[ExecutionRow]:
    """Running runs without commands that nobody has written to for a while."""
    before = from_now(plane.parts.clock, -EVERY_S)
    after: str | None = None
    while True:
        listing = Listing(idle_since=before, limit=_PAGE, after=after, is_ascending=True)
        page = await plane.parts.store.executions.listed(listing)
        for row in page:
            yield row
        if len(page) < _PAGE:
            return
        after = page[-1].execution_id


def _failing(seq: int) -> Callable[[State], Iterator[Stamped]]:
    def make(state: State) -> Iterator[Stamped]:
        if state.seq == seq and is_stalled(state):
            error = ev.Error(
                kind="internal",
                code="stalled",
                message="the run waits for no command, timer, child or callback",
            )
            yield Stamped(ev.PlaybookFailed(error=error))

    return make
