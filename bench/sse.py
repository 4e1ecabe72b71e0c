"""A thousand event streams at once: how late after its commit a client hears of an event.

Pretended workers report fifty events a second on each of ten runs, and a hundred clients read each
run by its event stream of the server. Every client has to hear of every event once and in order.
The delay is from the time that the log gives an event, just before its commit, to the arrival of
its text; streams are written to every 50 ms at most, which is part of it. The same at a gateway,
with two hundred WebSockets and its memory, is the scenario `gateway`.
"""

from __future__ import annotations

import asyncio
import re
import time
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from bench import playbooks
from bench.limits import at_most
from bench.pretend import POOL, Pretender
from bench.processes import cpu_s, rss_mib
from bench.scenario import made, on_stack
from noetl.api.commands import Heartbeat, Held
from noetl.api.executions import Execute
from noetl.api.identity import NewAccount, NewToken

if TYPE_CHECKING:
    from bench.stack import Stack
    from noetl.api.commands import Command

PATH: Final = "bench/told"
RUNS: Final = 10
READERS: Final = 1_000
OF_ACCOUNT: Final = 200
"""Streams that one account may have."""
RATE: Final = 50
"""Events a second of each run."""
SECONDS: Final = 10.0
LONG_S: Final = 60.0
WARM_UP_S: Final = 2.0
BEAT_S: Final = 5.0
LAST_S: Final = 60.0
AT_ONCE: Final = 50
MOST_MS: Final = (200.0, 500.0)
_ID: Final = re.compile(rb"^id: (\d+)\n", re.MULTILINE)
_PAGE: Final = 1_000
_NOW: Final = time.time  # noqa: TID251 - compared with the times in the log


def records(repeat: int, *, is_long: bool = False) -> list[dict[str, Any]]:
    """Milliseconds from an event to a client."""
    del repeat  # time is its own repetition
    return on_stack(lambda stack: _measure(stack, LONG_S if is_long else SECONDS))


async def _measure(stack: Stack, seconds: float) -> list[dict[str, Any]]:
    one = {"step": "start", "tool": playbooks.python("result = 1")}
    await stack.register(playbooks.playbook(PATH, one))
    asked = [stack.client.execute(Execute(path=PATH, execution_pool=POOL)) for _ in range(RUNS)]
    runs = [started.execution_id for started in await asyncio.gather(*asked)]
    worker = Pretender()
    commands = await worker.claim(stack.client, RUNS)
    readers = await _readers(stack, runs)
    server = stack.pids["server"]
    try:
        await _told(stack, worker, commands, WARM_UP_S)
        before, since, memory = cpu_s([server]), _NOW(), rss_mib(server)
        late = await _told(stack, worker, commands, seconds)
        used = (cpu_s([server]) - before) / (_NOW() - since)
        memory = rss_mib(server) - memory
        for command in commands:
            await stack.client.report(worker.batch(worker.done(command)))
        async with asyncio.timeout(LAST_S):
            await asyncio.gather(*(reader.ended.wait() for reader in readers))
    finally:
        for reader in readers:
            reader.close()
    logs = {run: await _log(stack, run) for run in runs}
    whole = [reader for reader in readers if reader.ids == list(logs[reader.run])]
    delays = [
        (at - logs[reader.run][name]) * 1000
        for reader in whole
        for name, at in zip(reader.ids, reader.times, strict=True)
        if logs[reader.run][name] > since
    ]
    samples = sorted(delays)[:: max(1, len(delays) // 2_000)]
    return [
        made(
            stack, "sse", samples or [0.0], unit="ms", correct=len(whole) == READERS,
            limits=[at_most("p99", *MOST_MS), at_most("lost", 0, 0)],
            lost=READERS - len(whole), deliveries=len(delays),
            deliveries_per_s=round(len(delays) / seconds),
            server={"cores": round(used, 3), "mib": round(memory, 1)}, reported_late_s=late,
            params={"clients": READERS, "runs": RUNS, "events_per_s": RATE, "websockets": 0},
            ratios={
                "raw_round_trips": round(median(samples or [0]) / 1000 * stack.raw.http_serial, 2),
                "of_raw_http_on_32": round(len(delays) / seconds / stack.raw.http_on_32, 3),
            },
        )
    ]  # fmt: skip


async def _told(stack: Stack, worker: Pretender, commands: list[Command], seconds: float) -> float:
    """Report at a steady pace on every run; by how many seconds the pace was missed."""
    beat = asyncio.ensure_future(_beat(stack, worker, commands))
    began = time.perf_counter()

    async def tell(command: Command) -> float:
        for number in range(round(RATE * seconds)):
            await asyncio.sleep(began + number / RATE - time.perf_counter())
            progress = {"percent": number % 100, "message": "on it"}
            event = worker.report(command, "step.progress", progress)
            answer = await stack.client.report(worker.batch([event]))
            if answer.results[0].outcome != "stored":
                raise RuntimeError(f"an event was not stored: {answer.results[0]}")
        return time.perf_counter() - began - seconds

    try:
        late = await asyncio.gather(*map(tell, commands))
    finally:
        beat.cancel()
        await asyncio.gather(beat, return_exceptions=True)
    return round(max(0.0, *late), 2)


async def _beat(stack: Stack, worker: Pretender, commands: list[Command]) -> None:
    """Keep the leases."""
    held = tuple(Held(command_id=one.command_id, attempt=one.attempt) for one in commands)
    while True:
        await stack.client.heartbeat(Heartbeat(worker_id=worker.name, commands=held))
        await asyncio.sleep(BEAT_S)


async def _log(stack: Stack, run: str) -> dict[bytes, float]:
    """The times of the events of a run by their ids, in the log's order."""
    found: dict[bytes, float] = {}
    after = 0
    while True:
        page = await stack.client.events(run, after, _PAGE)
        for row in page.items:
            at = datetime.fromisoformat(row["created_at"]).timestamp()
            found[row["event_id"].encode()] = at
        if not page.items or page.next_cursor is None:
            return found
        after = page.items[-1]["seq"]


class Reader(asyncio.Protocol):
    """One client: notes what came when, and reads no more than that."""

    def __init__(self, run: str, head: bytes) -> None:
        self.run = run
        self.ids: list[bytes] = []
        self.times: list[float] = []
        self.ended = asyncio.Event()
        self._head = head
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._head)

    def data_received(self, data: bytes) -> None:
        """Note the events whose heads are whole."""
        text = self._rest + data
        end = text.rfind(b"\n") + 1
        found = _ID.findall(text[:end])
        self._rest = text[end:]
        self.ids += found
        self.times += [_NOW()] * len(found)
        if b"event: end\n" in text:
            self.ended.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """There is no more."""
        del exc
        self.ended.set()

    def close(self) -> None:
        """Leave."""
        if self._transport is not None:
            self._transport.abort()


async def _readers(stack: Stack, runs: list[str]) -> list[Reader]:
    """All clients, a hundred of each run, of as many accounts as that takes."""
    place = urlsplit(stack.url)
    tokens = [await _token(stack, number) for number in range(READERS // OF_ACCOUNT)]
    loop = asyncio.get_running_loop()
    room = asyncio.Semaphore(AT_ONCE)

    async def connect(number: int) -> Reader:
        run = runs[number % RUNS]
        token = tokens[number // OF_ACCOUNT]
        head = (
            f"GET /api/executions/{run}/events/stream HTTP/1.1\r\nHost: {place.netloc}\r\n"
            f"Authorization: Bearer {token}\r\n\r\n"
        )
        async with room:
            _, reader = await loop.create_connection(
                lambda: Reader(run, head.encode()), place.hostname, place.port
            )
        return reader

    readers = list(await asyncio.gather(*map(connect, range(READERS))))
    async with asyncio.timeout(LAST_S):
        while not all(reader.ids for reader in readers):  # noqa: ASYNC110 - another process tells
            await asyncio.sleep(0.05)
    return readers


async def _token(stack: Stack, number: int) -> str:
    body = NewAccount(subject=f"bench-{number}", kind="service", roles=("viewer",))
    account = await stack.client.add_user(body)
    named = NewToken(name="bench", account_id=account.account_id)
    return (await stack.client.add_token(named)).token
