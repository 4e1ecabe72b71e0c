"""The processes that listen: several subscriptions, several processes, their pages, their end."""

import asyncio
import json
import os
import signal
from contextlib import asynccontextmanager

from noetl.api.sockets import SocketTransport
from tests.e2e.test_subscriptions import (
    site,
)

__all__ = ["site"]
"""The fixture, which is found by its name."""
LATE_S = 30.0


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
