"""Drains by the clock: one run per tick, whichever and however many servers fire it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from noetl.clock import rfc3339
from noetl.dsl.draining import DRAIN
from noetl.engine import events as ev
from noetl.engine.events import OF_SUBSCRIPTIONS
from noetl.engine.subscriptions import TICK_SKIPPED
from noetl.errors import NoetlError
from noetl.server import ticks
from noetl.server.ingest.wanted import Wanted
from noetl.server.subscriptions.documents import TICK, is_scheduled, timetable_of
from noetl.server.subscriptions.logs import Entry, Told

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from noetl.api.executions import Started
    from noetl.dsl.subscription.document import SubscriptionSpec
    from noetl.server.parts import ServerParts
    from noetl.server.subscriptions.documents import Specs
    from noetl.server.subscriptions.logs import SubscriptionLogs
    from noetl.store.base import CatalogEntry
    from noetl.store.subscriptions import SubscriptionRow

    Start = Callable[[Wanted], Awaitable[Started]]

SCOPE: Final = "schedule"
WINDOW_S: Final = 86_400
_log: Final = logging.getLogger(__name__)


class Ticking:
    """Fires ticks."""

    def __init__(
        self, parts: ServerParts, logs: SubscriptionLogs, specs: Specs, start: Start
    ) -> None:
        self._store = parts.store
        self._clock = parts.clock
        self._logs = logs
        self._specs = specs
        self._start = start
        self.changed = asyncio.Event()
        """A tick may be due before the next look."""

    async def fire(self, row: SubscriptionRow) -> str:
        """Start the run of the tick that is due, then wait for the next one; what became of it."""
        entry, spec = await self._specs.of(row)
        if row.state != "ACTIVE" or not is_scheduled(spec):
            await self._move(row, None, [])
            return "off"
        chosen, next_at = ticks.due(timetable_of(row, spec), self._clock.now())
        if not chosen:
            await self._move(row, next_at, [])
            return "early"
        due_at = rfc3339(chosen[-1])
        running = await self._still_running(row)
        if running is not None:
            facts = {"due_at": due_at, "execution_id": running}
            await self._move(row, next_at, [OF_SUBSCRIPTIONS[TICK_SKIPPED](facts=facts)])
            return "skipped"
        try:
            started = await self._start(self._wanted(row, entry, spec, chosen[-1]))
        except NoetlError as refusal:
            if refusal.retryable:
                raise
            about = {"path": row.path, "code": refusal.code, "reason": refusal.message}
            _log.warning("a subscription cannot be drained", extra=about)
            facts = {"due_at": due_at, "code": refusal.code, "reason": refusal.message}
            await self._move(row, next_at, [OF_SUBSCRIPTIONS[TICK_SKIPPED](facts=facts)])
            return "error"
        await self._move(row, next_at, [], last_execution_id=started.execution_id)
        return started.status

    async def _move(
        self, row: SubscriptionRow, next_at: str | None, more: list[ev.SubscriptionEvent],
        **fields: str,
    ) -> None:  # fmt: skip
        """Note that a tick has fired, and when the next one does, unless somebody else has."""

        def make(now: SubscriptionRow) -> Entry:
            if now.next_tick_at is None or now.next_tick_at != row.next_tick_at:
                return Entry()
            told: list[Any] = [ev.TimerFired(timer_key=TICK), *more]
            if next_at is not None and now.state == "ACTIVE":
                told.append(ev.TimerSet(timer_key=TICK, kind=TICK, due_at=next_at))
            changed = {"next_tick_at": next_at if now.state == "ACTIVE" else None, **fields}
            return Entry([Told(event) for event in told], changed)

        await self._logs.append(row.subscription_id, make)

    async def _still_running(self, row: SubscriptionRow) -> str | None:
        """The run of the last tick, if it has not ended."""
        if row.last_execution_id is None:
            return None
        previous = await self._store.executions.get(row.last_execution_id)
        is_over = previous is None or previous.completed_at is not None
        return None if is_over else row.last_execution_id

    def _wanted(
        self, row: SubscriptionRow, entry: CatalogEntry, spec: SubscriptionSpec, tick: datetime
    ) -> Wanted:
        due_at, now = rfc3339(tick), rfc3339(self._clock.now())
        told = {
            "subscription_id": row.subscription_id,
            "path": row.path,
            "catalog_id": entry.catalog_id,
            "version": entry.version,
            "due_at": due_at,
            "fired_at": now,
            "max_drains": spec.max_drains_per_tick,
        }
        return Wanted(
            catalog_id=entry.catalog_id,
            entry=entry,
            workload={DRAIN: told},
            pool=spec.runtime.pool,
            parent_execution_id=row.subscription_id,
            dedup=(row.subscription_id, f"tick:{due_at}", WINDOW_S),
            labels={"subscription": row.path},
            trigger={"kind": SCOPE, "name": row.path, "due_at": due_at},
            created_by=str(row.summary.get("actor", "")),
            tenant_id=row.tenant_id,
            is_drain=True,
        )
