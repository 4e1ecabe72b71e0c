"""The listener with every broker: messages become runs, with their headers and in their order."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaProducer
from google.pubsub_v1.types import PubsubMessage
from nats.js.api import ConsumerConfig

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.http import AsgiTransport
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.ids import Ids
from noetl.intake.circuit_stores import ServerStore
from noetl.secrets.sealed import KeyPair
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.sources.connecting import connect
from noetl.sources.places import as_written, place_of
from noetl.store.memory.store import MemoryStore
from noetl.subscription.app import App, AppParts
from noetl.telemetry.redact import Redactor
from tests.fakes.pubsub import Desk
from tests.unit.worker.fakes import HEAD

NUMBERS = itertools.count()
LONG_S = 40
PATH = "subs/listened"
TARGET = f"{HEAD}workflow:\n- step: s\n  tool: {{kind: noop}}\n"
ROUTED = (2, 5)
"""Messages that name another playbook."""


class Broker:
    """A place with messages, as a document names it."""

    def __init__(self, source, config, publish, close):
        self.source, self.config, self.publish, self.close = source, config, publish, close


async def on_nats(request):
    url, name = request.getfixturevalue("nats_url"), f"LSN{next(NUMBERS)}"
    fields = {"url": url, "stream": name, "consumer": "c"}
    client = await connect(place_of("nats", fields, {}), as_written)
    js = client.jetstream()
    await js.add_stream(name=name, subjects=[f"{name}.>"])
    await js.add_consumer(name, ConsumerConfig(durable_name="c", ack_policy="explicit"))

    async def publish(body, headers):
        await js.publish(f"{name}.a", body, headers=headers)

    async def close():
        await js.delete_stream(name)
        await client.close()

    return Broker("nats", fields, publish, close)


async def on_kafka(request):
    cluster = request.getfixturevalue("kafka_cluster")
    producer = AIOKafkaProducer(bootstrap_servers=cluster.brokers)
    await producer.start()
    topic = cluster.topic(2)

    async def publish(body, headers):
        given = [(name, value.encode()) for name, value in headers.items()]
        await producer.send_and_wait(topic, body, key=b"a", headers=given)

    fields = {"brokers": cluster.brokers.split(","), "topic": topic, "group": topic}
    return Broker("kafka", fields, publish, producer.stop)


async def on_pubsub(request):
    host, name = request.getfixturevalue("pubsub_emulator").host, f"lsn-{next(NUMBERS)}"
    desk = Desk(host)
    path = await desk.subscription(name, enable_message_ordering=True)

    async def publish(body, headers):
        await desk.publish(name, PubsubMessage(data=body, attributes=headers, ordering_key="a"))

    fields = {"endpoint": f"http://{host}", "subscription": path}
    return Broker("pubsub", fields, publish, desk.close)


@pytest.fixture(params=[on_nats, on_kafka, on_pubsub])
async def broker(request):
    made = await request.param(request)
    yield made
    await made.close()


def document(broker):
    route = {"header": "x-route", "controls": "dispatch.playbook", "allowed": ["other"]}
    spec = {
        "source": broker.source,
        "mode": "pull",
        **broker.config,
        "runtime": {"pool": "meters", "batch": 4, "timeout_ms": 500},
        "dispatch": {"playbook": "p"},
        "dedup": {"enabled": True},
        "headers": {"directives": [route], "trace": {"propagate": "w3c"}},
    }
    made = {"apiVersion": "noetl.io/v1", "kind": "Subscription", "spec": spec}
    return json.dumps(made | {"metadata": {"name": "listened", "path": PATH}})


@asynccontextmanager
async def listening(broker, home):
    """A server, and a listener beside it."""
    clock = SystemClock()
    parts = ServerParts(
        store=MemoryStore(), bus=MemoryBus(), blobs=MemoryBlobs(), clock=clock, ids=Ids(clock)
    )
    async with create_server(parts) as server:
        client = Client(AsgiTransport(server.asgi))
        for path in ("p", "other"):
            await client.register(Register(content=TARGET.replace("path: p", f"path: {path}")))
        await client.register(Register(content=document(broker)))
        app = App(
            AppParts(
                name="listener", paths=[PATH], client=client, keys=KeyPair.make(), clock=clock,
                ids=Ids(clock, 2), circuits=ServerStore(client), redactor=Redactor(), home=home,
                state_poll_s=0.5,
            )
        )  # fmt: skip
        task = asyncio.create_task(app.run())
        try:
            yield client, app
        finally:
            app.stop()
            await task


async def until(ask):
    """The first answer that is one."""
    async with asyncio.timeout(LONG_S):
        while not (found := await ask()):  # noqa: ASYNC110 - servers tell nobody
            await asyncio.sleep(0.02)
    return found


async def test_messages_of_a_broker_become_runs_with_their_headers_and_in_their_order(
    broker, tmp_path
):
    parents = [f"00-{n:032x}-{n:016x}-01" for n in range(1, 7)]
    async with listening(broker, tmp_path) as (client, app):
        for n, parent in enumerate(parents, 1):
            route = {"x-route": "other"} if n in ROUTED else {}
            body = json.dumps({"n": n}).encode()
            await broker.publish(body, {"traceparent": parent, **route})

        async def all_done():
            listed = (await client.executions(limit=100)).items
            found = [await client.execution(row.execution_id) for row in listed]
            is_over = len(found) == len(parents) and {run.status for run in found} == {"COMPLETED"}
            return sorted(found, key=lambda run: int(run.execution_id)) if is_over else None

        async def all_acked():
            return app.metrics.acked.value(PATH) == len(parents)

        runs = await until(all_done)
        told = []
        for run in runs:
            events = (await client.events(run.execution_id, limit=100)).items
            [started] = [one for one in events if one["event_type"] == "playbook.started"]
            told.append((run.workload["n"], run.path, run.pool, started["trace"]["traceparent"]))
        assert told == [
            (n, "other" if n in ROUTED else "p", "meters", parent)
            for n, parent in enumerate(parents, 1)
        ]
        await until(all_acked)
        assert app.metrics.nacked.value(PATH) == 0
        assert app.ailments == ()
