"""Events that workers report, in batches of a hundred and one by one, over eight connections.

Pretended workers claim the real commands of open loops and report what real ones do: a start and a
result for each. Every event is judged, stored once, folded and decided on.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from bench import playbooks
from bench.limits import at_least, at_most
from bench.pretend import POOL, Pretender
from bench.sampling import spread
from bench.scenario import beside, counted, made, on_stack
from noetl.api.client import Client
from noetl.api.events import Posted
from noetl.api.executions import Execute
from noetl.api.sockets import SocketTransport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.limits import Limit
    from bench.stack import Stack
    from noetl.api.events import Report

    Send = Callable[[SocketTransport, list[Report], list[float]], Awaitable[int]]

PATH = "bench/open"
CONNECTIONS = 8
ITEMS = 500
"""Of one loop; each connection has a loop of its own."""
SINGLE_ITEMS = 100
BATCH = 100
MOST_MS = 100.0
_JSON = {"content-type": "application/json"}


def records(repeat: int) -> list[dict[str, Any]]:
    """Events a second, in batches and singly, and how long each request took."""
    return on_stack(lambda stack: _measure(stack, repeat))


async def _measure(stack: Stack, repeat: int) -> list[dict[str, Any]]:
    batches, singles = Round(stack, ITEMS, _batches), Round(stack, SINGLE_ITEMS, _singles)
    for one in (batches, singles):
        await stack.register(playbooks.open_loop(f"{PATH}{one.items}", one.items))
        await one.sample()
    costs = await counted(stack, "event", batches.events, batches.sample)
    many = await _record(stack, "ingest", repeat, batches, at_least("p50", 10_000.0, 4_000.0))
    few = await _record(stack, "ingest-single", repeat, singles, at_least("p50", 1_500.0, 700.0))
    return [many | {"counted": costs}, few]


async def _record(stack: Stack, name: str, repeat: int, of: Round, limit: Limit) -> dict[str, Any]:
    of.times_ms.clear()
    samples, shares = await beside(stack, repeat, of.sample)
    return made(
        stack, name, samples, unit="events/s", better="higher", correct=of.is_right,
        limits=[limit, at_most("request_ms.p99", MOST_MS)],
        params={"events": of.events, "connections": CONNECTIONS, "batch": of.batch},
        request_ms=spread(of.times_ms),
        ratios={
            "of_raw_commits_serial": shares,
            "of_raw_inserts_batched": round(max(samples) / stack.raw.inserts_batched, 3),
            "of_raw_http_on_32": round(max(samples) / of.batch / stack.raw.http_on_32, 3),
        },
    )  # fmt: skip


class Round:
    """One loop for each connection, all its commands held, then everything reported at once."""

    def __init__(self, stack: Stack, items: int, send: Send) -> None:
        self.items = items
        self.batch = BATCH if send is _batches else 1
        self.events = 2 * items * CONNECTIONS
        self.is_right = True
        self.times_ms: list[float] = []
        """Of every request."""
        self._stack = stack
        self._send = send
        self._worker = Pretender()

    async def sample(self) -> float:
        """Events a second of one round."""
        path = f"{PATH}{self.items}"
        asked = [
            self._stack.client.execute(Execute(path=path, execution_pool=POOL))
            for _ in range(CONNECTIONS)
        ]
        started = [one.execution_id for one in await asyncio.gather(*asked)]
        commands = await self._worker.claim(self._stack.client, self.items * CONNECTIONS)
        lanes = [
            [event for command in commands if command.execution_id == name
             for event in self._worker.done(command)]
            for name in started
        ]  # fmt: skip
        transports = [
            SocketTransport(self._stack.url, token=self._stack.token, connections=1) for _ in lanes
        ]
        try:
            await asyncio.gather(*(one.request("GET", "/livez") for one in transports))
            before = time.perf_counter()
            sent = [
                self._send(one, lane, self.times_ms)
                for one, lane in zip(transports, lanes, strict=True)
            ]
            stored = await asyncio.gather(*sent)
            taken = time.perf_counter() - before
        finally:
            await asyncio.gather(*(one.close() for one in transports))
        results = await asyncio.gather(*map(self._stack.result, started))
        is_right = sum(stored) == self.events and results == [[1] * self.items] * CONNECTIONS
        self.is_right = self.is_right and is_right
        return self.events / taken


async def _batches(transport: SocketTransport, events: list[Report], times: list[float]) -> int:
    """Report by the hundred; how many were stored."""
    client, worker = Client(transport), Pretender()
    stored = 0
    for start in range(0, len(events), BATCH):
        before = time.perf_counter()
        answer = await client.report(worker.batch(events[start : start + BATCH]))
        times.append((time.perf_counter() - before) * 1000)
        stored += sum(receipt.outcome == "stored" for receipt in answer.results)
    return stored


async def _singles(transport: SocketTransport, events: list[Report], times: list[float]) -> int:
    """Report one by one; how many were stored."""
    stored = 0
    for event in events:
        body = Posted(
            execution_id=event.execution_id,
            event_id=event.event_id,
            event_type=event.event_type,
            step=event.step,
            command_id=event.command_id,
            attempt=event.attempt,
            created_at=event.created_at,
            payload=event.payload,
            worker_id="bench",
        )
        before = time.perf_counter()
        answer = await transport.request("POST", "/api/events", msgspec.json.encode(body), _JSON)
        times.append((time.perf_counter() - before) * 1000)
        stored += msgspec.json.decode(answer.body).get("outcome") == "stored"
    return stored
