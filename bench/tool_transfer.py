"""The transfer tool beside bare COPY piping, and what a million rows cost in memory."""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from bench.limits import at_least, at_most
from bench.processes import peak_mib
from bench.sampling import record
from bench.tool_postgres import database
from noetl.clock import SystemClock
from noetl.telemetry.redact import Redactor
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.duckdb.engine import Engine
from noetl.tools.http.egress import Egress
from noetl.tools.http.tool import HttpTool
from noetl.tools.transfer.sides import Sides
from noetl.tools.transfer.tool import TransferTool

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

ROWS = 200_000
MILLION = 1_000_000
RATE = 100_000.0
SHARE = 0.5
MOST_MIB = 300.0
MAKE = """create table goods as select n as id, 'name of item ' || n as name,
    n * 1.25::float8 as price, n % 2 = 0 as open,
    timestamptz '2026-01-01' + n * interval '1 second' as at
    from generate_series(1, 200000) n"""
MANY = """select range as id, 'name of item ' || range as name, range * 1.25::double as price,
    range % 2 = 0 as open, timestamp '2026-01-01' + to_seconds(range) as at from range(1000000)"""
AGAIN = "select g.* from goods g, generate_series(1, 5)"


async def _move(fields: dict[str, Any], source: dict[str, Any], mark: str) -> float:
    """Rows a second of one transfer into an empty table."""

    async def secrets(_name: str) -> dict[str, Any]:
        return {"type": "postgres", "data": fields}

    with tempfile.TemporaryDirectory(prefix="noetl-bench-") as folder:
        engine, http = Engine((Path(folder),)), HttpTool(Egress(), SystemClock())
        tool = TransferTool(Sides(duckdb=engine, http=http), SystemClock())
        ctx = ToolContext(
            execution_id="1", step="s", command_id="c", idempotency_key=mark, secrets=secrets,
            deadline=asyncio.get_running_loop().time() + 600,
            redactor=Redactor([fields["password"]]),
        )  # fmt: skip
        target = {"kind": "postgres", "auth": "db", "table": "kept"}
        before = time.perf_counter()
        outcome: Any = await run_tool(
            tool, {"kind": "transfer", "source": source, "target": target}, ctx
        )
        taken = time.perf_counter() - before
        await engine.close()
    assert outcome.status == "ok", outcome.error
    return float(outcome.data["rows_transferred"]) / taken


def _bare(connections: tuple[psycopg.Connection[Any], psycopg.Connection[Any]]) -> float:
    """Rows a second of what a program without NoETL does: the bytes of one COPY into another."""
    source, target = connections
    before = time.perf_counter()
    with (
        source.cursor().copy("copy (select * from goods) to stdout (format binary)") as got,
        target.cursor().copy("copy kept from stdin (format binary)") as put,
    ):
        for piece in got:
            put.write(piece)
    return ROWS / (time.perf_counter() - before)


def _peak(fields: dict[str, Any], source: dict[str, Any], told: Connection) -> None:
    """Move a million rows in a process of its own, and tell the most memory that it had."""
    pid = multiprocessing.current_process().pid
    assert pid is not None
    rate = asyncio.run(_move(fields, source, f"million {source['kind']}"))
    told.send((rate, peak_mib(pid)))


async def _million(fields: dict[str, Any], source: dict[str, Any]) -> tuple[float, float]:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_peak, args=(fields, source, theirs))
    process.start()
    theirs.close()
    try:
        found: tuple[float, float] = await asyncio.to_thread(ours.recv)
    finally:
        await asyncio.to_thread(process.join, 60)
    return found


async def _measured(repeat: int) -> dict[str, Any]:
    copy = {"kind": "postgres", "auth": "db", "query": "select * from goods"}
    many = {
        "postgres": {**copy, "query": AGAIN},
        "duckdb": {"kind": "duckdb", "query": MANY},
    }
    async with database() as fields:
        options = {name: fields[name] for name in ("host", "port", "user", "password")}
        options |= {"dbname": fields["database"], "autocommit": True}
        with psycopg.connect(**options) as one, psycopg.connect(**options) as other:
            one.execute(MAKE)
            one.execute("create table kept (like goods)")
            bare, ours = [], []
            for number in range(repeat):
                one.execute("truncate kept")
                bare.append(await asyncio.to_thread(_bare, (one, other)))
                one.execute("truncate kept")
                ours.append(await _move(fields, copy, f"run {number}"))
                found = one.execute("select count(*), sum(id) from kept").fetchone()
                assert found == (ROWS, ROWS * (ROWS + 1) // 2)
            peaks = {}
            for kind, source in many.items():
                one.execute("truncate kept")
                peaks[kind] = await _million(fields, source)
                assert one.execute("select count(*) from kept").fetchone() == (MILLION,)
    return {"bare": bare, "ours": ours, "peaks": peaks}


def records(repeat: int) -> list[dict[str, Any]]:
    """Rows a second of both, and the memory of a million rows."""
    found = asyncio.run(_measured(repeat))
    pairs = zip(found["ours"], found["bare"], strict=True)
    share = round(statistics.median(mine / theirs for mine, theirs in pairs), 3)
    rate = statistics.median(found["ours"])
    held = round(max(rate / RATE, share / SHARE), 3)
    params = {"rows": ROWS, "columns": 5}
    made = [
        record(
            "tool-transfer", found["ours"], unit="rows/s", better="higher", params=params,
            share_of_copy=share, held=held, limits=[at_least("held", 1.0, 1.0)],
        ),
        record(
            "tool-transfer-copy", found["bare"], unit="rows/s", better="higher", params=params
        ),
    ]  # fmt: skip
    for kind, (speed, peak) in found["peaks"].items():
        params = {"rows": MILLION, "columns": 5, "from": kind, "rows_per_s": round(speed)}
        made.append(
            record(
                f"tool-transfer-memory-{kind}", [peak], unit="MiB", params=params,
                limits=[at_most("best", MOST_MIB, MOST_MIB)],
            )
        )  # fmt: skip
    return made
