"""Finds runs that wait for nothing: they are decided again, and fail when that is in vain twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from noetl.engine import events as ev
from noetl.server.moments import from_now
from noetl.server.posts import Post, Stamped
from noetl.store.base import Listing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from noetl.engine.state import State
    from noetl.server.plane import Plane
    from noetl.store.base import ExecutionRow

EVERY_S: Final = 30.0
MOST_NUDGES: Final = 2
_PAGE: Final = 1_000


async def run(plane: Plane) -> None:
    """Look now and then."""
    nudged: dict[str, tuple[int, int]] = {}
    while True:
        await asyncio.sleep(EVERY_S)
        nudged = await look(plane, nudged)


async def look(plane: Plane, nudged: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Nudge what stands still; runs are told by where they stood and how often they were nudged."""
    found: dict[str, tuple[int, int]] = {}
    async for row in _idle(plane):
        if not is_stalled(await plane.details.state(row)):
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


def is_stalled(state: State) -> bool:
    """Whether a run goes on and nothing is outstanding that could move it."""
    if state.terminal is not None or state.is_paused or state.is_queued:
        return False
    return not (state.commands or state.timers or state.children)


async def _idle(plane: Plane) -> AsyncIterator[ExecutionRow]:
    """Running runs without commands that nobody has written to for a while."""
    before = from_now(plane.parts.clock, -EVERY_S)
    after: str | None = None
    while True:
        listing = Listing(status=("RUNNING",), limit=_PAGE, after=after, is_ascending=True)
        page = await plane.parts.store.executions.listed(listing)
        for row in page:
            if row.pending_commands == 0 and row.updated_at <= before:
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
