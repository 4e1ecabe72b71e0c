"""Edges on real disks and a real broker: one folder has one user, a bucket has many."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

from noetl.bus.gateway import GatewayBus
from noetl.gateway.ingress.edge import Edges
from noetl.gateway.ingress.edge_ports import opener
from noetl.intake.circuit_stores import KeysStore
from tests.unit.gateway.ingress.edge_town import PASSIVE, Life, Town, known, planned

LONG_S = 20.0


async def until(check):
    async with asyncio.timeout(LONG_S):
        while not check():  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.02)


@asynccontextmanager
async def gateway(town, name, **more):
    """Edges whose stores are real."""
    edges = Edges(replace(town.ports(Life(town, name)), **more))
    task = asyncio.create_task(edges.run())
    try:
        yield edges
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_a_folder_that_another_gateway_uses_is_no_place_to_promise(tmp_path, caplog):
    town = Town(known(state="PAUSED"))
    [one] = town.listeners.values()
    disk = opener(tmp_path, "local_disk:spool", None)
    async with gateway(town, "one", spool=disk) as first:
        assert (await first.deliver(one, planned(1))).outcome == "spooled"
        async with gateway(town, "two", spool=disk) as second:
            found = await second.deliver(one, planned(2))
            assert (found.settle, found.reason) == ("nack", "spool_unavailable")
            [line] = [each for each in caplog.records if each.levelname == "WARNING"]
            assert (line.listener, line.code) == ("orders", "spool_locked")
            assert str(tmp_path / "spool") in line.reason
            await first.close()
            # The folder is free: whoever is left takes it, and finds what waits there.
            await until(lambda: one.path in second.figures())
            assert (await second.deliver(one, planned(2))).outcome == "spooled"
            assert second.figures()[one.path]["spool"]["items"] == 2
    files = list((tmp_path / "spool" / "default" / one.path / "spool").glob("*.json"))
    assert len(files) == 2


async def test_what_lies_on_a_disk_is_drained_by_the_next_gateway(tmp_path):
    town = Town()
    [one] = town.listeners.values()
    disk = opener(tmp_path, "local_disk:spool", None)
    town.server.is_down = True
    async with gateway(town, "one", spool=disk) as edges:
        given = [planned(n, one, key="k") for n in range(50)]
        found = await asyncio.gather(*(edges.deliver(one, each) for each in given))
        assert {each.outcome for each in found} == {"spooled"}
    town.server.is_down = False
    async with gateway(town, "two", spool=disk):
        await until(lambda: len(town.server.started) == 50)
    assert town.server.started == [f"m{n}" for n in range(50)]


async def test_a_bucket_of_a_broker_is_shared_by_gateways(clean_nats_url, tmp_path):
    town = Town(known(spec={"spool": {**PASSIVE, "backend": "nats_object", "bucket": "edges"}}))
    [one] = town.listeners.values()
    town.server.is_down = True
    first, second = [await GatewayBus.open(clean_nats_url) for _ in range(2)]
    try:
        for bus in (first, second):
            await bus.ready(LONG_S)
        shared = [
            {
                "spool": opener(tmp_path, "", bus.messages),
                "circuits": KeysStore(bus.circuits),
            }
            for bus in (first, second)
        ]
        async with gateway(town, "one", **shared[0]) as a, gateway(town, "two", **shared[1]) as b:
            for number in range(20):
                edges = (a, b)[number % 2]
                found = await edges.deliver(one, planned(number, one, key="k"))
                assert found.outcome == "spooled"
                await asyncio.sleep(0.002)  # the order over gateways is that of milliseconds
            town.server.is_down = False
            await until(lambda: len(town.server.started) == 20)
        assert town.server.started == [f"m{n}" for n in range(20)]
    finally:
        await first.close()
        await second.close()
