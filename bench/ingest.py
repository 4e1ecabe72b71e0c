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
from bench.limits import at_least
from bench.scenario import counted, made, on_stack
from noetl.api.client import Client
from noetl.api.commands import Claim
from noetl.api.events import Posted, Report, Reports
from noetl.api.executions import Execute
from noetl.api.sockets import SocketTransport
from noetl.clock import SystemClock, rfc3339
from noetl.ids import Ids

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.stack import Stack
    from noetl.api.commands import Command

PATH = "bench/open"
POOL = "bench"
CONNECTIONS = 8
ITEMS = 500
"""Of one loop; each connection has a loop of its own."""
SINGLE_ITEMS = 100
BATCH = 100
MOST_SLOTS = 64
_JSON = {"content-type": "application/json"}


def records(repeat: int) -> list[dict[str, Any]]:
    """Events a second, in batches and singly."""
    return on_stack(lambda stack: _measure(stack, repeat))


async def _measure(stack: Stack, repeat: int) -> list[dict[str, Any]]:
    batches, singles = Round(stack, ITEMS, _batches), Round(stack, SINGLE_ITEMS, _singles)
    for one in (batches, singles):
        await stack.register(playbooks.open_loop(f"{PATH}{one.items}", one.items))
        await one.sample()
    costs = await counted(stack, "event", batches.events, batches.sample)
    many = [await batches.sample() for _ in range(repeat)]
    few = [await singles.sample() for _ in range(repeat)]
    return [
        _record(stack, "ingest", many, batches, limits=[at_least("p50", 10_000.0, 4_000.0)])
        | {"counted": costs},
        _record(stack, "ingest-single", few, singles, limits=[at_least("p50", 1_500.0, 700.0)]),
    ]


def _record(
    stack: Stack, name: str, samples: list[float], of: Round, *, limits: list[Any]
) -> dict[str, Any]:
    best = max(samples)
    return made(
        stack, name, samples, unit="events/s", better="higher", correct=of.is_right, limits=limits,
        params={"events": of.events, "connections": CONNECTIONS, "batch": of.batch},
        ratios={
            "of_raw_commits_serial": round(best / stack.raw.commits_serial, 3),
            "of_raw_http_on_32": round(best / of.batch / stack.raw.http_on_32, 3),
        },
    )  # fmt: skip


class Round:
    """One loop for each connection, all its commands held, then everything reported at once."""

    def __init__(
        self,
        stack: Stack,
        items: int,
        send: Callable[[SocketTransport, list[Report]], Awaitable[int]],
    ) -> None:
        self.items = items
        self.batch = BATCH if send is _batches else 1
        self.events = 2 * items * CONNECTIONS
        self.is_right = True
        self._stack = stack
        self._send = send
        self._clock = SystemClock()
        self._ids = Ids(self._clock)

    async def sample(self) -> float:
        """Events a second of one round."""
        path = f"{PATH}{self.items}"
        asked = [
            self._stack.client.execute(Execute(path=path, execution_pool=POOL))
            for _ in range(CONNECTIONS)
        ]
        started = [one.execution_id for one in await asyncio.gather(*asked)]
        commands = await self._claimed()
        lanes = [
            [event for command in commands if command.execution_id == name
             for event in self._reports(command)]
            for name in started
        ]  # fmt: skip
        transports = [
            SocketTransport(self._stack.url, token=self._stack.token, connections=1) for _ in lanes
        ]
        try:
            await asyncio.gather(*(one.request("GET", "/livez") for one in transports))
            before = time.perf_counter()
            stored = await asyncio.gather(*map(self._send, transports, lanes))
            taken = time.perf_counter() - before
        finally:
            await asyncio.gather(*(one.close() for one in transports))
        results = await asyncio.gather(*map(self._stack.result, started))
        is_right = sum(stored) == self.events and results == [[1] * self.items] * CONNECTIONS
        self.is_right = self.is_right and is_right
        return self.events / taken

    async def _claimed(self) -> list[Command]:
        """Every command of the loops."""
        found: list[Command] = []
        claim = Claim(worker_id="bench", pool=POOL, free_slots=MOST_SLOTS, wait_seconds=2.0)
        while len(found) < self.items * CONNECTIONS:
            given = (await self._stack.client.claim(claim)).claimed
            if not given:
                raise RuntimeError(f"{len(found)} commands were to be had")
            found += given
        return found

    def _reports(self, command: Command) -> list[Report]:
        """What a worker says about one command."""
        told: list[tuple[str, dict[str, Any]]] = [
            ("command.started", {}),
            ("call.done", {"result": 1}),
        ]
        return [
            Report(
                execution_id=command.execution_id,
                event_id=self._ids.new(),
                event_type=event_type,
                step=command.node_name,
                command_id=command.command_id,
                attempt=command.attempt,
                created_at=rfc3339(self._clock.now()),
                payload=payload,
            )
            for event_type, payload in told
        ]


async def _batches(transport: SocketTransport, events: list[Report]) -> int:
    """Report by the hundred; how many were stored."""
    client = Client(transport)
    stored = 0
    for start in range(0, len(events), BATCH):
        body = Reports(worker_id="bench", pool=POOL, events=tuple(events[start : start + BATCH]))
        answer = await client.report(body)
        stored += sum(receipt.outcome == "stored" for receipt in answer.results)
    return stored


async def _singles(transport: SocketTransport, events: list[Report]) -> int:
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
        answer = await transport.request("POST", "/api/events", msgspec.json.encode(body), _JSON)
        stored += msgspec.json.decode(answer.body).get("outcome") == "stored"
    return stored
