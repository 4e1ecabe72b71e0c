"""DBOS: a library in the process of its client, with its state in our PostgreSQL.

Run by the interpreter of the peer. Steps are coroutines, which was faster than threads for a chain
and for a fan-out; many runs are started by threads, and no other way was tried for them.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dbos import DBOS

from bench.peers.workload import (
    CLIENTS,
    STEPS,
    Ready,
    Task,
    chain,
    fan_out,
    runs,
    serve,
    single,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

DATABASE = "dbos_peer"
QUEUE = "items"
POLL_S = 0.01
"""How often it looks into its queue; its own choice would be once a second."""


@DBOS.step()
async def step(number: int) -> int:
    return number


@DBOS.step()
def plain_step(number: int) -> int:
    return number


@DBOS.workflow()
async def in_line(steps: int) -> int:
    last = -1
    for number in range(steps):
        last = await step(number)
    return last


@DBOS.workflow()
def plain_in_line(steps: int) -> int:
    last = -1
    for number in range(steps):
        last = plain_step(number)
    return last


@DBOS.workflow()
async def item(number: int) -> int:
    return await step(number)


@DBOS.workflow()
async def items_in_line(steps: int) -> int:
    last = -1
    for number in range(steps):
        last = await item(number)
    return last


@DBOS.workflow()
async def side_by_side(items: int) -> list[int]:
    return list(await asyncio.gather(*map(step, range(items))))


@DBOS.workflow()
async def queued(items: int) -> list[int]:
    handles = [await DBOS.enqueue_workflow_async(QUEUE, item, number) for number in range(items)]
    return [await handle.get_result() for handle in handles]


def started(count: int) -> list[int]:
    """Started by so many threads, one by one, and waited for."""
    with ThreadPoolExecutor(CLIENTS) as clients:
        start = DBOS.start_workflow
        handles = list(clients.map(lambda _: start(plain_in_line, 2), range(count)))
        return [handle.get_result() for handle in handles]


@contextmanager
def engine(task: Task) -> Iterator[Ready]:
    """One process, as its documentation starts it."""
    url = urlsplit(task.database_url)._replace(path=f"/{DATABASE}").geturl()
    DBOS(config={"name": "peer", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()
    loop = asyncio.new_event_loop()

    def wait(work: Any) -> Any:  # noqa: ANN401 - a workflow that was called
        return loop.run_until_complete(work)

    try:
        DBOS.register_queue(QUEUE, polling_interval_sec=POLL_S)
        yield Ready(
            works=[
                chain(lambda: wait(in_line(STEPS))),
                chain(lambda: wait(items_in_line(STEPS)), "chain-calls", each=1),
                fan_out(lambda items: wait(side_by_side(items))),
                fan_out(lambda items: wait(queued(items)), "fanout-calls"),
                runs(started),
                single(lambda: wait(in_line(2))),
            ]
        )
    finally:
        DBOS.destroy()
        loop.close()


if __name__ == "__main__":
    serve(engine)
