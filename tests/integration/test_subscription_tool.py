"""The subscription tool against a real broker, alone and on a worker with a real server."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest
from nats.js.api import ConsumerConfig

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.executions import Execute
from noetl.api.http import NO_HEADERS, AsgiTransport, NoAnswer
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.address import Address
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.ids import Ids
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.sources.connecting import connect
from noetl.store.memory.store import MemoryStore
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.nats.connections import Connections
from noetl.tools.subscription.tool import SubscriptionTool
from tests.unit.worker.fakes import HEAD, Stage

NUMBERS = itertools.count()
LONG_S = 30
BAD = ("config", "invalid_config")
OURS = ("auth", "platform_resource")


class Broker:
    """A stream with a consumer, and what tests ask about it."""

    def __init__(self, client, url, stream):
        self.client, self.url, self.stream = client, url, stream
        self.js = client.jetstream()

    async def publish(self, *values):
        for value in values:
            await self.js.publish(f"{self.stream}.a", str(value).encode())

    async def unsettled(self):
        info = await self.js.consumer_info(self.stream, "c")
        return info.num_ack_pending + info.num_pending

    async def settled(self):
        async with asyncio.timeout(LONG_S):
            while await self.unsettled():  # noqa: ASYNC110 - the broker tells nobody
                await asyncio.sleep(0.01)

    @property
    def config(self):
        return {"source": "nats", "url": self.url, "stream": self.stream, "consumer": "c"}


@pytest.fixture
async def broker(nats_url):
    async def as_it_is(host, _port):
        return [host]

    client = await connect(Address.of(nats_url), as_it_is)
    made = Broker(client, nats_url, f"SUB{next(NUMBERS)}")
    await made.js.add_stream(name=made.stream, subjects=[f"{made.stream}.>"])
    about = ConsumerConfig(durable_name="c", ack_policy="explicit", ack_wait=1)
    await made.js.add_consumer(made.stream, about)
    yield made
    await made.js.delete_stream(made.stream)
    await client.close()


@pytest.fixture
async def tool():
    made = worker_tool()
    yield made
    await made.close()


def worker_tool():
    """The tool of a worker of its own."""
    return SubscriptionTool(Connections(Guard(egress=Egress(mode="open"))), SystemClock())


async def run(tool, config, **more):
    ctx = ToolContext(execution_id="1", step="s", command_id="c", idempotency_key="k", **more)
    return await run_tool(tool, {"kind": "subscription", **config}, ctx)


async def done(tool, config, **more):
    outcome = await run(tool, config, **more)
    assert outcome.error is None, outcome.error
    return outcome.data


async def refused(tool, config):
    error = (await run(tool, config)).error
    return error["kind"], error["code"], error["message"]


# ---------------------------------------------------------------------------- the tool alone


async def test_a_poll_has_the_messages_and_says_what_becomes_of_them(tool, broker):
    await broker.publish('{"n": 1}', "two")
    works = []
    data = await done(tool, {**broker.config, "batch": 5}, on_afterwards=works.append)
    first, second = data.pop("messages")
    assert data.pop("metrics")["bytes"] == 11
    assert data == {
        "status": "success", "source": "nats", "operation": "poll", "count": 2, "acked": True,
        "ack_mode": "on_success", "ack_ids": [],
    }  # fmt: skip
    assert (first["data"], second["data"]) == ({"n": 1}, "two")
    assert first["id"] == f"{broker.stream}:1"
    assert first["ordering_key"] == f"{broker.stream}.a"
    assert "ack_id" not in first
    assert await broker.unsettled() == 2
    await works[0]()
    assert await broker.unsettled() == 0
    assert tool.fetched.messages["nats"] == 2


async def test_auto_acknowledges_inside_the_poll_and_peek_never(tool, broker):
    await broker.publish(1)
    peeked = await done(tool, {**broker.config, "ack": "peek"})
    assert (peeked["acked"], peeked["ack_mode"], peeked["ack_ids"]) == (False, "none", [])
    async with asyncio.timeout(LONG_S):
        while not (again := await done(tool, {**broker.config, "ack": "auto"}))["count"]:
            pass
    assert again["acked"]
    assert await broker.unsettled() == 0


async def test_ids_that_were_handed_out_settle_from_any_worker(tool, broker):
    await broker.publish(1, 2, 3)
    data = await done(tool, {**broker.config, "ack": "manual"})
    one, two, three = data["ack_ids"]
    assert data["messages"][0]["ack_id"] == one
    other = worker_tool()
    try:
        settle = {"source": "nats", "url": broker.url}
        report = await done(other, {**settle, "operation": "ack", "ack_ids": [one]})
        assert report == {
            "status": "success", "operation": "ack", "requested": 1, "disposed": 1, "errors": [],
        }  # fmt: skip
        await done(other, {**settle, "operation": "term", "ack_ids": [two]})
        nacked = {**settle, "operation": "nak", "ack_ids": [three], "nack_delay_ms": 0}
        assert (await done(other, nacked))["operation"] == "nack"
        again = await done(other, {**broker.config, "ack": "auto", "timeout_ms": 5000})
        assert [message["data"] for message in again["messages"]] == [3]
        assert await broker.unsettled() == 0
        assert (await done(other, {**settle, "operation": "ack"}))["requested"] == 0
    finally:
        await other.close()


async def test_an_id_of_a_consumer_that_is_gone_is_stale(tool, broker):
    await broker.publish(1)
    ids = (await done(tool, {**broker.config, "ack": "defer"}))["ack_ids"]
    await broker.js.delete_consumer(broker.stream, "c")
    settle = {"source": "nats", "url": broker.url, "operation": "ack", "ack_ids": ids}
    report = await done(tool, settle)
    assert (report["status"], report["disposed"]) == ("partial", 0)
    assert report["errors"][0]["code"] == "stale"


@pytest.mark.parametrize(
    ("more", "told", "word"),
    [
        ({"consumer": "nobody"}, ("not_found", "consumer_not_found"), "nobody"),
        ({"stream": "nowhere"}, ("not_found", "consumer_not_found"), "nowhere"),
        ({"stream": None}, ("config", "invalid_config"), "/stream"),
        ({"consumer": None}, ("config", "invalid_config"), "/consumer"),
        ({"stream": "NOETL_COMMANDS"}, OURS, "NOETL_COMMANDS"),
        ({"batch": 1001}, ("config", "invalid_config"), "/batch"),
        ({"timeout_ms": 5001}, ("config", "invalid_config"), "/timeout_ms"),
        ({"url": None}, ("config", "connection_missing"), "/url"),
        ({"timeout_ms": -1}, BAD, "/timeout_ms"),
        ({"batch": 0}, BAD, "/batch"),
        ({"ack": "sometimes"}, BAD, "/ack"),
        ({"operation": "nack", "ack_ids": [], "nack_delay_ms": 3_600_001}, BAD, "/nack_delay_ms"),
        ({"endpoint": "x"}, BAD, "/endpoint"),
        ({"operation": "drain"}, ("config", "invalid_config"), "drain"),
        ({"source": "webhook"}, BAD, "webhook"),
        ({"operation": "ack", "ack_ids": ["$JS.API.STREAM.DELETE.X"]}, BAD, "does not name"),
        ({"operation": "ack", "ack_ids": ["$JS.ACK.NOETL_COMMANDS.c.1.1.1.1.1"]}, OURS, "NOETL_"),
    ],
)  # fmt: skip
async def test_what_cannot_be_done_is_told(tool, broker, more, told, word):
    found = await refused(tool, {**broker.config, **more})
    assert found[:2] == told
    assert word in found[2]


async def test_a_consumer_without_explicit_acks_is_refused(tool, broker):
    about = ConsumerConfig(durable_name="loose", ack_policy="none")
    await broker.js.add_consumer(broker.stream, about)
    found = await refused(tool, {**broker.config, "consumer": "loose"})
    assert found[:2] == ("config", "ack_policy_invalid")


# ---------------------------------------------------------------------------- on a worker


class Deaf(AsgiTransport):
    """A way to the server on which results get lost."""

    def __init__(self, app):
        super().__init__(app)
        self.lost = asyncio.Event()

    async def request(self, method, path, body=b"", headers=NO_HEADERS):
        if b"call.done" in body:
            self.lost.set()
            raise NoAnswer("the report got lost")
        return await super().request(method, path, body, headers)


@asynccontextmanager
async def server_in_memory():
    clock = SystemClock()
    bus, blobs = MemoryBus(), MemoryBlobs()
    parts = ServerParts(store=MemoryStore(), bus=bus, blobs=blobs, clock=clock, ids=Ids(clock))
    async with create_server(parts) as server:
        yield server, {"bus": bus, "blobs": blobs, "clock": clock}


async def started(client, broker):
    content = (
        f"{HEAD}workflow:\n- step: s\n  tool:\n    kind: subscription\n    source: nats\n"
        f"    url: '{broker.url}'\n    stream: {broker.stream}\n    consumer: c\n"
    )
    await client.register(Register(content=content))
    return (await client.execute(Execute(path="p", payload={}))).execution_id


async def test_a_poll_is_settled_when_its_report_was_stored(tool, broker):
    await broker.publish(1, 2, 3, 4, 5)
    async with server_in_memory() as (server, parts):
        client = Client(AsgiTransport(server.asgi))
        async with Stage(client, tool, **parts):
            execution_id = await started(client, broker)
            await server.finished(execution_id)
            await broker.settled()
            found = await client.step_result(execution_id, "s")
    assert (found["count"], found["acked"]) == (5, True)
    assert (await done(tool, {**broker.config, "timeout_ms": 0}))["count"] == 0


async def test_a_poll_whose_report_never_arrived_gets_the_messages_again(tool, broker):
    await broker.publish(1, 2)
    async with server_in_memory() as (server, parts):
        client = Client(AsgiTransport(server.asgi))
        way = Deaf(server.asgi)
        async with Stage(Client(way), tool, **parts):
            await started(client, broker)
            async with asyncio.timeout(LONG_S):
                await way.lost.wait()
        assert await broker.unsettled() == 2
        again = await done(tool, {**broker.config, "timeout_ms": 5000, "ack": "auto"})
    assert [message["data"] for message in again["messages"]] == [1, 2]
    assert again["messages"][0]["metadata"]["delivered"] == 2
