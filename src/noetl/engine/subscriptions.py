"""The events of subscriptions: of their own log, and of the runs that their messages start.

Pure data; `events` makes a class of each. Their facts are free, and no run is driven by them, so
the fold passes over them. The state of a subscription follows from the first six alone.
"""

from __future__ import annotations

from typing import Final

REGISTERED: Final = "subscription.registered"
ACTIVATED: Final = "subscription.activated"
PAUSED: Final = "subscription.paused"
RESUMED: Final = "subscription.resumed"
DRAINING: Final = "subscription.draining"
DEACTIVATED: Final = "subscription.deactivated"
RATE_LIMITED: Final = "subscription.rate_limited"
TICK_SKIPPED: Final = "subscription.tick.skipped"
ACCEPTED: Final = "subscription.message.accepted"
DEDUPLICATED: Final = "subscription.message.deduplicated"
DEAD_LETTERED: Final = "subscription.message.dead_lettered"
REDRIVEN: Final = "subscription.message.redriven"
DISCARDED: Final = "subscription.message.discarded"
REDRIVE_REQUESTED: Final = "subscription.redrive.requested"
DISCARD_REQUESTED: Final = "subscription.discard.requested"
REDRIVE_COMPLETED: Final = "subscription.redrive.completed"
DISCARD_COMPLETED: Final = "subscription.discard.completed"
DIRECTIVES_APPLIED: Final = "subscription.message.directives_applied"
REPLAYED: Final = "subscription.message.replayed"
CIRCUIT_OPENED: Final = "subscription.circuit.opened"
CIRCUIT_CLOSED: Final = "subscription.circuit.closed"
SPOOLED: Final = "subscription.message.spooled"
SPOOL_DRAINED: Final = "subscription.spool.drained"
SPOOL_RECOVERED: Final = "subscription.spool.recovered"

LIFECYCLE: Final = (REGISTERED, ACTIVATED, PAUSED, RESUMED, DRAINING, DEACTIVATED)
OF_RUNS: Final = (ACCEPTED, DIRECTIVES_APPLIED, REPLAYED)
"""Written into the log of a run, at its step `ingress`."""

TOLD: Final = {
    REGISTERED: ("REGISTERED", "A subscription is known."),
    ACTIVATED: ("ACTIVE", "A subscription is to listen."),
    PAUSED: ("PAUSED", "Nothing is fetched until the subscription is resumed."),
    RESUMED: ("ACTIVE", "A paused subscription goes on."),
    DRAINING: ("DRAINING", "Nothing more is fetched; what was fetched is finished."),
    DEACTIVATED: ("DEACTIVATED", "A subscription listens no more."),
    "subscription.reloaded": ("APPLIED", "A runtime goes on with another version."),
    RATE_LIMITED: ("LIMITED", "A subscription is held back by its limits."),
    TICK_SKIPPED: ("SKIPPED", "A tick came while the drain before it was running."),
    "subscription.runtime.unauthorized": ("FAILED", "The server refuses a runtime."),
    "subscription.message.received": ("RECEIVED", "A message came; told by local runs only."),
    ACCEPTED: ("ACCEPTED", "A message that was pushed was taken."),
    "subscription.message.rejected": ("REJECTED", "Messages that were pushed were refused."),
    SPOOLED: ("SPOOLED", "A message lies in the spool."),
    DEDUPLICATED: ("DUPLICATE", "A message came again; its run is the first one."),
    "subscription.message.failed": ("FAILED", "The run of a message failed for good."),
    DEAD_LETTERED: ("DEAD", "A message is not tried any more."),
    REDRIVEN: ("REDRIVEN", "A dead letter is tried again."),
    DISCARDED: ("DISCARDED", "A dead letter was dropped."),
    REDRIVE_REQUESTED: ("REQUESTED", "Dead letters are to be tried again."),
    DISCARD_REQUESTED: ("REQUESTED", "Dead letters are to be dropped."),
    REDRIVE_COMPLETED: ("COMPLETED", "All that could be tried again of a request is."),
    DISCARD_COMPLETED: ("COMPLETED", "All that could be dropped of a request is."),
    DIRECTIVES_APPLIED: ("APPLIED", "What headers of a message decided, and were refused."),
    REPLAYED: ("REPLAYED", "The message of a run came out of the spool."),
    CIRCUIT_OPENED: ("OPEN", "A downstream is held to be away."),
    CIRCUIT_CLOSED: ("CLOSED", "A downstream is back."),
    "subscription.spool.draining": ("DRAINING", "What lies in the spool is being sent."),
    SPOOL_DRAINED: ("COMPLETED", "A pass over the spool has ended."),
    SPOOL_RECOVERED: ("RECOVERED", "A runtime found messages in the spool."),
    "subscription.spool.full": ("FULL", "The spool takes no more."),
    "subscription.spool.alert": ("ALERT", "The spool is larger than it was to be."),
}
"""The status and the meaning of each."""

POSTED: Final = frozenset(TOLD) - {
    *LIFECYCLE, *OF_RUNS, TICK_SKIPPED, DEDUPLICATED, REDRIVE_REQUESTED, DISCARD_REQUESTED,
    "subscription.message.received",
}  # fmt: skip
"""What a runtime or a gateway may report; the server writes the others itself."""
