"""How the server is: for those who restart it, who send it work, and who watch it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response

from noetl import __version__
from noetl.api.health import (
    Alive,
    DashboardStats,
    IngestUse,
    MachineUse,
    PoolStatus,
    ProcessUse,
    Readiness,
    ServerHealth,
    ServerStatus,
    ShardsHealth,
)
from noetl.edge.declared import Declared
from noetl.edge.reading import json
from noetl.server.access.entry import caller_of
from noetl.server.access.permissions import PUBLIC
from noetl.server.routes.exchange import route
from noetl.server.vitals import DATABASE
from noetl.telemetry.machine import Machine
from noetl.telemetry.metrics import MEDIA_TYPE

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from noetl.server.plane import Plane
    from noetl.server.vitals import PoolNumbers, Vitals

DOWN: Final = 503
_TIGHT: Final = 0.8


_ALIVE: Final = Declared(about="Tells that the process lives.", answer=Alive)
_READY: Final = Declared(
    about="Tells whether work may be sent here; 503 while it may not.",
    answer=Readiness,
    also={DOWN: Readiness},
)
_METRICS: Final = Declared(
    about="Tells every number, as Prometheus reads it.", media_type="text/plain"
)


def routes(plane: Plane, vitals: Vitals) -> list[Route]:
    """Every route of this file."""
    health = Health(vitals)
    reads = "runtime:read"
    return [
        *probes(plane, health),
        route(plane, "GET", "/api/health", health.told, PUBLIC, Declared(
            about="Tells how the server is; 503 when the database is down.",
            answer=ServerHealth, also={DOWN: ServerHealth})),
        route(plane, "GET", "/api/health/shards", health.shards, reads, Declared(
            about="Tells how each database is, and which old months stay and why.",
            answer=ShardsHealth)),
        route(plane, "GET", "/api/pool/status", health.pool, reads, Declared(
            about="Tells of the connections to the database, by which workers pace themselves.",
            answer=PoolStatus)),
        route(plane, "GET", "/api/status", health.status, reads, Declared(
            about="Tells what the machine and the process use.", answer=ServerStatus)),
        route(plane, "GET", "/api/dashboard/stats", health.stats, "execution:read", Declared(
            about="Counts runs, playbooks, workers and queues of the caller's tenant.",
            answer=DashboardStats)),
        route(plane, "GET", "/metrics", health.metrics, reads, _METRICS),
    ]  # fmt: skip


def watched(plane: Plane, vitals: Vitals) -> list[Route]:
    """What the metrics port answers; whoever reaches it needs no token."""
    health = Health(vitals)
    return [
        *probes(plane, health),
        route(plane, "GET", "/metrics", health.metrics, PUBLIC, _METRICS),
    ]


def probes(plane: Plane, health: Health) -> list[Route]:
    """Alive and ready, under the names that platforms ask for."""
    return [
        route(plane, "GET", "/health", health.alive, PUBLIC, _ALIVE),
        route(plane, "GET", "/livez", health.alive, PUBLIC, _ALIVE),
        route(plane, "GET", "/ready", health.ready, PUBLIC, _READY),
        route(plane, "GET", "/readyz", health.ready, PUBLIC, _READY),
    ]


class Health:
    """Answers from the vitals of the process."""

    def __init__(self, vitals: Vitals) -> None:
        self._vitals = vitals
        self._machine = Machine()

    async def alive(self, plane: Plane, request: Request) -> Response:
        """The loop turns."""
        del plane, request
        return json(Alive())

    async def ready(self, plane: Plane, request: Request) -> Response:
        """Work may be sent here."""
        del plane, request
        failing = await self._vitals.failing()
        if failing:
            return json(Readiness(status="unready", failing=tuple(failing)), DOWN)
        return json(Readiness(status="ok"))

    async def told(self, plane: Plane, request: Request) -> Response:
        """How it is, in a few words; without a bus work goes on, only slower."""
        del plane, request
        failing = await self._vitals.failing()
        is_down = DATABASE in failing
        is_whole = self._vitals.is_bus_up and not failing
        body = ServerHealth(
            status="unhealthy" if is_down else "ok" if is_whole else "degraded",
            database="down" if is_down else "ok",
            nats="ok" if self._vitals.is_bus_up else "down",
            uptime_seconds=self._vitals.uptime_s,
            version=__version__,
        )
        return json(body, DOWN if is_down else 200)

    async def pool(self, plane: Plane, request: Request) -> Response:
        """The connections to the database, by which workers pace themselves."""
        del plane, request
        main = self._vitals.pools().get("main")
        return json(PoolStatus(status="none") if main is None else _pool(main))

    async def status(self, plane: Plane, request: Request) -> Response:
        """What the machine and the process use."""
        del request
        process = self._machine.process() | {
            "tasks": len(asyncio.all_tasks()),
            "uptime_seconds": self._vitals.uptime_s,
        }
        ingest = IngestUse(
            queue=plane.metrics.ingest_queue_depth.value(),
            batch_p50=plane.metrics.ingest_batch_events.quantile(0.5),
        )
        system = MachineUse(**self._machine.system())
        used = msgspec.convert(process, ProcessUse)
        return json(ServerStatus(system=system, process=used, ingest=ingest))

    async def shards(self, plane: Plane, request: Request) -> Response:
        """Each database."""
        del request
        return json(await plane.stats.shards())

    async def stats(self, plane: Plane, request: Request) -> Response:
        """Figures for a first look."""
        return json(await plane.stats.dashboard(caller_of(request).tenant_id))

    async def metrics(self, plane: Plane, request: Request) -> Response:
        """Every number as Prometheus reads it."""
        del request
        metrics = plane.metrics
        await metrics.measure(plane.parts, plane.access)
        metrics.sse_streams.set(plane.streams.count)
        for name, numbers in self._vitals.pools().items():
            metrics.db_pool_size.set(numbers.size, name)
            metrics.db_pool_in_use.set(numbers.size - numbers.idle, name)
            metrics.db_pool_waiting.set(numbers.waiting, name)
        return Response(metrics.render(), media_type=MEDIA_TYPE)


def _pool(numbers: PoolNumbers) -> PoolStatus:
    used = numbers.size - numbers.idle
    utilization = round(used / numbers.most, 3)
    slots = max(0, numbers.free - numbers.waiting)
    return PoolStatus(
        status="saturated" if not slots else "busy" if utilization > _TIGHT else "ok",
        pool_min=numbers.least,
        pool_max=numbers.most,
        pool_size=numbers.size,
        pool_available=numbers.free,
        requests_waiting=numbers.waiting,
        utilization=utilization,
        slots_available=slots,
    )
