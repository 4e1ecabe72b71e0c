"""How the server is: for those who restart it, who send it work, and who watch it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from noetl import __version__
from noetl.server.permissions import PUBLIC
from noetl.server.routes.exchange import json, route
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


def routes(plane: Plane, vitals: Vitals) -> list[Route]:
    """Every route of this file."""
    health = Health(vitals)
    return [
        *probes(plane, health),
        route(plane, "GET", "/api/health", health.told, PUBLIC),
        route(plane, "GET", "/api/pool/status", health.pool, "runtime:read"),
        route(plane, "GET", "/api/status", health.status, "runtime:read"),
        route(plane, "GET", "/metrics", health.metrics, "runtime:read"),
    ]


def watched(plane: Plane, vitals: Vitals) -> list[Route]:
    """What the metrics port answers; whoever reaches it needs no token."""
    health = Health(vitals)
    return [*probes(plane, health), route(plane, "GET", "/metrics", health.metrics, PUBLIC)]


def probes(plane: Plane, health: Health) -> list[Route]:
    """Alive and ready, under the names that platforms ask for."""
    return [
        route(plane, "GET", "/health", health.alive, PUBLIC),
        route(plane, "GET", "/livez", health.alive, PUBLIC),
        route(plane, "GET", "/ready", health.ready, PUBLIC),
        route(plane, "GET", "/readyz", health.ready, PUBLIC),
    ]


class Health:
    """Answers from the vitals of the process."""

    def __init__(self, vitals: Vitals) -> None:
        self._vitals = vitals
        self._machine = Machine()

    async def alive(self, plane: Plane, request: Request) -> Response:
        """The loop turns."""
        del plane, request
        return json({"status": "ok"})

    async def ready(self, plane: Plane, request: Request) -> Response:
        """Work may be sent here."""
        del plane, request
        failing = await self._vitals.failing()
        if failing:
            return json({"status": "unready", "failing": failing}, DOWN)
        return json({"status": "ok"})

    async def told(self, plane: Plane, request: Request) -> Response:
        """How it is, in a few words; without a bus work goes on, only slower."""
        del plane, request
        failing = await self._vitals.failing()
        is_down = DATABASE in failing
        is_whole = self._vitals.is_bus_up and not failing
        body = {
            "status": "unhealthy" if is_down else "ok" if is_whole else "degraded",
            "database": "down" if is_down else "ok",
            "nats": "ok" if self._vitals.is_bus_up else "down",
            "uptime_seconds": self._vitals.uptime_s,
            "version": __version__,
        }
        return json(body, DOWN if is_down else 200)

    async def pool(self, plane: Plane, request: Request) -> Response:
        """The connections to the database, by which workers pace themselves."""
        del plane, request
        main = self._vitals.pools().get("main")
        return json({"status": "none"} if main is None else _pool(main))

    async def status(self, plane: Plane, request: Request) -> Response:
        """What the machine and the process use."""
        del request
        process = self._machine.process() | {
            "tasks": len(asyncio.all_tasks()),
            "uptime_seconds": self._vitals.uptime_s,
        }
        ingest = {
            "queue": plane.metrics.ingest_queue_depth.value(),
            "batch_p50": plane.metrics.ingest_batch_events.quantile(0.5),
        }
        return json({"system": self._machine.system(), "process": process, "ingest": ingest})

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


def _pool(numbers: PoolNumbers) -> dict[str, Any]:
    used = numbers.size - numbers.idle
    utilization = round(used / numbers.most, 3)
    slots = max(0, numbers.free - numbers.waiting)
    return {
        "pool_min": numbers.least,
        "pool_max": numbers.most,
        "pool_size": numbers.size,
        "pool_available": numbers.free,
        "requests_waiting": numbers.waiting,
        "utilization": utilization,
        "slots_available": slots,
        "status": "saturated" if not slots else "busy" if utilization > _TIGHT else "ok",
    }
