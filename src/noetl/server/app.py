"""The server: where its parts meet, its routes are named and its loops are kept alive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

from starlette.applications import Starlette

from noetl.errors import NoetlError
from noetl.server.loops import deliver, hints, leases, timers
from noetl.server.plane import wire
from noetl.server.problems import refused
from noetl.server.routes import catalog, commands, events, executions, results, runtime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from noetl.server.parts import ServerParts
    from noetl.server.plane import Plane
    from noetl.store.base import ExecutionRow

RETRY_S: Final = 1.0


class Server:
    """One server process; `async with` runs its ingest and its loops."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.asgi = Starlette(
            routes=[
                *events.routes(plane),
                *commands.routes(plane),
                *executions.routes(plane),
                *catalog.routes(plane),
                *results.routes(plane),
                *runtime.routes(plane),
            ],
            exception_handlers={404: refused, 405: refused},
        )
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Start; a loop that dies takes the server with it."""
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        plane = self.plane
        for name, work in (
            ("ingest", plane.ingest.run()),
            ("timers", _kept_up(timers.run, plane)),
            ("leases", _kept_up(leases.run, plane)),
            ("hints", _kept_up(hints.run, plane)),
            ("deliver", _kept_up(deliver.run, plane)),
        ):
            self._tasks.append(self._group.create_task(work, name=name))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop: loops first, so that the ingest answers what they have begun."""
        for task in reversed(self._tasks):
            task.cancel()
        self._tasks.clear()
        if self._group is not None:
            group, self._group = self._group, None
            if isinstance(error, asyncio.CancelledError):
                await group.__aexit__(kind, error, trace)
            else:  # what the body raised is its own and goes out as it is
                await group.__aexit__(None, None, None)

    def watch(self, execution_id: str) -> asyncio.Event:
        """An event that is set by every commit of a run; give it back with `unwatch`."""
        return self.plane.signals.watch(execution_id)

    def unwatch(self, execution_id: str, watcher: asyncio.Event) -> None:
        """Stop watching."""
        self.plane.signals.unwatch(execution_id, watcher)

    async def finished(self, execution_id: str) -> ExecutionRow:
        """The run, once it has ended."""
        watcher = self.watch(execution_id)
        try:
            while True:
                watcher.clear()
                row = await self.plane.details.row(execution_id)
                if row.completed_at is not None:
                    return row
                await watcher.wait()
        finally:
            self.unwatch(execution_id, watcher)


async def _kept_up(loop: Callable[[Plane], Awaitable[None]], plane: Plane) -> None:
    """Run a loop; what is worth another try is tried again, anything else is its death."""
    while True:
        try:
            await loop(plane)
        except NoetlError as fault:
            if not fault.retryable:
                raise
            await asyncio.sleep(RETRY_S)


def create_server(parts: ServerParts) -> Server:
    """A server on the given parts."""
    return Server(wire(parts))
