"""From a command's commit to the start of its tool, on an idle worker that the bus wakes.

The worker's request for work is parked at the first server of the stack; the runs are started
through a second one on the same database, so only the bus can tell the worker of them.
"""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any

from bench import playbooks
from bench.limits import at_most
from bench.more import server
from bench.scenario import made, on_stack
from bench.stack import CommandFailed
from noetl.api.executions import Execute
from noetl.api.sockets import SocketTransport
from noetl.local.embedded.ports import free_port

if TYPE_CHECKING:
    from bench.stack import Stack
    from noetl.api.client import Client

PATH = "bench/one"
SAMPLES = 40
"""For each repeat."""
WARM_UP = 10
LEAST_BY_BUS = 0.95
_CAME = re.compile(r'^noetl_worker_claim_succeeded_total\{via="(\w+)"\} (\S+)$', re.MULTILINE)


def records(repeat: int) -> list[dict[str, Any]]:
    """Milliseconds, of commands that the bus told of and of commands that a parked claim took."""
    first, second = free_port(), free_port()
    both = ",".join(f"http://127.0.0.1:{port}" for port in (first, second))
    # A worker claims only at servers that it was told of when it joined.
    told = {"NOETL_SHARD_SERVERS": both}
    return on_stack(lambda stack: _measure(stack, second, repeat * SAMPLES), told, first)


async def _measure(stack: Stack, port: int, count: int) -> list[dict[str, Any]]:
    await stack.register(playbooks.chain(PATH, 1))
    parked = [await _sample(stack, stack.client) for _ in range(WARM_UP + count)][WARM_UP:]
    async with server(stack, port) as other:
        await asyncio.gather(*(_sample(stack, other) for _ in range(WARM_UP)))
        before = await _came(stack)
        woken = [await _sample(stack, other) for _ in range(count)]
        after = await _came(stack)
    ways = {way: after[way] - before.get(way, 0) for way in after}
    share = ways.get("bus", 0) / count
    limits = [at_most("p50", 5.0), at_most("p95", 25.0, 50.0)]
    return [
        made(
            stack, "dispatch", woken, unit="ms", correct=share >= LEAST_BY_BUS,
            limits=limits,
            params={"servers": 2, "samples": count, "claimed_by": ways},
            ratios={"raw_publish": round(median(woken) / 1000 * stack.raw.jetstream_serial, 2)},
        ),
        made(
            stack, "dispatch-parked", parked, unit="ms", params={"samples": count},
            ratios={"raw_round_trips": round(median(parked) / 1000 * stack.raw.http_serial, 2)},
        ),
    ]  # fmt: skip


async def _sample(stack: Stack, client: Client) -> float:
    """One run: from the time in the log of its command to that of its tool's start."""
    started = await client.execute(Execute(path=PATH))
    async for told in client.stream(started.execution_id):
        if told["event"] == "end" and told["data"]["status"] != "COMPLETED":
            raise CommandFailed(f"{started.execution_id} ended {told['data']['status']}")
    page = await stack.client.events(started.execution_id)
    times = {row["event_type"]: row.get("event_time", row["created_at"]) for row in page.items}
    begun, issued = map(datetime.fromisoformat, (times["command.started"], times["command.issued"]))
    return (begun - issued).total_seconds() * 1000


async def _came(stack: Stack) -> dict[str, int]:
    """Commands of the worker by the way they came."""
    worker = SocketTransport(stack.part("worker-shared")["health"].removesuffix("/readyz"))
    text = (await worker.request("GET", "/metrics")).body.decode()
    await worker.close()
    return {way: int(float(value)) for way, value in _CAME.findall(text)}
