"""The subscription tool with every source: what its table says, and acks across steps."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaProducer
from google.pubsub_v1.types import PubsubMessage
from nats.js.api import ConsumerConfig

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.executions import Execute
from noetl.api.http import AsgiTransport
from noetl.api.problems import Refused
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.dsl.parse import parse
from noetl.ids import Ids
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.sources.base import SOURCES
from noetl.sources.connecting import connect
from noetl.sources.places import as_written, place_of
from noetl.store.memory.store import MemoryStore
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.nats.connections import Connections
from noetl.tools.subscription.tool import SubscriptionTool
from tests.fakes.pubsub import Desk
from tests.unit.worker.fakes import HEAD, Stage

NUMBERS = itertools.count()
LONG_S = 30


class Broker:
    """A place with messages, as tasks name it."""

    def __init__(self, source, config, publish, close):
        self.source, self.config, self.publish, self._close = source, config, publish, close

    async def close(self):
        await self._close()


async def on_nats(request):
    url, name = request.getfixturevalue("nats_url"), f"SRC{next(NUMBERS)}"
    fields = {"url": url, "stream": name, "consumer": "c"}
    client = await connect(place_of("nats", fields, {}), as_written)
    js = client.jetstream()
    await js.add_stream(name=name, subjects=[f"{name}.>"])
    await js.add_consumer(name, ConsumerConfig(durable_name="c", ack_policy="explicit"))

    async def publish(*values):
        for value in values:
            await js.publish(f"{name}.a", str(value).encode())

    async def close():
        await js.delete_stream(name)
        await client.close()

    return Broker("nats", fields, publish, close)


async def on_kafka(request):
    cluster = request.getfixturevalue("kafka_cluster")
    producer = AIOKafkaProducer(bootstrap_servers=cluster.brokers)
    await producer.start()
    topic = cluster.topic()

    async def publish(*values):
        for value in values:
            await producer.send_and_wait(topic, str(value).encode())

    fields = {"brokers": cluster.brokers, "topic": topic, "group": topic}
    return Broker("kafka", fields, publish, producer.stop)


async def on_pubsub(request):
    host, name = request.getfixturevalue("pubsub_emulator").host, f"src-{next(NUMBERS)}"
    desk = Desk(host)
    path = await desk.subscription(name)

    async def publish(*values):
        await desk.publish(name, *(PubsubMessage(data=str(value).encode()) for value in values))

    fields = {"endpoint": f"http://{host}", "subscription": path}
    return Broker("pubsub", fields, publish, desk.close)


@pytest.fixture(params=[on_nats, on_kafka, on_pubsub])
async def broker(request):
    made = await request.param(request)
    yield made
    await made.close()


@pytest.fixture
async def tool():
    made = worker_tool()
    yield made
    await made.close()


def worker_tool(mode="open", **more):
    connections = Connections(Guard(egress=Egress(mode=mode)))
    return SubscriptionTool(connections, SystemClock(), **more)


async def run(tool, broker, config=None, **more):
    ctx = ToolContext(execution_id="1", step="s", command_id="c", idempotency_key="k", **more)
    task = {"kind": "subscription", "source": broker.source, **broker.config, **(config or {})}
    return await run_tool(tool, task, ctx)


async def done(tool, broker, config=None, **more):
    outcome = await run(tool, broker, config, **more)
    assert outcome.error is None, outcome.error
    return outcome.data


async def polled(tool, broker, count, **more):
    """Polls until so many messages have come."""
    found = []
    async with asyncio.timeout(LONG_S):
        while sum(data["count"] for data in found) < count:
            found.append(await done(tool, broker, {"timeout_ms": 5000, **more}))
    return found


async def test_five_published_are_polled_once(tool, broker):
    await broker.publish(1, 2, 3, 4, 5)
    works = []
    data = await done(tool, broker, {"timeout_ms": 5000}, on_afterwards=works.append)
    messages = data.pop("messages")
    metrics = data.pop("metrics")
    assert data == {
        "status": "success", "source": broker.source, "operation": "poll", "count": 5,
        "acked": True, "ack_mode": "on_success", "ack_ids": [],
    }  # fmt: skip
    assert sorted(metrics) == ["bytes", "fetch_ms"]
    assert metrics["bytes"] == 5
    assert sorted(message["data"] for message in messages) == [1, 2, 3, 4, 5]
    assert not any("ack_id" in message for message in messages)
    for work in works:
        await work()
    assert (await done(tool, broker, {"timeout_ms": 0}))["count"] == 0
    assert tool.fetched.messages == {**dict.fromkeys(SOURCES, 0), broker.source: 5}


async def test_a_poll_gives_at_most_its_batch(tool, broker):
    await broker.publish(*range(5))
    found = await polled(tool, broker, 5, batch=2, ack="auto")
    assert max(data["count"] for data in found) <= 2
    assert all(data["acked"] for data in found if data["count"])


async def test_ids_settle_in_a_later_step(tool, broker):
    await broker.publish(1, 2, 3)
    [data] = await polled(tool, broker, 3, ack="manual")
    one, two, three = data["ack_ids"]
    assert [message["ack_id"] for message in data["messages"]] == [one, two, three]
    assert (data["acked"], data["ack_mode"]) == (False, "manual")
    told = await done(tool, broker, {"operation": "ack", "ack_ids": [one]})
    assert told == {
        "status": "success", "operation": "ack", "requested": 1, "disposed": 1, "errors": [],
    }  # fmt: skip
    await done(tool, broker, {"operation": "term", "ack_ids": [two]})
    told = await done(tool, broker, {"operation": "nak", "ack_ids": [three]})
    assert (told["operation"], told["disposed"]) == ("nack", 1)
    [again] = await polled(tool, broker, 1, ack="auto")
    assert [message["data"] for message in again["messages"]] == [3]
    assert (await done(tool, broker, {"timeout_ms": 0}))["count"] == 0


@pytest.mark.parametrize(
    ("ack", "mode"),
    [
        ("on_success", "on_success"), (True, "on_success"), ("auto", "auto"), ("manual", "manual"),
        (False, "manual"), ("defer", "manual"), ("none", "none"), ("peek", "none"),
    ],
)  # fmt: skip
async def test_every_word_for_a_way_to_acknowledge(tool, broker, ack, mode):
    await broker.publish(1)
    [data] = await polled(tool, broker, 1, ack=ack)
    assert data["ack_mode"] == mode
    assert data["acked"] == (mode in {"on_success", "auto"})
    assert len(data["ack_ids"]) == (mode == "manual")


@pytest.mark.parametrize("operation", ["ack", "nack", "nak", "term"])
async def test_empty_ids_are_a_success_with_none(tool, broker, operation):
    told = await done(tool, broker, {"operation": operation, "ack_ids": []})
    assert (told["status"], told["requested"], told["disposed"]) == ("success", 0, 0)


async def test_the_tool_drains_nothing_for_a_playbook(tool, broker):
    error = (await run(tool, broker, {"operation": "drain"})).error
    assert (error["kind"], error["code"]) == ("config", "invalid_config")
    assert error["message"].startswith("/operation: ")


@pytest.mark.parametrize(
    "more",
    [
        {"batch": 0}, {"batch": 1001}, {"timeout_ms": -1}, {"timeout_ms": 20_001},
        {"nack_delay_ms": -1}, {"nack_delay_ms": 3_600_001}, {"ack": "later"},
        {"operation": "drop"},
    ],
)  # fmt: skip
async def test_a_rendered_value_out_of_range_fails_the_step(tool, broker, more):
    error = (await run(tool, broker, more)).error
    assert (error["kind"], error["code"]) == ("config", "invalid_config")
    assert error["message"].startswith(f"/{next(iter(more))}: ")


async def test_a_poll_waits_no_longer_than_its_source_allows(tool, broker):
    await broker.publish(1)
    error = (await run(tool, broker, {"timeout_ms": 5001})).error
    if broker.source == "pubsub":
        assert error is None
    else:
        assert error["message"].startswith("/timeout_ms: ")


async def test_a_missing_field_is_named(tool, broker):
    connection = {"url", "brokers", "endpoint"}
    for name in broker.config.keys() - connection:
        error = (await run(tool, broker, {name: None})).error
        assert (error["kind"], error["code"]) == ("config", "invalid_config")
        assert error["message"].startswith(f"/{name}: ")


async def test_there_is_no_default_connection(tool, broker):
    [name] = {"url", "brokers", "endpoint"} & broker.config.keys()
    error = (await run(tool, broker, {name: None})).error
    assert (error["kind"], error["code"]) == ("config", "connection_missing")


async def test_a_credential_fills_the_connection(tool, broker):
    names = {"url", "brokers", "endpoint"} & broker.config.keys()
    fields = {name: broker.config[name] for name in names}

    async def secrets(alias):
        assert alias == "plant"
        return {"type": broker.source, **fields}

    await broker.publish(1)
    config = {"auth": "plant", **dict.fromkeys(names), "timeout_ms": 5000, "ack": "auto"}
    assert (await done(tool, broker, config, secrets=secrets))["count"] == 1


async def test_a_host_that_is_refused_is_not_reached(broker):
    tool = worker_tool(mode="guarded")
    try:
        error = (await run(tool, broker)).error
        assert (error["kind"], error["code"]) == ("egress", "egress_denied")
    finally:
        await tool.close()


async def test_an_emulator_of_the_machine_is_a_connection(pubsub_emulator):
    desk, name = Desk(pubsub_emulator.host), f"src-{next(NUMBERS)}"
    path = await desk.subscription(name)
    await desk.close()
    tool = worker_tool(emulator=pubsub_emulator.host)
    try:
        broker = Broker("pubsub", {"subscription": path}, None, None)
        assert (await done(tool, broker, {"timeout_ms": 0}))["count"] == 0
    finally:
        await tool.close()


# ---------------------------------------------------------------------------- when it is registered


@asynccontextmanager
async def server_in_memory():
    clock, bus, blobs = SystemClock(), MemoryBus(), MemoryBlobs()
    parts = ServerParts(store=MemoryStore(), bus=bus, blobs=blobs, clock=clock, ids=Ids(clock))
    async with create_server(parts) as server:
        yield server, {"bus": bus, "blobs": blobs, "clock": clock}


def document(**more):
    keys = {"kind": "subscription", "source": "nats", "stream": "s", "consumer": "c", **more}
    lines = "".join(f"    {name}: {value}\n" for name, value in keys.items())
    return f"{HEAD}workflow:\n- step: s\n  tool:\n{lines}"


def faults(**more):
    return [item.pointer for item in parse(document(**more)).errors]


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"source": "webhook"}, "source"),
        ({"operation": "drop"}, "operation"),
        ({"batch": 0}, "batch"),
        ({"batch": 1001}, "batch"),
        ({"timeout_ms": -1}, "timeout_ms"),
        ({"timeout_ms": 5001}, "timeout_ms"),
        ({"source": "kafka", "topic": "t", "group": "g", "timeout_ms": 5001}, "timeout_ms"),
        ({"source": "pubsub", "subscription": "x", "timeout_ms": 20_001}, "timeout_ms"),
        ({"ack": "later"}, "ack"),
        ({"nack_delay_ms": 3_600_001}, "nack_delay_ms"),
    ],
)
def test_a_literal_out_of_range_is_refused_when_it_is_registered(more, name):
    assert f"/workflow/0/tool/{name}" in faults(**more)


async def test_registering_a_literal_out_of_range_answers_422():
    async with server_in_memory() as (server, _):
        with pytest.raises(Refused) as caught:
            await Client(AsgiTransport(server.asgi)).register(
                Register(content=document(timeout_ms=5001))
            )
    assert caught.value.problem.status == 422


def test_literals_within_their_range_are_accepted():
    assert faults(timeout_ms=5000, batch=1000, nack_delay_ms=3_600_000) == []
    assert faults(source="pubsub", subscription="x", timeout_ms=20_000) == []
    assert faults(timeout_ms="'{{ workload.wait }}'") == []


# ---------------------------------------------------------------------------- on a worker


async def test_a_poll_is_acknowledged_after_its_report_was_accepted(tool, broker):
    await broker.publish(*range(5))
    lines = "".join(f"    {name}: '{value}'\n" for name, value in broker.config.items())
    content = (
        f"{HEAD}workflow:\n- step: s\n  tool:\n    kind: subscription\n"
        f"    source: {broker.source}\n    timeout_ms: 5000\n{lines}"
    )
    async with server_in_memory() as (server, parts):
        client = Client(AsgiTransport(server.asgi))
        async with Stage(client, tool, **parts):
            await client.register(Register(content=content))
            execution_id = (await client.execute(Execute(path="p", payload={}))).execution_id
            async with asyncio.timeout(LONG_S):
                await server.finished(execution_id)
            found = await client.step_result(execution_id, "s")
    assert (found["count"], found["acked"]) == (5, True)
    assert (await done(tool, broker, {"timeout_ms": 0}))["count"] == 0
