"""The numbers of what a server does beside runs: documents, imports, callbacks, room, secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from noetl.dsl.codes import CODES
from noetl.store.secrets import SECRET_TABLES
from noetl.store.upkeep import Table

if TYPE_CHECKING:
    from noetl.telemetry.metrics import Metrics

PURGED: Final = ("event", "execution", *get_args(Table))
"""Tables that grow old: by months, by runs, row by row."""
PROVIDERS: Final = ("env", "file", "vault", "gcp", "aws", "azure", "k8s")


class Chores:
    """Series of work that no run asks for; those of parts that are not written yet stay at 0."""

    def __init__(self, made: Metrics) -> None:
        self.dsl_diagnostics = made.counter(
            "dsl_diagnostics_total", "What was found in documents, by code.", {"code": CODES}
        )
        self.events_projected = made.counter(
            "events_projected_total", "Events of other installations that were imported."
        )
        self.events_projected_duplicates = made.counter(
            "events_projected_duplicates_total", "Those that were here already."
        )
        self.credentials_sealed = made.counter(
            "credentials_sealed_total",
            "Credentials sealed for a worker.",
            {"outcome": ("ok", "refused", "error")},
        )
        self.secret_resolve = made.counter(
            "secret_resolve_total",
            "Secrets that were looked up.",
            {"provider": PROVIDERS, "outcome": ("ok", "not_found", "denied", "error")},
        )
        self.secret_audit_writes = made.counter(
            "secret_audit_writes_total", "Rows about the use of secrets."
        )
        self.wallet_rotate = made.counter(
            "wallet_rotate_total",
            "Keys that were wrapped anew.",
            {
                "table": SECRET_TABLES,
                "status": (
                    "rewrapped", "skipped", "parse_error", "failed_unwrap", "failed_wrap",
                    "failed_write",
                ),
            },
        )  # fmt: skip
        self.cleanup_rows_purged = made.counter(
            "cleanup_rows_purged_total", "Old rows that were deleted.", {"table": PURGED}
        )
        self.nats_consumer_lag = made.gauge(
            "nats_consumer_lag",
            "Hints of a pool that its workers have not fetched.",
            {"pool": ("shared", "system")},
        )
