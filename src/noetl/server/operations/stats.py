"""Figures for a first look: each is measured, none is read from a log."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from noetl.api.health import (
    DashboardStats,
    KeptMonth,
    QueueCount,
    RunCounts,
    ShardHealth,
    ShardsHealth,
)
from noetl.clock import rfc3339
from noetl.edge.moments import from_now, seconds_until
from noetl.errors import NoetlError
from noetl.server.fleet.workers import WORKER

if TYPE_CHECKING:
    from noetl.server.fleet.workers import Workers
    from noetl.server.parts import ServerParts

DAY_S: Final = 86_400.0
KEPT_S: Final = 5.0
"""How old a figure may be that many look at."""
MOST_TENANTS: Final = 1_000
LIVE: Final = ("PENDING", "RUNNING", "PAUSED")
ENDED: Final = ("COMPLETED", "FAILED", "CANCELLED")


class Stats:
    """Counts for a moment."""

    def __init__(self, parts: ServerParts, workers: Workers) -> None:
        self._store = parts.store
        self._clock = parts.clock
        self._retention_days = parts.retention_days
        self._workers = workers
        self._kept: dict[str, tuple[float, DashboardStats]] = {}

    async def dashboard(self, tenant_id: str) -> DashboardStats:
        """What a tenant has, and what the workers do."""
        now = self._clock.monotonic()
        kept = self._kept.get(tenant_id)
        if kept is not None and now < kept[0]:
            return kept[1]
        made = await self._measured(tenant_id)
        if len(self._kept) >= MOST_TENANTS:
            self._kept.clear()
        self._kept[tenant_id] = (now + KEPT_S, made)
        return made

    async def _measured(self, tenant_id: str) -> DashboardStats:
        since = from_now(self._clock, -DAY_S)
        figures = await self._store.projections.figures(tenant_id, since)
        processes = (await self._workers.pools(kind=WORKER)).items
        queues = await self._store.commands.queues()
        return DashboardStats(
            at=rfc3339(self._clock.now()),
            executions=RunCounts(
                live=dict.fromkeys(LIVE, 0) | figures.live,
                ended_24h=dict.fromkeys(ENDED, 0) | figures.ended,
                total_estimated=figures.runs_estimated,
            ),
            playbooks=figures.playbooks,
            workers=dict(Counter(row.status for row in processes)),
            queues=tuple(
                QueueCount(
                    pool=queue.pool,
                    pending=queue.pending,
                    in_flight=queue.claimed,
                    oldest_pending_at=queue.oldest_at,
                )
                for queue in queues
            ),
        )

    async def shards(self) -> ShardsHealth:
        """How each database is."""
        return ShardsHealth(
            items=(await self._shard(0, "shard"), await self._shard(None, "cluster"))
        )

    async def _shard(self, shard: int | None, role: str) -> ShardHealth:
        try:
            return await self._well(shard, role)
        except NoetlError as fault:
            if not fault.retryable:
                raise
            return ShardHealth(shard=shard, role=role, status="down")

    async def _well(self, shard: int | None, role: str) -> ShardHealth:
        began = self._clock.monotonic()
        condition = await self._store.upkeep.condition()
        took = self._clock.monotonic() - began
        now = rfc3339(self._clock.now())
        backlog = await self._store.outbox.backlog(now, committed_before=now)
        oldest = backlog.oldest_at
        kept: tuple[KeptMonth, ...] = ()
        if self._retention_days and shard is not None:
            before = from_now(self._clock, -self._retention_days * DAY_S)
            kept = tuple(
                KeptMonth(partition=part.name, blockers=part.blockers)
                for part in await self._store.upkeep.partitions(before)
                if part.blockers
            )
        return ShardHealth(
            shard=shard,
            role=role,
            status="ok",
            latency_ms=round(took * 1000, 3),
            lag=0.0 if oldest is None else max(0.0, round(-seconds_until(self._clock, oldest), 3)),
            migrations=condition.migration,
            partitions_ahead=condition.months_ahead,
            default_rows=condition.default_rows,
            kept_partitions=kept,
        )
