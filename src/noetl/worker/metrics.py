"""Every number that a worker shows to scrapers, each at zero from the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl import __version__
from noetl.dsl.tasks.errors import ERROR_KINDS
from noetl.sources.base import SOURCES
from noetl.telemetry.log import LEVELS
from noetl.telemetry.metrics import SIZES, SPANS, Metrics
from noetl.telemetry.redact import SINKS
from noetl.tools.container.supervise import RUNTIMES, STATES
from noetl.tools.container.tool import ContainerTool
from noetl.tools.http.tally import CLASSES, REASONS, Tally
from noetl.tools.subscription.tool import Fetched
from noetl.worker.meters import Meters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from noetl.telemetry.metrics import Counter, Gauge, Histogram
    from noetl.telemetry.redact import Redactor
    from noetl.tools.base import Tool
    from noetl.tools.interpreter.pool import Interpreters
    from noetl.worker.app import Worker

_CODES: Final = (
    "active_claim", "already_terminal", "execution_cancelled", "execution_paused",
    "unknown_command", "no_answer", "auth_required", "forbidden", "pool_forbidden", "overloaded",
)  # fmt: skip
_EVENTS: Final = ("call.done", "call.error", "command.parked", "command.started", "step.progress")
_LONG_S: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0)
_BYTES: Final = tuple(float(1 << power) for power in range(16, 33, 2))
_LEVELS: Final = {"rlimits": 0.0, "user": 1.0, "namespaces": 2.0}


class WorkerMetrics(Meters):
    """Takes numbers as they come, and asks for the rest when it is read."""

    def __init__(self, pool: str, kinds: Iterable[str]) -> None:  # noqa: PLR0915 - a table, one series a line
        self._metrics = metrics = Metrics("worker", __version__)
        self._sources: list[Callable[[], None]] = []
        tools = tuple(sorted(kinds))
        count, gauge, spread = self._count, self._gauge, self._spread
        self.pulls = count("pulls_total", "Requests for work.", outcome=("work", "empty", "error"))
        self.pull_s = spread("pull_duration_seconds", "How long requests for work took.")
        self.claimed = count(
            "claim_succeeded_total", "Commands claimed.", via=("bus", "piggyback", "poll")
        )
        self.refused = count("claim_failed_total", "Claims not granted.", code=_CODES)
        self.dead = count("claim_dead_lettered_total", "Hints for commands that nobody knows.")
        self.senseless = count("hint_senseless_total", "Messages that make no sense.")
        self.foreign = count("foreign_pool_total", "Hints of other pools.")
        self.strange = count("foreign_server_total", "Hints that name an unknown server.")
        self.to_start = spread("claim_to_start_seconds", "From the claim to the tool.")
        self.running = gauge("concurrent_dispatches", "Commands that run.")
        self.slots = gauge("slots", "Commands that may run at once.", pool=(pool,))
        self.took = metrics.histogram(
            "worker_dispatch_duration_seconds",
            "How long commands took.",
            {"tool_kind": tools},
            bounds=_LONG_S,
        )
        self.failed = count(
            "dispatch_errors_total",
            "Commands that failed.",
            tool_kind=tools,
            error_kind=ERROR_KINDS,
        )
        self.errors = count("tool_result_error_total", "Results that say error.", tool_kind=tools)
        self.emit_s = spread(
            "event_emit_duration_seconds", "How long reports took.", event_type=_EVENTS
        )
        self.retries = count("event_emit_retries_total", "Reports that were sent again.")
        self.lost = count("event_emit_failed_total", "Reports that nobody will ever see.")
        self.batch = metrics.histogram(
            "worker_report_batch_size", "Events in one request.", bounds=SIZES
        )
        self.outbox_events = gauge("outbox_events", "Reports on the disk.")
        self.outbox_bytes = gauge("outbox_bytes", "Bytes of reports on the disk.")
        self.outbox_lines = gauge("outbox_lines", "Lines of steps on the disk.")
        self.outbox_damaged = count("outbox_damaged_total", "Files that were set aside.")
        self.leases = count("lease_lost_total", "Commands whose lease was lost.")
        self.stopped = count(
            "cancelled_total", "Commands stopped.", via=("heartbeat", "control", "report", "lost")
        )
        self.overrun = count("cancel_overrun_total", "Tools that ignored their end.")
        self.waiting = count(
            "parked_total", "Commands that wait.", reason=("retry", "child", "callback", "wait")
        )
        self.reconnects = count(
            "command_loop_reconnect_total", "New ways to the bus.", reason=("gone", "silent")
        )
        self.puts = count(
            "result_store_put_total", "Results stored.", outcome=("ok", "refused", "kept")
        )
        self.put_bytes = metrics.histogram(
            "worker_result_store_put_bytes", "Sizes of stored results.", bounds=_BYTES
        )
        self.children = gauge("children", "Child interpreters.", state=("alive",))
        self.recycled = count(
            "child_recycled_total",
            "Children that were ended.",
            reason=("died", "cancelled", "start"),
        )
        self.sandbox = gauge("sandbox_level", "0 limits, 1 a user of its own, 2 namespaces.")
        self.log_dropped = count("log_dropped_total", "Lines that nobody will ever see.")
        spread("plugin_load_seconds", "Loading of modules.", phase=("fetch", "compile"))
        count("plugin_warm_total", "Modules that were warmed up.", outcome=("ok", "error"))
        self.redactions = count("redactions_total", "Secrets that were covered.", sink=SINKS)
        self.ready = gauge("ready", "Whether work is taken.")
        self.lines: Mapping[str, int] = {}
        """Lines of the log by level, as whoever writes it has counted."""
        self.spans: Mapping[str, int] = {}
        """Spans by what became of them, as whoever exports them has counted."""
        self.log_lines = metrics.counter("log_lines_total", "Lines of the log.", {"level": LEVELS})
        self.trace_spans = metrics.counter(
            "trace_spans_total", "Spans, by what became of them.", {"outcome": SPANS}
        )
        self.http_requests = metrics.counter(
            "http_requests_total", "Requests of steps, by answer.", {"status_class": CLASSES}
        )
        self.http_blocked = metrics.counter(
            "http_blocked_total", "Requests that were not let out.", {"reason": REASONS}
        )
        self.fetched = metrics.counter(
            "subscription_messages_fetched_total", "Messages of sources.", {"source": SOURCES}
        )
        self.container_jobs = metrics.counter(
            "container_jobs_total", "Jobs of steps.", {"runtime": RUNTIMES, "state": STATES}
        )

    def _count(self, name: str, meaning: str, **labels: Iterable[str]) -> Counter:
        return self._metrics.counter(f"worker_{name}", meaning, labels)

    def _gauge(self, name: str, meaning: str, **labels: Iterable[str]) -> Gauge:
        return self._metrics.gauge(f"worker_{name}", meaning, labels)

    def _spread(self, name: str, meaning: str, **labels: Iterable[str]) -> Histogram:
        return self._metrics.histogram(f"worker_{name}", meaning, labels)

    # ------------------------------------------------------------------ as they come

    def pulled(self, outcome: str, seconds: float) -> None:
        """A request for work ended."""
        self.pulls.inc(outcome)
        self.pull_s.observe(seconds)

    def started(self, seconds: float) -> None:
        """A command began so long after it was claimed."""
        self.to_start.observe(seconds)

    def ended(self, kind: str, seconds: float, error_kind: str | None) -> None:
        """A command ended, well or with an error."""
        self.took.observe(seconds, kind)
        if error_kind is not None:
            self.failed.inc(kind, error_kind)
            self.errors.inc(kind)

    def parked(self, reason: str) -> None:
        """A command waits without a slot."""
        self.waiting.inc(reason)

    def emitted(self, events: tuple[str, ...], seconds: float) -> None:
        """A batch of these events was answered."""
        self.batch.observe(float(len(events)))
        for event_type in events:
            self.emit_s.observe(seconds, event_type)

    def stored(self, outcome: str, size_bytes: int) -> None:
        """A large result was stored, or not."""
        self.puts.inc(outcome)
        if size_bytes:
            self.put_bytes.observe(float(size_bytes))

    def cancelled(self, via: str, commands: int) -> None:
        """Commands were stopped because somebody said so."""
        if commands:
            self.stopped.inc(via, by=float(commands))

    def reconnected(self, reason: str) -> None:
        """The way to the bus was made anew."""
        self.reconnects.inc(reason)

    # ------------------------------------------------------------------ when they are read

    def follow(self, worker: Worker, pool: str, interpreters: Interpreters) -> None:
        """Ask these for what they count themselves."""
        self._sources.append(lambda: self._ask(worker, pool))
        self._sources.append(lambda: self._ask_children(interpreters))

    def follow_tools(self, tools: Mapping[str, Tool], redactor: Redactor) -> None:
        """Ask these for what they count themselves, too."""
        self._sources.append(lambda: self.redactions.replace(_labelled(redactor.covered)))
        tally = getattr(tools.get("http"), "tally", None)
        if isinstance(tally, Tally):
            self._sources.append(lambda: self.http_requests.replace(_labelled(tally.answers)))
            self._sources.append(lambda: self.http_blocked.replace(_labelled(tally.blocked)))
        fetched = getattr(tools.get("subscription"), "fetched", None)
        if isinstance(fetched, Fetched):
            self._sources.append(lambda: self.fetched.replace(_labelled(fetched.messages)))
        containers = tools.get("container")
        if isinstance(containers, ContainerTool):
            self._sources.append(lambda: self.container_jobs.replace(_counted(containers.tally)))

    def render(self) -> bytes:
        """The text that a scraper reads."""
        for ask in self._sources:
            ask()
        self.log_lines.replace(_labelled(self.lines))
        self.trace_spans.replace(_labelled(self.spans))
        return self._metrics.render()

    def _ask(self, worker: Worker, pool: str) -> None:
        counts, spill, reports = worker.consumer.counts, worker.reporter.spill, worker.reporter
        self.claimed.replace(_labelled(counts.claimed))
        self.refused.replace(_labelled(counts.refused))
        self.dead.replace({(): counts.dead_lettered})
        self.senseless.replace({(): counts.senseless})
        self.foreign.replace({(): counts.foreign_pool})
        self.strange.replace({(): counts.foreign_server})
        self.running.set(worker.running)
        self.slots.set(worker.held.slots, pool)
        self.retries.replace({(): reports.counts.retries})
        self.lost.replace({(): reports.counts.lost + spill.lost})
        self.outbox_events.set(spill.events)
        self.outbox_bytes.set(spill.size_bytes)
        self.outbox_lines.set(worker.logs.kept)
        self.outbox_damaged.replace({(): spill.damaged + worker.logs.damaged})
        self.leases.replace({(): worker.heart.lost})
        self.overrun.replace({(): worker.held.abandoned})
        self.log_dropped.replace({(): worker.logs.dropped})
        self.ready.set(float(worker.is_ready))

    def _ask_children(self, interpreters: Interpreters) -> None:
        self.recycled.replace(_labelled(interpreters.counts.retired))
        self.sandbox.set(_LEVELS[interpreters.sandbox.level])
        counts = interpreters.counts
        self.children.set(counts.started - sum(counts.retired.values()), "alive")


def _labelled(counts: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {(name,): float(count) for name, count in counts.items()}


def _counted(counts: Mapping[tuple[str, str], int]) -> dict[tuple[str, ...], float]:
    return {names: float(count) for names, count in counts.items()}
