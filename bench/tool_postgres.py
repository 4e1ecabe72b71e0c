"""The postgres tool beside its bare driver: ten thousand rows fetched and bound by reference."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
import psycopg
import uvloop
from psycopg.rows import dict_row

from bench.sampling import record
from noetl.blobs.memory import MemoryBlobs
from noetl.local.postgres import Postgres
from noetl.telemetry.redact import Redactor
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.postgres.tool import PostgresTool
from noetl.worker.results import encoded, plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

ROWS = 10_000
QUERY = "select id, name, price, open, at from goods order by id"
MAKE = """create table goods as select n as id, 'name of item ' || n as name,
    n * 1.25::numeric as price, n % 2 = 0 as open,
    timestamptz '2026-01-01' + n * interval '1 minute' as at
    from generate_series(1, 10000) n"""
LIMIT = 1.3
EACH = 5
"""Fetches of each kind in a sample, in turn, so that both meet the same machine."""


@asynccontextmanager
async def database() -> AsyncIterator[dict[str, Any]]:
    """A server of its own, and how to reach it."""
    with tempfile.TemporaryDirectory(prefix="noetl-bench-") as folder:
        home = Path(folder)
        home.chmod(0o711)  # noqa: ASYNC240 - nobody waits here; root's server runs as another user
        server = Postgres(home / "pg")
        await server.start()
        try:
            yield _fields(server.url)
        finally:
            await server.stop()


def _fields(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    where = parse_qs(parts.query)
    return {
        "host": where["host"][0] if where else parts.hostname,
        "port": int(where["port"][0]) if where else parts.port,
        "user": parts.username,
        "password": unquote(parts.password or ""),
        "database": parts.path.removeprefix("/"),
    }


def _context(fields: dict[str, Any]) -> ToolContext:
    async def secrets(_name: str) -> dict[str, Any]:
        return {"type": "postgres", "data": fields}

    return ToolContext(
        execution_id="1", step="s", command_id="c", idempotency_key="k", secrets=secrets,
        deadline=asyncio.get_running_loop().time() + 60, blobs=MemoryBlobs(),
        redactor=Redactor([fields["password"]]),
    )  # fmt: skip


async def _measured(work: Callable[[], Awaitable[int]]) -> float:
    before = time.perf_counter()
    count = await work()
    taken = (time.perf_counter() - before) * 1000
    assert count == ROWS
    return taken


async def _on_database(repeat: int) -> tuple[list[float], list[float], list[float]]:
    """Measure on a loop like that of a worker, which starts nothing as somebody else."""
    async with database() as fields:
        return await asyncio.to_thread(lambda: uvloop.run(_samples(fields, repeat)))


async def _samples(
    fields: dict[str, Any], repeat: int
) -> tuple[list[float], list[float], list[float]]:
    options = {name: fields[name] for name in ("host", "port", "user", "password")}
    raw = await psycopg.AsyncConnection.connect(
        dbname=fields["database"], autocommit=True, row_factory=dict_row, **options
    )
    await raw.execute(MAKE)
    tool, ctx, blobs = PostgresTool(), _context(fields), MemoryBlobs()

    async def kept(body: bytes) -> None:
        """Store a result where it is bound by reference; a tool gives it without secrets."""
        await blobs.put(sha256(body).hexdigest(), body, media_type="application/json")

    async def bare() -> int:
        """What a program without NoETL does: fetch the rows, write them down as JSON."""
        rows = await (await raw.execute(QUERY)).fetchall()
        await kept(msgspec.json.encode(rows))
        return len(rows)

    async def ours() -> int:
        """The tool, and what the worker does with its result."""
        config = {"kind": "postgres", "auth": "db", "command": QUERY}
        data: Any = (await run_tool(tool, config, ctx)).data  # type: ignore[union-attr] - no Parked
        await kept(encoded(plain(data, lambda: None)))
        return int(data["row_count"])

    try:
        for work in (bare, ours, bare, ours):
            await work()
        ratios, theirs, mine = [], [], []
        for _ in range(repeat):
            pairs = [(await _measured(bare), await _measured(ours)) for _ in range(EACH)]
            theirs.append(statistics.median(pair[0] for pair in pairs))
            mine.append(statistics.median(pair[1] for pair in pairs))
            ratios.append(mine[-1] / theirs[-1])
    finally:
        await tool.close()
        await raw.close()
    return ratios, theirs, mine


def records(repeat: int) -> list[dict[str, Any]]:
    """How many times the bare driver, and the milliseconds of both."""
    ratios, theirs, mine = asyncio.run(_on_database(repeat))
    params = {"rows": ROWS, "columns": 5}
    return [
        record("tool-postgres", ratios, unit="x", limit=LIMIT, params=params),
        record("tool-postgres-raw", theirs, unit="ms", params=params),
        record("tool-postgres-fetch", mine, unit="ms", params=params),
    ]
