"""A run of a server, followed to its end: every event once, also over a server's restart."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final, cast

from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.engine.events import ExecutionRequested, PlaybookStarted
from noetl.engine.rows import from_row
from noetl.local.steps import Runs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from noetl.api.client import Client
    from noetl.cli.follow import Follower
    from noetl.engine.events import Recorded
    from noetl.errors import NoetlError
    from noetl.local.steps import Run

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0
AWAY_S: Final = 300.0
"""How long a server may be away before waiting for it is given up."""
BUSY_S: Final = 10.0
"""The same for a server that has been busy from the start."""
MOST_CHILDREN: Final = 16
"""How many children are followed at once; the others come when one of these has ended."""
CATCH_UP_S: Final = 1.0
_GONE: Final = (429, 502, 503, 504)


async def rows(
    client: Client, execution_id: str, *, since_event_id: str | None = None, is_met: bool = False
) -> AsyncGenerator[dict[str, Any]]:
    """The events of a run as they are committed, until it has ended."""
    seq = 0

    async def opened(last_id: str | None) -> AsyncGenerator[dict[str, Any]]:
        stream = client.stream(execution_id, since_event_id=last_id, fields="full")
        async with aclosing(cast("AsyncGenerator[dict[str, Any]]", stream)) as frames:
            async for one in frames:
                if one["event"] != "end":
                    one["data"] = await _whole(client, execution_id, one["data"])
                yield one

    async with aclosing(told(opened, since_event_id, is_met=is_met)) as frames:
        async for one in frames:
            row = one["data"]
            if row["seq"] > seq:
                seq = row["seq"]
                yield row


async def told(
    opened: Callable[[str | None], AsyncIterator[dict[str, Any]]],
    last_id: str | None = None,
    *,
    is_met: bool = False,
) -> AsyncGenerator[dict[str, Any]]:
    """What a stream tells until its end, opened again where it broke off.

    A server that was met before is waited for when it goes away.
    """
    pause_s, away_s = FIRST_PAUSE_S, 0.0
    while True:
        fault: NoetlError = NoAnswer("the server ends every stream")
        try:
            stream = cast("AsyncGenerator[dict[str, Any]]", opened(last_id))
            async with aclosing(stream) as frames:
                async for one in frames:
                    if one["event"] == "end":
                        return
                    yield one
                    last_id = one["id"] or last_id
                    is_met, pause_s, away_s = True, FIRST_PAUSE_S, 0.0
        except NoAnswer as lost:
            if not is_met:
                raise
            fault = lost
        except Refused as refused:
            if refused.problem.status not in _GONE:
                raise
            fault = refused
        if away_s > (AWAY_S if is_met else BUSY_S):
            raise fault
        await asyncio.sleep(pause_s)
        away_s += pause_s
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


async def _whole(client: Client, execution_id: str, row: dict[str, Any]) -> dict[str, Any]:
    """An event with its payload, also when it is too large for a stream."""
    if not row.get("is_cut"):
        return row
    page = await client.events(execution_id, after=row["seq"] - 1, limit=1)
    return page.items[0]


class Following:
    """Follows a run and, where a person looks on, the runs that it starts."""

    def __init__(
        self, client: Client, view: Follower, *, with_children: bool, is_met: bool = False
    ) -> None:
        self.runs = Runs()
        self._client = client
        self._view = view
        self._with_children = with_children
        self._is_met = is_met
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(MOST_CHILDREN)
        self._wanted: dict[str, int] = {}
        self._found: dict[str, set[str]] = {}
        self._news = asyncio.Event()

    async def to_end(self, execution_id: str) -> Run:
        """The run, once it has ended."""
        try:
            await self._follow(execution_id)
            await self._caught_up()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        return self.runs.by_id[execution_id]

    async def _caught_up(self) -> None:
        """The children that a run waited for have ended with it: their last words are read."""
        with suppress(TimeoutError):  # others may go on, and are not waited for
            async with asyncio.timeout(CATCH_UP_S):
                while self._tasks:
                    await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def _follow(self, execution_id: str) -> None:
        async with aclosing(rows(self._client, execution_id, is_met=self._is_met)) as found:
            async for row in found:
                recorded = from_row(row)
                await self._parent_asked(recorded)
                self.runs.fold(recorded)
                self._view.take(recorded)
                self._news.set()
                if self._with_children and isinstance(recorded.event, ExecutionRequested):
                    self._look_for_child(execution_id)

    async def _parent_asked(self, recorded: Recorded) -> None:
        """A child is shown under its step: wait until the step's request was seen."""
        event = recorded.event
        if not isinstance(event, PlaybookStarted) or event.parent_key is None:
            return
        parent = self.runs.by_id.get(event.parent_execution_id or "")
        while parent is not None and event.parent_key not in parent.asked and not parent.ended_at:
            self._news.clear()
            await self._news.wait()

    def _look_for_child(self, execution_id: str) -> None:
        wanted = self._wanted.get(execution_id, 0)
        self._wanted[execution_id] = wanted + 1
        found = self._found.setdefault(execution_id, set())
        if wanted == len(found):  # else somebody is looking already
            self._begin(self._find(execution_id, found))

    def _begin(self, work: Any) -> None:  # noqa: ANN401 - a coroutine
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _find(self, execution_id: str, found: set[str]) -> None:
        """Follow the children of a run, as many as it has asked for."""
        pause_s = 0.0
        while len(found) < self._wanted[execution_id]:
            await asyncio.sleep(pause_s)
            pause_s = min(max(pause_s * 2, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            try:
                page = await self._client.children(execution_id)
            except (NoAnswer, Refused):
                page = None  # the run itself tells when the server stays away
            for item in page.items if page is not None else ():
                if item.execution_id not in found:
                    found.add(item.execution_id)
                    self._begin(self._follow_child(item.execution_id))
                    pause_s = 0.0

    async def _follow_child(self, execution_id: str) -> None:
        async with self._room:
            try:
                await self._follow(execution_id)
            except (NoAnswer, Refused) as fault:
                self._view.line(execution_id, f"cannot be followed: {fault.message}")
