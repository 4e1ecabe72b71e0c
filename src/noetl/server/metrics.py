"""Every number that the server tells about itself; each attribute is one series of the contract."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, get_args

from noetl import __version__
from noetl.api.callbacks import ContainerState
from noetl.bus.base import BusGone
from noetl.clock import rfc3339
from noetl.edge.moments import seconds_until
from noetl.engine.events import KINDS
from noetl.errors import NoetlError
from noetl.server.access.entry import OUTCOMES as AUTH_OUTCOMES
from noetl.server.chores import Chores
from noetl.telemetry.metrics import SECONDS, SIZES, SPANS, Metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from noetl.server.access.entry import Access
    from noetl.server.parts import ServerParts

ACTIVE: Final = ("PENDING", "RUNNING", "PAUSED")
FINISHED: Final = ("COMPLETED", "FAILED", "CANCELLED")
MEASURED_S: Final = 5.0
"""How old the numbers that the store counts may be."""
_RUN_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 3600.0, 86400.0)
_LATE_SECONDS: Final = (*SECONDS, 60.0, 300.0, 1800.0)
_EVENT: Final = {"event_type": tuple(KINDS)}
_OUTCOMES: Final = ("stored", "duplicate", "late", "rejected")
_PHASES: Final = ("queue", "fill", "commit")
_CLASSES: Final = ("2xx", "3xx", "4xx", "5xx")
_TIMERS: Final = (
    "wait", "retry", "park_deadline", "frame", "step_timeout", "execution_timeout",
    "start",
)  # fmt: skip
_POOLS: Final = ("shared", "system")
_log: Final = logging.getLogger(__name__)


class ServerMetrics(Chores):
    """The series of a server, and the one way to count in them: their own methods."""

    def __init__(self) -> None:  # noqa: PLR0915 - the contract, one statement per series
        self.all = made = Metrics("server", __version__)
        self._measured_at: float | None = None
        super().__init__(made)
        self.lines: Mapping[str, int] = {}
        """Lines of the log by level, as whoever writes it has counted."""
        self.spans: Mapping[str, int] = {}
        """Spans by what became of them, as whoever exports them has counted."""

        # Ingest and engine
        self.events_ingested = made.counter(
            "events_ingested_total",
            "Events of reports, by what became of them.",
            {**_EVENT, "status": _OUTCOMES},
        )
        self.event_ingest_duration = made.histogram(
            "event_ingest_duration_seconds", "From the arrival of a write to its answer."
        )
        self.event_ingest_phase = made.histogram(
            "event_ingest_phase_seconds", "Parts of that time.", {"phase": _PHASES}
        )
        self.ingest_batch_events = made.histogram(
            "ingest_batch_events", "Events of one commit.", bounds=SIZES
        )
        self.ingest_queue_depth = made.gauge("ingest_queue_depth", "Writes that wait.")
        self.ingest_conflicts = made.counter(
            "ingest_conflicts_total", "Runs that another server had written to first."
        )
        self.commit_duration = made.histogram("commit_duration_seconds", "One commit of the store.")
        self.engine_fold = made.histogram("engine_fold_seconds", "Folding the events of one turn.")
        self.engine_decide = made.histogram("engine_decide_seconds", "Deciding one turn.")
        self.engine_decisions = made.counter(
            "engine_decisions_total", "Events that the engine has decided.", _EVENT
        )
        self.engine_errors = made.counter(
            "engine_errors_total", "Turns that failed by a defect of the engine."
        )

        # Requests
        self.write_requests = made.counter(
            "write_requests_total",
            "Writes by route and class of answer.",
            {"endpoint": (), "code": ()},
        )
        self.write_request_duration = made.histogram(
            "write_request_duration_seconds", "How long a write took.", {"endpoint": ()}
        )
        self.writes_in_flight = made.gauge("writes_in_flight", "Writes that are not answered yet.")
        self.execute_outcomes = made.counter(
            "execute_outcomes_total",
            "Runs that were asked for, by how and what became of it.",
            {
                "entry": ("api", "batch", "schedule", "child"),
                "outcome": ("started", "duplicate", "error"),
            },
        )
        self.execute_batch_size = made.histogram(
            "execute_batch_size", "Items of one execute/batch.", bounds=SIZES
        )
        self.auth = made.counter(
            "auth_total", "Requests let in or refused, by outcome.", {"outcome": AUTH_OUTCOMES}
        )
        self.sse_streams = made.gauge("sse_streams", "Open event streams.")

        # Runs
        self.executions_active = made.gauge(
            "executions_active", "Runs that have not ended.", {"status": ACTIVE}
        )
        self.executions_finished = made.counter(
            "executions_finished_total", "Runs that have ended.", {"status": FINISHED}
        )
        self.execution_duration = made.histogram(
            "execution_duration_seconds",
            "From the start of a run to its end.",
            {"status": FINISHED},
            bounds=_RUN_SECONDS,
        )

        # Commands
        self.commands_processed = made.counter(
            "commands_processed_total",
            "Commands that have ended.",
            {"pool": _POOLS, "outcome": FINISHED},
        )
        self.command_claim_duration = made.histogram(
            "command_claim_duration_seconds", "One claim that was not parked."
        )
        self.commands_pending = made.gauge(
            "commands_pending", "Commands that nobody has claimed.", {"pool": _POOLS}
        )
        self.command_publish = made.counter(
            "command_publish_total",
            "Commands made known: by hint, in a reply, to a parked claim, or hinted again.",
            {"route": ("hint", "reply", "parked", "sweep"), "pool": _POOLS},
        )
        self.command_dispatch = made.histogram(
            "command_dispatch_seconds",
            "From issue to claim.",
            {"pool": _POOLS},
            bounds=_LATE_SECONDS,
        )
        self.command_late = made.counter(
            "command_late_total", "Reports of attempts that had been given up."
        )
        self.lease_lost = made.counter(
            "lease_lost_total", "Leases that ended without a report.", {"pool": _POOLS}
        )
        self.sweeper_republished = made.counter(
            "sweeper_republished_total", "Hints that were repeated."
        )
        self.stalled = made.counter("stalled_total", "Runs that nothing could bring forward.")

        # Time
        self.timer_lag = made.histogram(
            "timer_lag_seconds", "How late a timer fired.", bounds=_LATE_SECONDS
        )
        self.timers_due = made.gauge("timers_due", "Timers that were due, and did not fire.")
        self.timers_fired = made.counter(
            "timers_fired_total",
            "Timers that fired.",
            {"kind": _TIMERS},
        )
        self.schedule_fires = made.counter(
            "schedule_fires_total",
            "Times of schedules that have come.",
            {"outcome": ("started", "duplicate", "skipped", "queued", "error")},
        )

        # Outbox
        self.outbox_pending = made.gauge(
            "outbox_pending", "Messages that wait for their delivery.", {"shard": ("0",)}
        )
        self.outbox_oldest = made.gauge(
            "outbox_oldest_seconds", "Age of the oldest of them.", {"shard": ("0",)}
        )
        self.outbox_published = made.counter(
            "outbox_published_total",
            "Messages that were published.",
            {"outcome": ("ok", "duplicate")},
        )
        self.outbox_failed = made.counter("outbox_failed_total", "Messages that could not be.")

        # Values and the database
        self.result_store_put = made.counter(
            "result_store_put_total",
            "Values that were stored apart.",
            {"store": ("kv", "db", "disk", "s3", "gcs")},
        )
        self.result_store_resolve = made.counter(
            "result_store_resolve_total",
            "Values that were read back.",
            {"outcome": ("found", "gone", "expired", "bad_ref")},
        )
        states = {"state": get_args(ContainerState)}
        self.container_callback = made.counter(
            "container_callback_total", "Containers that were said to have ended.", states
        )
        self.container_callback_stale = made.counter(
            "container_callback_stale_total", "Those that no command waits for.", states
        )
        pools = {"pool": ("main", "background")}
        self.db_pool_size = made.gauge("db_pool_size", "Open connections.", pools)
        self.db_pool_in_use = made.gauge("db_pool_in_use", "Connections at work.", pools)
        self.db_pool_waiting = made.gauge("db_pool_waiting", "Requests for one that wait.", pools)
        self.partition_default_rows = made.gauge(
            "partition_default_rows", "Rows outside of every month: above 0 is an alarm."
        )
        self.shard_up = made.gauge("shard_up", "Whether a shard answers.", {"shard": ("0",)})
        self.log_lines = made.counter(
            "log_lines_total",
            "Lines of the log.",
            {"level": ("debug", "info", "warning", "error")},
        )
        self.audit_writes = made.counter(
            "audit_writes_total",
            "Entries of the audit, by what became of them.",
            {"outcome": ("ok", "failed", "dropped")},
        )
        self.trace_spans = made.counter(
            "trace_spans_total", "Spans, by what became of them.", {"outcome": SPANS}
        )

    def open_endpoints(self, paths: Iterable[str]) -> None:
        """Let the writes of these routes stand at 0."""
        for path in paths:
            self.write_request_duration.open(path)
            for word in _CLASSES:
                self.write_requests.inc(path, word, by=0.0)

    def wrote(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a write that was answered."""
        self.write_requests.inc(endpoint, _CLASSES[status // 100 - 2])
        self.write_request_duration.observe(seconds, endpoint)

    def batch(self, started: int, duplicates: int, failed: int) -> None:
        """Count the runs of one execute/batch."""
        self.execute_batch_size.observe(started + duplicates + failed)
        for outcome, count in (("started", started), ("duplicate", duplicates), ("error", failed)):
            self.execute_outcomes.inc("batch", outcome, by=count)

    def finished(self, status: str, seconds: float) -> None:
        """Count a run that has ended."""
        self.executions_finished.inc(status)
        self.execution_duration.observe(seconds, status)

    async def measure(self, parts: ServerParts, access: Access) -> None:
        """Ask the store for what only it can count; that it is away is a number, too."""
        now = parts.clock.monotonic()
        self.auth.replace({(word,): count for word, count in access.outcomes.items()})
        self.writes_in_flight.set(access.in_flight)
        self.log_lines.replace({(level,): count for level, count in self.lines.items()})
        self.trace_spans.replace({(word,): count for word, count in self.spans.items()})
        if self._measured_at is not None and now < self._measured_at + MEASURED_S:
            return
        self._measured_at = now
        store = parts.store
        try:
            async with asyncio.timeout(MEASURED_S):
                self.executions_active.replace(_keyed(await store.executions.counted()))
                queues = await store.commands.queues()
                moment = rfc3339(parts.clock.now())
                backlog = await store.outbox.backlog(moment, committed_before=moment)
                condition = await store.upkeep.condition()
        except (NoetlError, TimeoutError) as fault:
            self.shard_up.set(0, "0")
            _log.warning("the store could not be measured", extra={"reason": str(fault)})
            return
        self.shard_up.set(1, "0")
        self.commands_pending.replace({(queue.pool,): queue.pending for queue in queues})
        self.outbox_pending.set(backlog.due, "0")
        oldest = backlog.oldest_at
        age = 0.0 if oldest is None else -seconds_until(parts.clock, oldest)
        self.outbox_oldest.set(max(0.0, age), "0")
        self.partition_default_rows.set(condition.default_rows)
        await self._measure_bus(parts, {*_POOLS, *(queue.pool for queue in queues)})

    async def _measure_bus(self, parts: ServerParts, pools: Iterable[str]) -> None:
        try:
            async with asyncio.timeout(MEASURED_S):
                lags = {pool: await parts.bus.lag(pool) for pool in pools}
        except (BusGone, TimeoutError):
            return  # the health of the bus is told elsewhere
        self.nats_consumer_lag.replace(_keyed(lags))

    def render(self) -> bytes:
        """The text that a scraper reads."""
        return self.all.render()


def _keyed(counts: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {(status,): float(count) for status, count in counts.items()}
