"""What a stack has counted: transactions, log bytes and rows of the database, requests of a server.

Transactions that wrote and bytes of the log are exact at once. Rows are counted by each session of
the database on its own and told by it up to ten seconds later, so they are waited for.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncpg

    from noetl.api.http import Transport

SETTLED_S: Final = 15.0
_LOOK_AGAIN_S: Final = 1.05
"""Sessions tell at the end of a transaction, at most once a second."""
_NUDGES: Final = 16
_AT: Final = """
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xid,
       (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint AS wal_bytes
"""
_TOLD: Final = """
SELECT (SELECT coalesce(sum(n_tup_ins), 0) FROM pg_stat_user_tables
        WHERE schemaname = 'noetl')::bigint AS inserted,
       (SELECT coalesce(sum(n_tup_upd), 0) FROM pg_stat_user_tables
        WHERE schemaname = 'noetl')::bigint AS updated,
       (SELECT coalesce(sum(n_tup_del), 0) FROM pg_stat_user_tables
        WHERE schemaname = 'noetl')::bigint AS deleted,
       (SELECT xact_commit FROM pg_stat_database
        WHERE datname = current_database())::bigint AS transactions
"""
_EVENTS_TOLD: Final = """
SELECT coalesce(sum(n_tup_ins), 0)::bigint FROM pg_stat_user_tables
WHERE schemaname = 'noetl' AND relname LIKE 'event\\_%'
"""
_EVENTS: Final = "SELECT count(*) FROM noetl.event"
_SERIES: Final = re.compile(r"^noetl_write_requests_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
STANDING: Final = ("/api/worker/pool/heartbeat", "/api/commands/heartbeat", "/api/logs/batch")
"""Requests that come by the clock, and not by the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Everything at one moment."""

    xid: int
    wal_bytes: int
    inserted: int
    updated: int
    deleted: int
    transactions: int
    requests: dict[str, int]


class Counters:
    """Reads what one stack has counted."""

    def __init__(self, connection: asyncpg.Connection[Any], transport: Transport) -> None:
        self._connection = connection
        self._transport = transport

    async def read(self) -> Counts:
        """Everything at this moment, when all sessions have told their rows."""
        now = await self._connection.fetchrow(_AT)
        requests = await self._requests()
        await self._settle()
        told = await self._connection.fetchrow(_TOLD)
        if now is None or told is None:
            raise RuntimeError("the database told nothing about itself")
        return Counts(**dict(now), **dict(told), requests=requests)

    async def _settle(self) -> None:
        """Wait until the events that are there have been told."""
        ends = time.perf_counter() + SETTLED_S
        while time.perf_counter() < ends:
            await asyncio.sleep(_LOOK_AGAIN_S)
            there = await self._connection.fetchval(_EVENTS)
            if await self._connection.fetchval(_EVENTS_TOLD) >= there:
                return
            # A session that has something to tell does so at the end of its next transaction.
            asks = [self._transport.request("GET", "/api/executions/1") for _ in range(_NUDGES)]
            await asyncio.gather(*asks)
        raise RuntimeError(f"the sessions of the database told nothing for {SETTLED_S:g} s")

    async def _requests(self) -> dict[str, int]:
        answer = await self._transport.request("GET", "/metrics")
        return requests_of(answer.body.decode())


def requests_of(text: str) -> dict[str, int]:
    """Requests by route, from the metrics of a server; those that come by the clock left out.

    Those that were not answered well stand apart: `/api/execute 4xx`.
    """
    found: dict[str, int] = {}
    for series, value in _SERIES.findall(text):
        labels = dict(_LABEL.findall(series))
        if labels["endpoint"] not in STANDING:
            ending = "" if labels["code"] == "2xx" else f" {labels['code']}"
            found[labels["endpoint"] + ending] = int(float(value))
    return found


def per(unit: str, before: Counts, after: Counts, count: int) -> dict[str, Any]:
    """What one of `count` units cost: `commits_per_step` and so on."""
    requests = {
        path: asked - before.requests.get(path, 0)
        for path, asked in after.requests.items()
        if asked != before.requests.get(path, 0)
    }

    def each(total: int) -> float:
        return round(total / count, 3)

    return {
        f"commits_per_{unit}": each(after.xid - before.xid),
        f"round_trips_per_{unit}": each(sum(requests.values())),
        f"rows_inserted_per_{unit}": each(after.inserted - before.inserted),
        f"rows_updated_per_{unit}": each(after.updated - before.updated),
        f"rows_deleted_per_{unit}": each(after.deleted - before.deleted),
        f"wal_bytes_per_{unit}": each(after.wal_bytes - before.wal_bytes),
        f"transactions_per_{unit}": each(after.transactions - before.transactions),
        "requests": requests,
        "of": {unit: count},
    }
