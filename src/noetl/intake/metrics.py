"""Every number of messages on their way to runs, each at zero from the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.dsl.subscription.document import CONTROLS
from noetl.sources import directives
from noetl.sources.breaker import PHASES
from noetl.telemetry.metrics import Counter, Gauge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl.telemetry.metrics import Series

OUTCOMES: Final = ("started", "duplicate", "unavailable", "refused", "misconfigured")
SPOOLED: Final = (
    "circuit_open", "hybrid_escalate", "lane_busy", "paused", "rate_limited", "replay_failed",
)  # fmt: skip
"""Every reason that a message waits for."""
DEAD: Final = (
    "dispatch_rejected", "replay_failed", "message_too_large", "corrupt", "on_full_evicted",
    "retention_expired", "too_large",
)  # fmt: skip
"""Every reason that a message is given up for."""


class IntakeMetrics:
    """Numbers by subscription; only registered paths are labels."""

    def __init__(self, paths: Iterable[str], downstreams: Iterable[str] = ()) -> None:
        self._paths = tuple(paths)
        self.series: list[Series] = []
        """All of them, for a process to show."""
        named = tuple(dict.fromkeys((*downstreams, "server")))
        count, gauge = self._count, self._gauge
        self.received = count("messages_received_total", "Messages that came from the source.")
        self.executions = count("executions_total", "Attempts to start a run.", outcome=OUTCOMES)
        self.acked = count("acked_total", "Messages that the source may forget.")
        self.nacked = count("nacked_total", "Messages that the source is to send again.")
        self.applied = count(
            "directives_applied_total", "Headers that were followed.", controls=CONTROLS
        )
        self.refused = count(
            "directives_refused_total", "Headers that were not.", reason=directives.REASONS
        )
        self.spooled = count("spooled_total", "Messages put into the spool.", reason=SPOOLED)
        self.replayed = count("replayed_total", "Messages started out of the spool.")
        self.dead = count("dead_lettered_total", "Messages given up.", reason=DEAD)
        self.spool_bytes = gauge("spool_bytes", "Size of what waits in the spool.")
        self.spool_items = gauge("spool_items", "Messages in the spool.")
        self.spool_oldest_s = gauge("spool_oldest_seconds", "Age of the oldest message there.")
        self.foreign = count("spool_foreign_total", "Objects in the spool that are no messages.")
        self.circuit = gauge("circuit", "0 closed, 1 half open, 2 open.", downstream=named)
        self.transitions = count(
            "circuit_transitions_total", "Circuits that changed.", downstream=named, to=PHASES
        )
        self.unkept = count(
            "circuit_store_unreachable_total", "Changes of circuits kept in memory for now."
        )
        self.batches = count("batch_dispatch_total", "Requests that start many runs.")
        self.batched = count("batch_messages_total", "Messages in such requests.")
        self.rate_limited = count("rate_limited_total", "Times that fetching stopped.")
        self.in_flight = gauge("in_flight", "Messages fetched and not settled.")
        self.backlog = gauge("source_backlog", "Messages that wait at the source.")
        self.audit_dropped = count("audit_dropped_total", "Audit events that nobody will see.")

    def _count(self, name: str, meaning: str, **labels: tuple[str, ...]) -> Counter:
        made = Counter(f"subscription_{name}", meaning, {"subscription": self._paths, **labels})
        self.series.append(made)
        return made

    def _gauge(self, name: str, meaning: str, **labels: tuple[str, ...]) -> Gauge:
        made = Gauge(f"subscription_{name}", meaning, {"subscription": self._paths, **labels})
        self.series.append(made)
        return made
