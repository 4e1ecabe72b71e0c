"""Mode A on a worker: a tick drains the source, and every message becomes one run."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest
from nats.js.api import ConsumerConfig

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.executions import Execute
from noetl.api.http import AsgiTransport
from noetl.api.problems import Refused
from noetl.api.subscriptions import LettersWanted
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.ids import Ids
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.sources.connecting import connect, end
from noetl.sources.places import as_written, place_of
from noetl.store.memory.store import MemoryStore
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.nats.connections import Connections
from noetl.tools.noop import NoopTool
from noetl.tools.subscription.tool import SubscriptionTool
from tests.unit.worker.fakes import HEAD, Stage

NUMBERS = itertools.count()
LONG_S = 40
PATH = "subs/ticks"
TARGET = f"{HEAD}workflow:\n- step: s\n  tool: {{kind: noop}}\n"


@pytest.fixture
async def broker(nats_url):
    name = f"TICK{next(NUMBERS)}"
    fields = {"url": nats_url, "stream": name, "consumer": "c"}
    client = await connect(place_of("nats", fields, {}), as_written)
    js = client.jetstream()
    await js.add_stream(name=name, subjects=[f"{name}.>"])
    await js.add_consumer(name, ConsumerConfig(durable_name="c", ack_policy="explicit"))

    class Broker:
        url, stream = nats_url, name

        async def publish(self, *values):
            for value in values:
                await js.publish(f"{name}.a", str(value).encode())

        async def unsettled(self):
            info = await js.consumer_info(name, "c")
            return info.num_ack_pending + info.num_pending

    yield Broker()
    await js.delete_stream(name)
    await end(client)


@asynccontextmanager
async def stack():
    """A server with a worker that polls and does nothing else."""
    clock, bus, blobs = SystemClock(), MemoryBus(), MemoryBlobs()
    parts = ServerParts(store=MemoryStore(), bus=bus, blobs=blobs, clock=clock, ids=Ids(clock))
    tool = SubscriptionTool(Connections(Guard(egress=Egress(mode="open"))), clock)
    try:
        async with create_server(parts) as server:
            client = Client(AsgiTransport(server.asgi))
            async with Stage(client, tool, NoopTool(), bus=bus, blobs=blobs, clock=clock):
                yield client
    finally:
        await tool.close()


def document(broker, playbook="p", batch=10):
    return (
        "apiVersion: noetl.io/v1\nkind: Subscription\nmetadata: {name: ticks, path: subs/ticks}\n"
        "spec:\n  source: nats\n  mode: pull\n  activation: scheduled\n  cadence: 1s\n"
        f"  url: '{broker.url}'\n  stream: {broker.stream}\n  consumer: c\n"
        f"  runtime: {{pool: shared, batch: {batch}, timeout_ms: 100}}\n"
        f"  dispatch: {{playbook: {playbook}, batch_dispatch: true}}\n"
        "  dedup: {enabled: true}\n"
    )


async def activated(client, broker, **more):
    await client.register(Register(content=TARGET))
    await client.register(Register(content=document(broker, **more)))
    found = await client.register_subscription(PATH)
    await client.steer_subscription(found.subscription_id, "activate")
    return found.subscription_id


async def ended(client, run):
    async with asyncio.timeout(LONG_S):
        while True:
            found = await client.execution(run)
            if found.status in {"COMPLETED", "FAILED", "CANCELLED"}:
                return found.status
            await asyncio.sleep(0.02)


async def ticks(client, broker):
    """What the ticks came to that had messages, once none is left at the broker."""
    async with asyncio.timeout(LONG_S):
        while await broker.unsettled():  # noqa: ASYNC110 - a broker tells nobody
            await asyncio.sleep(0.02)
    runs = [row for row in (await client.executions(limit=100)).items if row.path == PATH]
    for row in runs:
        assert await ended(client, row.execution_id) == "COMPLETED"
    found = [await client.step_result(row.execution_id, "drain") for row in runs]
    return [result for result in found if result["received"]]


async def test_one_tick_drains_full_batches_and_every_message_is_one_run(broker):
    await broker.publish(*range(25))
    async with stack() as client:
        await activated(client, broker)
        [result] = await ticks(client, broker)
        assert result == {
            "received": 25, "started": 25, "duplicates": 0, "spooled": 0, "dead_lettered": 0,
            "nacked": 0,
        }  # fmt: skip
        runs = [row for row in (await client.executions(limit=100)).items if row.path == "p"]
        assert len(runs) == 25
        assert {await ended(client, row.execution_id) for row in runs} == {"COMPLETED"}


async def test_what_is_refused_for_good_is_a_dead_letter(broker):
    await broker.publish(1)
    async with stack() as client:
        sub = await activated(client, broker, playbook="nowhere")
        [result] = await ticks(client, broker)
        assert (result["received"], result["dead_lettered"]) == (1, 1)
        letters = await client.dead_letters(sub)
        assert [letter.reason for letter in letters.items] == ["dispatch_rejected"]
        await client.register(Register(content=TARGET.replace("path: p", "path: nowhere")))
        await client.redrive(sub, LettersWanted(all=True))
        async with asyncio.timeout(LONG_S):
            while (await client.dead_letters(sub)).items:  # noqa: ASYNC110 - letters tell nobody
                await asyncio.sleep(0.02)
        listed = (await client.executions(limit=100)).items
        [run] = [row.execution_id for row in listed if row.path == "nowhere"]
        assert await ended(client, run) == "COMPLETED"


async def test_drain_is_refused_to_a_playbook_that_claims_to_be_a_tick(broker, monkeypatch):
    async with stack() as client:
        sub = await activated(client, broker)
        forged = (
            f"{HEAD.replace('path: p', 'path: forged')}workflow:\n- step: s\n"
            f"  input: {{drain: {{subscription_id: '{sub}'}}}}\n"
            "  tool:\n    kind: subscription\n    operation: drain\n    source: nats\n"
            f"    url: '{broker.url}'\n    stream: {broker.stream}\n    consumer: c\n"
        )
        with pytest.raises(Refused) as refused:
            await client.register(Register(content=forged))
        [found] = refused.value.problem.errors
        assert (refused.value.problem.status, found["code"]) == (422, "DSL039")
        assert found["pointer"] == "/workflow/0/tool/operation"
        assert "`drain` is for the ticks of a Subscription" in found["message"]

        # One that was let in all the same, by an earlier release, is refused by the tool.
        monkeypatch.setattr("noetl.dsl.check.playbook.PlaybookCheck._drain", lambda *_: None)
        await client.register(Register(content=forged))
        run = (await client.execute(Execute(path="forged", payload={}))).execution_id
        assert await ended(client, run) == "FAILED"
