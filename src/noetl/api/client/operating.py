"""Schedules, pools, health, and the platform's own chores."""

from __future__ import annotations

from typing import Any

from noetl.api.client.calls import JSON, Calls, decoded, encode, query, schedule_path, segment
from noetl.api.health import Contract, DashboardStats, ShardsHealth
from noetl.api.internal import (
    Advance,
    Advanced,
    OutboxClaim,
    OutboxClaimed,
    OutboxFailed,
    OutboxMarked,
    OutboxPending,
    OutboxPublished,
    Project,
    Projected,
    Purge,
    Purged,
)
from noetl.api.runtime import Drain, Drained, Pools, ShardInfo
from noetl.api.schedules import (
    Backfill,
    Backfilled,
    Fired,
    Fires,
    Removed,
    Schedule,
    ScheduleBody,
    SchedulePage,
)


class Operations(Calls):
    """Schedules, pools, health, and the platform's own chores."""

    async def pools(self, **filters: str) -> Pools:
        """Known processes and their pools; filters are `kind`, `status` and `name`."""
        return await self._get(query("/api/worker/pools", filters), Pools)

    async def health(self) -> dict[str, Any]:
        """How the server is; told too when it is not well."""
        answer = await self._transport.request("GET", "/api/health", b"", JSON)
        return decoded(answer, dict[str, Any])

    async def schedules(self, **filters: str | int) -> SchedulePage:
        """A page of schedules; filters are the names of the query."""
        return await self._get(query("/api/schedules", filters), SchedulePage)

    async def add_schedule(self, body: ScheduleBody) -> Schedule:
        """Make a schedule."""
        return await self._post("/api/schedules", body, Schedule)

    async def schedule(self, schedule_id: str) -> Schedule:
        """One schedule."""
        return await self._get(schedule_path(schedule_id), Schedule)

    async def change_schedule(self, schedule_id: str, body: ScheduleBody) -> Schedule:
        """Write a schedule anew."""
        answer = await self._call("PUT", schedule_path(schedule_id), encode(body))
        return decoded(answer, Schedule)

    async def remove_schedule(self, schedule_id: str) -> Removed:
        """Forget a schedule."""
        return decoded(await self._call("DELETE", schedule_path(schedule_id)), Removed)

    async def pause_schedule(self, schedule_id: str) -> Schedule:
        """Stop a schedule from firing."""
        return decoded(await self._call("POST", f"{schedule_path(schedule_id)}/pause"), Schedule)

    async def resume_schedule(self, schedule_id: str) -> Schedule:
        """Let a schedule fire again."""
        return decoded(await self._call("POST", f"{schedule_path(schedule_id)}/resume"), Schedule)

    async def trigger_schedule(self, schedule_id: str) -> Fired:
        """Start a run of a schedule now."""
        return decoded(await self._call("POST", f"{schedule_path(schedule_id)}/trigger"), Fired)

    async def backfill_schedule(self, schedule_id: str, body: Backfill) -> Backfilled:
        """Start the runs of times that have passed."""
        return await self._post(f"{schedule_path(schedule_id)}/backfill", body, Backfilled)

    async def schedule_fires(self, schedule_id: str, count: int = 10) -> Fires:
        """When a schedule fires next."""
        return await self._get(query(f"{schedule_path(schedule_id)}/next", {"count": count}), Fires)

    async def drain_pool(self, pool: str, worker: str | None = None) -> Drained:
        """Tell the workers of a pool, or one of them, to take on nothing more."""
        path = f"/api/worker/pools/{segment(pool)}/drain"
        return await self._post(path, Drain(worker=worker), Drained)

    async def shard_info(self, execution_id: str, shard_count: int | None = None) -> ShardInfo:
        """Which shard a run belongs to."""
        asked = {"execution_id": execution_id, "shard_count": shard_count}
        return await self._get(query("/api/runtime/shard-info", asked), ShardInfo)

    async def contract(self) -> Contract:
        """What can be relied on."""
        return await self._get("/api/runtime/contract", Contract)

    async def shards_health(self) -> ShardsHealth:
        """How each database is."""
        return await self._get("/api/health/shards", ShardsHealth)

    async def dashboard(self) -> DashboardStats:
        """Figures for a first look."""
        return await self._get("/api/dashboard/stats", DashboardStats)

    async def pool_status(self) -> dict[str, Any]:
        """The connections of the server to its database."""
        return await self._get("/api/pool/status", dict[str, Any])

    async def server_status(self) -> dict[str, Any]:
        """What the machine and the process of the server use."""
        return await self._get("/api/status", dict[str, Any])

    async def claim_outbox(self, limit: int = 100) -> OutboxClaimed:
        """Take messages that are to be published."""
        path = "/api/internal/outbox/claim"
        return await self._post(path, OutboxClaim(limit=limit), OutboxClaimed)

    async def outbox_published(self, body: OutboxPublished) -> OutboxMarked:
        """Note messages that were published."""
        return await self._post("/api/internal/outbox/mark-published", body, OutboxMarked)

    async def outbox_failed(self, body: OutboxFailed) -> OutboxMarked:
        """Give back a message that could not be published."""
        return await self._post("/api/internal/outbox/mark-failed", body, OutboxMarked)

    async def outbox_pending(self) -> OutboxPending:
        """Count the messages that could be taken now."""
        return await self._get("/api/internal/outbox/pending-count", OutboxPending)

    async def project(self, body: Project) -> Projected:
        """Import events of other installations."""
        return await self._post("/api/internal/events/project", body, Projected)

    async def advance(self, body: Advance) -> Advanced:
        """Make read models anew from their logs."""
        return await self._post("/api/internal/projection/advance", body, Advanced)

    async def purge(self, body: Purge) -> Purged:
        """Delete what is old, or say what would be."""
        return await self._post("/api/internal/cleanup/purge", body, Purged)
