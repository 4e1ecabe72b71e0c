"""The server: where its parts meet, its routes are named and its loops are kept alive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from noetl.edge.door import Door
from noetl.server.loops import LOOPS
from noetl.server.loops.kept import kept_up
from noetl.server.plane import wire
from noetl.server.routes import (
    audit,
    callbacks,
    catalog,
    circuits,
    commands,
    contract,
    controls,
    credentials,
    deliveries,
    events,
    executions,
    health,
    identity,
    ingress,
    internal,
    internal_values,
    keychain,
    openapi,
    reading,
    results,
    runtime,
    schedules,
    schema,
    sessions,
    sign_in,
    starts,
    steering,
    subscriptions,
    tenants,
    tokens,
    variables,
    wallet,
)
from noetl.server.vitals import Vitals
from noetl.telemetry.failpoint import armed, failpoint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from starlette.routing import Route

    from noetl.server.parts import ServerParts
    from noetl.server.plane import Plane
    from noetl.store.base import ExecutionRow


class Server:
    """One server process; `async with` runs its ingest and its loops."""

    def __init__(self, plane: Plane, vitals: Vitals, more: Sequence[Route] = ()) -> None:
        self.plane = plane
        self.vitals = plane.feed.vitals = vitals
        self.asgi = Door(
            [
                *events.routes(plane),
                *commands.routes(plane),
                *starts.routes(plane),
                *executions.routes(plane),
                *reading.routes(plane),
                *steering.routes(plane),
                *controls.routes(plane),
                *catalog.routes(plane),
                *schema.routes(plane),
                *callbacks.routes(plane),
                *results.routes(plane),
                *variables.routes(plane),
                *credentials.routes(plane),
                *keychain.routes(plane),
                *wallet.routes(plane),
                *internal_values.routes(plane),
                *runtime.routes(plane),
                *schedules.routes(plane),
                *deliveries.routes(plane),
                *subscriptions.routes(plane),
                *ingress.routes(plane),
                *sign_in.routes(plane),
                *circuits.routes(plane),
                *internal.routes(plane),
                *contract.routes(plane, lambda: self.asgi.routes),
                *openapi.routes(plane, lambda: self.asgi.routes),
                *identity.routes(plane),
                *tokens.routes(plane),
                *tenants.routes(plane),
                *sessions.routes(plane),
                *audit.routes(plane),
                *health.routes(plane, vitals),
                *more,
            ]
        )
        self.watched = Door(health.watched(plane, vitals))
        """What the metrics port answers."""
        writes = (route for route in self.asgi.routes if "GET" not in (route.methods or ()))
        plane.metrics.open_endpoints(sorted({route.path for route in writes}))
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Start; a loop that dies takes the server with it."""
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        plane = self.plane
        for name, work in (
            ("ingest", plane.ingest.run()),
            *((name, kept_up(loop, plane)) for name, loop in LOOPS.items()),
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

    async def stop(self) -> None:
        """End loops and ingest now; whoever waits for work is answered that there is none."""
        await self.__aexit__(None, None, None)

    async def drain(self, seconds: float) -> bool:
        """Take on nothing new and let what was begun end; whether it did in time."""
        access = self.plane.access
        self.vitals.is_draining = True
        self.plane.streams.drain()
        access.closing.set()
        if armed:
            await failpoint("server.drain")
        try:
            async with asyncio.timeout(seconds):
                await access.emptied(lambda: sum(1 for _ in self.plane.handout.parked()))
        except TimeoutError:
            return False
        return True

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


def create_server(parts: ServerParts, vitals: Vitals | None = None) -> Server:
    """A server on the given parts."""
    return Server(wire(parts), vitals or Vitals(parts.clock))
