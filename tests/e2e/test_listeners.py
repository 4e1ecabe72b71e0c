"""The processes that listen: several subscriptions, several processes, their pages, their end."""

import asyncio
import json
import os
import signal
from contextlib import asynccontextmanager

import pytest

from noetl.api.sockets import SocketTransport
from tests.e2e.test_subscriptions import (
    DEDUP,
    IN_ORDER,
    numbers_by_key,
    site,
    spooled,
)
from tests.reliability.senders import Downstream

__all__ = ["site"]
"""The fixture, which is found by its name."""
LATE_S = 30.0
SHARED = """\
  spool:
    mode: buffer_and_ack
    backend: nats_object
    bucket: {bucket}
    ordering_key: message.data.key
    circuit:
      trip_after: 2
      probe_after_ms: 300
      probe_interval_ms: 100
      downstream: [{{name: store, probe: tcp, target: "127.0.0.1:{port}"}}]
"""


def port_of(listener):
    """Where a listener tells of itself."""
    listener.until("the listener listens")
    lines = [json.loads(line) for line in listener.lines if line.startswith("{")]
    return next(line["port"] for line in lines if line["event"] == "the listener listens")


@asynccontextmanager
async def pages(listener):
    """Asks a listener for its pages."""
    transport = SocketTransport(f"http://127.0.0.1:{port_of(listener)}")

    async def page(path):
        return await transport.request("GET", path)

    try:
        yield page
    finally:
        await transport.close()


async def test_one_process_listens_for_several_and_tells_how_each_is(site, full_stack):
    async with site() as one, site() as other:
        listener = full_stack.listen(one.path, other.path, WORKER_ID=f"both-{one.name}")
        one.processes.append(listener)
        await one.send(1, 2)
        await other.send(3)
        await one.completed(2)
        await other.completed(1)
        await one.settled()
        async with pages(listener) as page:
            health, ready = await page("/health"), await page("/readyz")
            metrics = (await page("/metrics")).body.decode()

        assert (health.status, ready.status) == (200, 200)
        assert json.loads(health.body)["subscriptions"] == [one.path, other.path]
        for path, count in ((one.path, 2), (other.path, 1)):
            name = "noetl_subscription_messages_received_total"
            assert f'{name}{{subscription="{path}"}} {count}' in metrics
            name = "noetl_subscription_executions_total"
            assert f'{name}{{outcome="started",subscription="{path}"}} {count}' in metrics
        assert listener.stop() == 0
        assert {(await here.subscription()).state for here in (one, other)} == {"DEACTIVATED"}


async def test_the_second_signal_ends_a_listener_at_once_and_its_message_comes_again(site):
    going, over = asyncio.Event(), asyncio.Event()

    async def never(_, writer):
        going.set()
        await over.wait()
        writer.close()

    web = await asyncio.start_server(never, "127.0.0.1", 0)
    port = web.sockets[0].getsockname()[1]
    tool = f'{{kind: http, url: "http://127.0.0.1:{port}/", timeout: 60}}'
    try:
        async with site(dispatch=", ack_after: completed", tool=tool) as here:
            listener = here.listen()
            await here.send(1)
            async with asyncio.timeout(LATE_S):
                await going.wait()
            os.kill(listener.pid, signal.SIGTERM)
            await asyncio.to_thread(listener.until, "a signal")
            os.kill(listener.pid, signal.SIGTERM)

            assert await asyncio.to_thread(listener.ended) == 1
            info = await here.js.consumer_info(here.stream, "c")
            assert (info.num_ack_pending, info.ack_floor.stream_seq) == (1, 0)
    finally:
        over.set()
        web.close()


async def replayed(listener, path):
    """How many messages one process has sent out of the spool."""
    async with pages(listener) as page:
        metrics = (await page("/metrics")).body.decode()
    head = f'noetl_subscription_replayed_total{{subscription="{path}"}} '
    [line] = [line for line in metrics.splitlines() if line.startswith(head)]
    return float(line.removeprefix(head))


@pytest.fixture
async def downstream():
    made = Downstream()
    yield made
    await made.down()


async def test_of_two_that_listen_one_drains(site, downstream):
    async with site() as here:
        spool = SHARED.format(bucket=f"spool-{here.name}", port=downstream.port)
        await here.document(more=DEDUP + spool)
        both = [here.listen(WORKER_ID=f"{here.name}-{number}") for number in range(2)]
        for listener in both:
            listener.until("the listener listens")

        async def opened():
            return await here.events("subscription.circuit.opened")

        await here.until(opened, "the circuit is open")
        # Two processes that receive at the same time have no order between them.
        await here.send(*range(3))
        await spooled(here, 3)
        await here.send(*range(3, 6))
        await spooled(here, 6)
        assert await here.executions() == ()
        await downstream.up()
        await here.completed(6)

        async def drained():
            rows = await here.events("subscription.spool.drained")
            return sum(row["context"]["replayed"] for row in rows) >= 6

        await here.until(drained, "all is drained")
        assert await numbers_by_key(here) == IN_ORDER
        assert sorted([await replayed(listener, here.path) for listener in both]) == [0, 6]
        assert (await here.subscription()).runtime.instances == 2
        assert len(await here.executions()) == 6
        assert [listener.stop() for listener in both] == [0, 0]
