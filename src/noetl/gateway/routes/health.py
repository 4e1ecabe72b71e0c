"""How the gateway is: for those who restart it, who send callers to it, and who watch it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from noetl.api.gateway import GatewayReadiness
from noetl.edge.reading import json
from noetl.errors import NoetlError
from noetl.gateway.declaring import PUBLIC, READS_RUNTIME, Declared, route
from noetl.telemetry.metrics import MEDIA_TYPE

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from noetl.gateway.gate import Gate

DOWN: Final = 503
ASK_S: Final = 2.0
KEPT_S: Final = 1.0
"""How old an answer about others may be: whoever asks often costs them nothing."""
BAD_KEPT_S: Final = 0.1
"""The same for an answer that is not good: whoever waits for us is not kept waiting."""
_OK: Final = 200
_ALIVE: Final = Declared(about="Tells that the process lives.", media_type="text/plain")
_READY: Final = Declared(
    about="Tells whether callers may be sent here; 503 while they may not.",
    answer=GatewayReadiness,
    also={DOWN: GatewayReadiness},
)
_METRICS: Final = Declared(
    about="Tells every number, as Prometheus reads it.", media_type="text/plain", limit=""
)


def routes(gate: Gate) -> list[BaseRoute]:
    """Every route of this file."""
    return [
        *_probes(gate),
        route(gate, "GET", "/metrics", _metrics, READS_RUNTIME, _METRICS),
    ]


def watched(gate: Gate) -> list[BaseRoute]:
    """What the metrics bind answers; whoever reaches it needs no session."""
    return [*_probes(gate), route(gate, "GET", "/metrics", _metrics, PUBLIC, _METRICS)]


def _probes(gate: Gate) -> list[BaseRoute]:
    ready = Readiness(gate)
    return [
        route(gate, "GET", "/health", _alive, PUBLIC, _ALIVE),
        route(gate, "GET", "/ready", ready.answer, PUBLIC, _READY),
    ]


async def _alive(gate: Gate, request: Request) -> Response:
    del gate, request
    return Response("ok", media_type="text/plain")


async def _metrics(gate: Gate, request: Request) -> Response:
    del request
    return Response(gate.metrics.render(), media_type=MEDIA_TYPE)


class Readiness:
    """Looks at what the gateway stands on."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._looked: tuple[float, str, str] | None = None
        self._looking = asyncio.Lock()

    async def answer(self, gate: Gate, request: Request) -> Response:
        """Callers may be sent here, or why not."""
        del gate, request
        told = await self.told()
        return json(told, 200 if told.status == "ok" else DOWN)

    async def told(self) -> GatewayReadiness:
        """How everything is."""
        gate = self._gate
        server, kv = await self._others()
        found = {
            "server": server,
            "nats": "ok" if gate.bus.is_connected else "down",
            "kv": kv,
            "shards": gate.shards.state,
        }
        tasks = gate.tasks.failing()
        draining = gate.closing.is_set()
        failing = [name for name, state in found.items() if state in {"down", "mismatch"}]
        is_ready = not (failing or tasks or draining)
        return GatewayReadiness(
            status="ok" if is_ready else "unready",
            draining=draining,
            failing=(*failing, *(f"task:{name}" for name in tasks)),
            **found,
        )

    async def _others(self) -> tuple[str, str]:
        """The server and the buckets, asked at most once a second."""
        async with self._looking:
            now = self._gate.clock.monotonic()
            is_good = self._looked is not None and self._looked[1:] == ("ok", "ok")
            kept_s = KEPT_S if is_good else BAD_KEPT_S
            if self._looked is None or now - self._looked[0] >= kept_s:
                server, kv = await asyncio.gather(self._server(), self._kv())
                self._looked = (self._gate.clock.monotonic(), server, kv)
            return self._looked[1:]

    async def _server(self) -> str:
        try:
            async with asyncio.timeout(ASK_S):
                answer = await self._gate.upstream.service().raw("GET", "/ready")
        except (NoetlError, TimeoutError):
            return "down"
        return "ok" if answer.status == _OK else "down"

    async def _kv(self) -> str:
        try:
            async with asyncio.timeout(ASK_S):
                await self._gate.bus.sessions.get("ready")
                await self._gate.bus.requests.get("ready")
        except (NoetlError, TimeoutError):
            self._gate.metrics.kv_errors.inc("sessions", "get")
            return "down"
        return "ok"
