"""Raw limits of the machine, on the very database and broker that a scenario uses.

Rates are per second; `commits_40_ms` is what forty single-row commits in line take.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import nats
from nats.js.api import StorageType, StreamConfig

from bench.bare import BODY, bare
from noetl.api.sockets import SocketTransport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LINE: Final = 40
CONNECTIONS: Final = 32
SECONDS: Final = 0.6
STREAM: Final = "BENCH_RAW"
SUBJECT: Final = "bench.raw"
PIPELINE: Final = 256
BATCH: Final = 100
_BODY: Final = "x" * 200
_MAKE: Final = "CREATE TABLE IF NOT EXISTS bench_raw (id bigserial PRIMARY KEY, body text NOT NULL)"
_INSERT: Final = "INSERT INTO bench_raw (body) VALUES ($1)"
_INSERT_MANY: Final = "INSERT INTO bench_raw (body) SELECT unnest($1::text[])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """What the machine can do at most."""

    commits_serial: float
    commits_on_32: float
    inserts_batched: float
    """Rows, a hundred in each commit, on one connection."""
    http_serial: float
    http_on_32: float
    jetstream_serial: float
    jetstream_pipelined: float

    def as_json(self) -> dict[str, float]:
        """As it stands in a record."""
        return {name: round(value, 1) for name, value in asdict(self).items()}


class Commits:
    """Single-row commits in line, on one connection, in a table of their own."""

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection

    async def open(self) -> None:
        """Make the table."""
        await self._connection.execute(_MAKE)
        await self.line_ms()

    async def line_ms(self, lines: int = 5) -> float:
        """The median time of forty commits in line."""
        insert = await self._connection.prepare(_INSERT)
        times = []
        for _ in range(lines):
            before = time.perf_counter()
            for _ in range(LINE):
                await insert.fetch(_BODY)
            times.append((time.perf_counter() - before) * 1000)
        return statistics.median(times)


async def measure(database_url: str, nats_url: str) -> Raw:
    """All raw limits, one after the other."""
    serial, parallel, batched = await _commits(database_url)
    http_serial, http_parallel = await _http()
    acks, pipelined = await _jetstream(nats_url)
    return Raw(
        commits_serial=serial,
        commits_on_32=parallel,
        inserts_batched=batched,
        http_serial=http_serial,
        http_on_32=http_parallel,
        jetstream_serial=acks,
        jetstream_pipelined=pipelined,
    )


async def _commits(url: str) -> tuple[float, float, float]:
    connections = await asyncio.gather(*(asyncpg.connect(url) for _ in range(CONNECTIONS)))
    try:
        await connections[0].execute(_MAKE)
        inserts = [await one.prepare(_INSERT) for one in connections]

        def commit(lane: int) -> Callable[[], Awaitable[object]]:
            return lambda: inserts[lane].fetch(_BODY)

        many = await connections[0].prepare(_INSERT_MANY)
        serial = await rate(commit(0))
        batches = await rate(lambda: many.fetch([_BODY] * BATCH))
        parallel = await rate(*(commit(lane) for lane in range(CONNECTIONS)))
    finally:
        await asyncio.gather(*(one.close() for one in connections))
    return serial, parallel, batches * BATCH


async def _http() -> tuple[float, float]:
    async with bare() as url:
        transport = SocketTransport(url, connections=CONNECTIONS)

        async def trip() -> None:
            answer = await transport.request("POST", "/", b'{"a": 1}')
            assert answer.body == BODY

        try:
            await trip()
            return await rate(trip), await rate(*([trip] * CONNECTIONS))
        finally:
            await transport.close()


async def _jetstream(url: str) -> tuple[float, float]:
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        await stream.add_stream(
            StreamConfig(name=STREAM, subjects=[SUBJECT], storage=StorageType.FILE)
        )

        async def publish() -> None:
            await stream.publish(SUBJECT, _BODY.encode())

        try:
            return await rate(publish), await rate(*([publish] * PIPELINE))
        finally:
            await stream.delete_stream(STREAM)
    finally:
        await client.close()


async def rate(*lanes: Callable[[], Awaitable[object]], seconds: float = SECONDS) -> float:
    """How often a second, when each lane does its own again and again."""
    began = time.perf_counter()
    ends = began + seconds
    done = 0

    async def run(work: Callable[[], Awaitable[object]]) -> None:
        nonlocal done
        while time.perf_counter() < ends:
            await work()
            done += 1

    await asyncio.gather(*map(run, lanes))
    return done / (time.perf_counter() - began)
