"""How the server says that it is well."""

from __future__ import annotations

import asyncio

import msgspec

from noetl.api.http import AsgiTransport
from noetl.server.app import Server
from noetl.server.plane import wire
from noetl.server.vitals import PoolNumbers, Vitals
from tests.unit.server.rig import rig, virtually


async def get(asgi, path: str, **headers: str):
    answer = await AsgiTransport(asgi).request("GET", path, b"", headers)
    return answer.status, msgspec.json.decode(answer.body)


class Ground:
    """What a server stands on, broken by hand."""

    def __init__(self) -> None:
        self.database = self.bus = True
        self.looks = 0

    async def is_there(self) -> bool:
        self.looks += 1
        if not self.database:
            raise OSError("away")
        return True

    async def hangs(self) -> bool:
        await asyncio.Event().wait()
        return True

    def vitals(self, clock, **checks) -> Vitals:
        return Vitals(
            clock,
            checks={"database": self.is_there, **checks},
            pools=lambda: {
                "main": PoolNumbers(least=2, most=16, size=10, idle=4, waiting=3),
                "background": PoolNumbers(least=1, most=4, size=1, idle=0, waiting=0),
            },
            is_bus_up=lambda: self.bus,
        )


def made(r, ground: Ground, **checks) -> Server:
    plane = wire(r.plane.parts)
    return Server(plane, ground.vitals(plane.parts.clock, **checks))


@virtually
async def test_a_server_without_a_ground_is_well() -> None:
    async with rig() as r:
        for path in ("/health", "/livez", "/ready", "/readyz"):
            assert await get(r.server.asgi, path) == (200, {"status": "ok"})
        await asyncio.sleep(2)
        status, body = await get(r.server.asgi, "/api/health")
        assert (status, body["status"], body["uptime_seconds"]) == (200, "ok", 2.0)
        assert await get(r.server.asgi, "/api/pool/status") == (200, {"status": "none"})


@virtually
async def test_without_its_database_it_lives_and_is_not_ready() -> None:
    async with rig() as r:
        ground = Ground()
        server = made(r, ground)
        assert await get(server.asgi, "/ready") == (200, {"status": "ok"})
        ground.database = False
        assert await get(server.asgi, "/ready") == (200, {"status": "ok"})  # for half a second
        assert ground.looks == 1
        await asyncio.sleep(0.5)
        assert await get(server.asgi, "/ready") == (
            503, {"status": "unready", "failing": ["database"]},
        )  # fmt: skip
        status, body = await get(server.asgi, "/api/health")
        assert (status, body["status"], body["database"]) == (503, "unhealthy", "down")
        assert (await get(server.asgi, "/health"))[0] == 200


@virtually
async def test_a_check_that_does_not_answer_has_failed() -> None:
    async with rig() as r:
        ground = Ground()
        server = made(r, ground, migrations=ground.hangs)
        began = asyncio.get_running_loop().time()
        status, body = await get(server.asgi, "/readyz")
        assert (status, body["failing"]) == (503, ["migrations"])
        assert asyncio.get_running_loop().time() - began == 2.0


@virtually
async def test_without_a_bus_it_works_on() -> None:
    async with rig() as r:
        ground = Ground()
        ground.bus = False
        server = made(r, ground)
        status, body = await get(server.asgi, "/api/health")
        assert (status, body["status"], body["nats"], body["database"]) == (
            200, "degraded", "down", "ok",
        )  # fmt: skip


@virtually
async def test_the_pool_tells_the_drivers_numbers() -> None:
    async with rig() as r:
        server = made(r, Ground())
        assert await get(server.asgi, "/api/pool/status") == (200, {
            "pool_min": 2, "pool_max": 16, "pool_size": 10, "pool_available": 10,
            "requests_waiting": 3, "utilization": 0.375, "slots_available": 7, "status": "ok",
        })  # fmt: skip


@virtually
async def test_the_status_tells_of_machine_process_and_ingest() -> None:
    async with rig() as r:
        status, body = await get(r.server.asgi, "/api/status")
        assert status == 200
        assert set(body) == {"system", "process", "ingest"}
        assert set(body["ingest"]) == {"queue", "batch_p50"}
        assert body["process"]["pid"] > 0
        assert body["process"]["tasks"] >= 1


@virtually
async def test_metrics_need_a_token_except_on_their_own_port() -> None:
    async with rig(is_open=False, internal_tokens=("inner",)) as r:
        for path in ("/metrics", "/api/status", "/api/pool/status"):
            status, body = await get(r.server.asgi, path)
            assert (status, body["code"]) == (401, "auth_required")
        for path in ("/health", "/ready", "/api/health"):
            assert (await get(r.server.asgi, path))[0] == 200
        bearer = {"authorization": "Bearer inner"}
        shown = await AsgiTransport(r.server.asgi).request("GET", "/metrics", b"", bearer)
        open_to_all = await AsgiTransport(r.server.watched).request("GET", "/metrics")
        assert (shown.status, open_to_all.status) == (200, 200)
        assert (
            await AsgiTransport(r.server.watched).request("GET", "/api/executions/1")
        ).status == 404
