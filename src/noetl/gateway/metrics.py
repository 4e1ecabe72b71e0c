"""Every number that the gateway tells about itself; each attribute is one series of the contract.

A label is a word of a fixed set: whatever else comes is counted as `other`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl import __version__
from noetl.telemetry.metrics import OTHER, SPANS, Closed, Counter, Metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

UNKNOWN: Final = "unknown"
SWITCHES: Final = ("auth_bypass", "callback_without_token", "query_token", "allow_insecure")
LOGINS: Final = (
    "ok", "bad_credentials", "account_locked", "rate_limited", "issuer_not_allowed",
    "bad_signature", "bad_claims", "bad_state", "auth_unavailable", "auth_backend_busy",
    "auth_hook_invalid", OTHER,
)  # fmt: skip
CHECKS: Final = (
    "hit", "miss", "negative", "invalid", "expired", "revoked", "unavailable", "ticket", "token",
    "bypass", OTHER,
)  # fmt: skip
AUTHZ: Final = (
    "allowed", "denied", "missing_token", "invalid_session", "csrf_rejected", "ticket_used",
    "query_token_disabled", "auth_unavailable", OTHER,
)  # fmt: skip
TRANSPORTS: Final = ("sse", "ws", "graphql")
KINDS: Final = (
    "init", "result", "progress", "state", "event", "log", "ping", "session", "server",
    "connection", "error", "answer", OTHER,
)  # fmt: skip
STATES: Final = (
    "accepted", "running", "completed", "failed", "cancelled", "timeout", "rejected",
)  # fmt: skip
CALLBACK_ROUTES: Final = ("callback", "async", "progress")
CALLBACKS: Final = (
    "delivered", "queued", "duplicate", "sent", "ignored", "hook", "unknown_request",
    "callback_token_missing", "callback_token_wrong", "execution_mismatch", "bad_status",
    "body_too_large", "rate_limited", "unavailable", OTHER,
)  # fmt: skip
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", OTHER)
CLASSES: Final = ("2xx", "3xx", "4xx", "5xx", OTHER)
BUCKETS: Final = ("sessions", "requests", "circuits")
OPS: Final = ("get", "put", "create", "update", "delete", "names", "watch", OTHER)
REASONS: Final = ("bus_gone", "failed", OTHER)
SCOPES: Final = (
    "login_account", "login_address", "execute", "call", "callback", "connect", "message",
    "callback_address", "ingress", OTHER,
)  # fmt: skip
OPERATIONS: Final = ("query", "mutation", "subscription", OTHER)
OUTCOMES: Final = ("ok", "error", "refused", "limited", OTHER)
_SECONDS: Final = (
    0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0, 86400.0,
)  # fmt: skip


class Fixed(Counter):
    """Counts up; a word outside of its set is `other`."""

    def __init__(self, name: str, meaning: str, labels: Closed) -> None:
        super().__init__(name, meaning, labels)
        self._sets = tuple(frozenset(words) for words in labels.values())

    def inc(self, *labels: str, by: float = 1.0) -> None:
        """Count."""
        words = zip(labels, self._sets, strict=True)
        super().inc(*(word if word in known else OTHER for word, known in words), by=by)


class GatewayMetrics:
    """The series of a gateway, and the one way to count in them: their own methods."""

    def __init__(self) -> None:
        self.all = made = Metrics("gateway", __version__)
        self.lines: Mapping[str, int] = {}
        """Lines of the log by level, as whoever writes it has counted."""
        self.spans: Mapping[str, int] = {}
        """Spans by what became of them, as whoever exports them has counted."""
        self.auth_bypass = made.gauge(
            "gateway_auth_bypass_enabled",
            "Whether everybody is let in, by mode of sign-in.",
            {"mode": ("builtin", "playbook")},
        )
        self.insecure = made.gauge(
            "gateway_insecure_mode", "Switches that make less safe.", {"switch": SWITCHES}
        )
        self._people()
        self._streams()
        self._requests()
        self._ways()
        self._ingress()
        self.task_crashes = made.counter(
            "gateway_task_crashes_total", "Loops that failed and were begun again.", {"task": ()}
        )
        self.log_lines = made.counter(
            "log_lines_total",
            "Lines of the log.",
            {"level": ("debug", "info", "warning", "error")},
        )
        self.trace_spans = made.counter(
            "trace_spans_total", "Spans, by what became of them.", {"outcome": SPANS}
        )

    def _people(self) -> None:
        self.login = self._fixed("login", "Sign-ins, by outcome.", {"outcome": LOGINS})
        self.session_check = self._fixed(
            "session_check", "Sessions that were looked up.", {"outcome": CHECKS}
        )
        self.authz = self._fixed(
            "authz", "Callers let in or refused, by outcome.", {"outcome": AUTHZ}
        )
        self.session_cache_failed = self._fixed(
            "session_cache_failed", "Uses of the bucket of sessions that failed.", {"op": OPS}
        )
        self.auth_cancel_failed = self.all.counter(
            "gateway_auth_cancel_failed_total", "Hooks of sign-in that could not be cancelled."
        )

    def _streams(self) -> None:
        self.connections = self.all.gauge(
            "gateway_connections", "Open streams.", {"transport": TRANSPORTS}
        )
        self.messages_sent = self._fixed(
            "messages_sent",
            "Messages to clients.",
            {"transport": (*TRANSPORTS, OTHER), "kind": KINDS},
        )
        self.slow_consumer = self._fixed(
            "slow_consumer",
            "Streams that were closed since nobody read them.",
            {"transport": (*TRANSPORTS, OTHER)},
        )
        self.replay = self._fixed(
            "replay",
            "Streams that went on from an event, by whether everything was there.",
            {"outcome": ("recovered", "lost", OTHER)},
        )

    def _requests(self) -> None:
        self.requests = self.all.gauge(
            "gateway_requests", "Requests that this replica knows of.", {"state": STATES}
        )
        self.request_seconds = self.all.histogram(
            "gateway_request_seconds",
            "From the acceptance of a request to its end.",
            bounds=_SECONDS,
        )
        self.request_timeout = self.all.counter(
            "gateway_request_timeout_total", "Requests that passed their deadline."
        )
        self.callback = self._fixed(
            "callback",
            "Callbacks of playbooks.",
            {"route": (*CALLBACK_ROUTES, OTHER), "outcome": CALLBACKS},
        )
        self.callback_undelivered = self.all.counter(
            "gateway_callback_undelivered_total", "Callbacks whose client was not connected."
        )
        self.event_feed_reconnect = self._fixed(
            "event_feed_reconnect", "Feeds of events that were begun again.", {"reason": REASONS}
        )
        self.event_parse_failed = self.all.counter(
            "gateway_event_parse_failed_total", "Events that could not be read."
        )

    def _ways(self) -> None:
        self.proxy_requests = self._fixed(
            "proxy_requests",
            "Calls that were passed on.",
            {"method": METHODS, "class": CLASSES},
        )
        self.proxy_seconds = self.all.histogram(
            "gateway_proxy_seconds", "Until the first byte of what was passed on."
        )
        self.kv_errors = self._fixed(
            "kv_errors",
            "Uses of buckets that failed.",
            {"bucket": (*BUCKETS, OTHER), "op": OPS},
        )
        self.rate_limited = self._fixed(
            "rate_limited", "Calls that came too often.", {"scope": SCOPES}
        )
        self.graphql = self._fixed(
            "graphql", "GraphQL operations.", {"operation": OPERATIONS, "outcome": OUTCOMES}
        )
        self.mcp_calls = self._fixed("mcp_calls", "Calls of MCP tools.", {"outcome": OUTCOMES})

    def _ingress(self) -> None:
        """Deliveries by listener; one that nobody knows is `unknown`, whatever it is called."""
        made, of = self.all, {"subscription": (UNKNOWN,)}
        self.ingress_received = made.counter(
            "ingress_received_total", "Requests of senders of deliveries.", of
        )
        self.ingress_rejected = made.counter(
            "ingress_rejected_total", "Deliveries that were not taken.", {**of, "reason": ()}
        )
        self.ingress_dispatched = made.counter(
            "ingress_dispatched_total", "Deliveries that have a run.", {"subscription": ()}
        )
        self.ingress_duplicate = made.counter(
            "ingress_duplicate_total", "Deliveries that came again.", {"subscription": ()}
        )
        self.ingress_spooled = made.counter(
            "ingress_spooled_total",
            "Deliveries that wait in the spool.",
            {"subscription": (), "reason": ()},
        )
        self.ingress_seconds = made.histogram(
            "ingress_seconds",
            "From the beginning of a verified delivery to its answer.",
            {"subscription": ()},
        )
        self.ingress_in_flight = made.gauge(
            "ingress_in_flight", "Requests of senders that are not answered yet."
        )
        self.ingress_jwks_refresh = made.counter(
            "ingress_jwks_refresh_total",
            "Questions for the keys of issuers.",
            {"outcome": ("refreshed", "failed")},
        )
        self.ingress_unlogged = made.counter(
            "ingress_unlogged_total",
            "Events and rows of the log of deliveries that nobody will see.",
            {"kind": ("event", "delivery")},
        )

    def _fixed(self, name: str, meaning: str, labels: Closed) -> Fixed:
        return self.all.add(Fixed(f"gateway_{name}_total", meaning, labels))

    def open_task(self, name: str) -> None:
        """Let a loop stand at 0."""
        self.task_crashes.inc(name, by=0.0)

    def proxied(self, method: str, status: int, seconds: float) -> None:
        """Count a call that was passed on."""
        self.proxy_requests.inc(method, f"{status // 100}xx")
        self.proxy_seconds.observe(seconds)

    def connected(self, transport: str, by: int) -> None:
        """A stream was opened (1) or closed (-1)."""
        self.connections.set(self.connections.value(transport) + by, transport)

    def render(self) -> bytes:
        """The text that a scraper reads."""
        self.log_lines.replace({(level,): count for level, count in self.lines.items()})
        self.trace_spans.replace({(word,): count for word, count in self.spans.items()})
        return self.all.render()
