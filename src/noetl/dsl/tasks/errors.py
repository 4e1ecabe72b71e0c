"""The kinds of errors that a task may fail with, and which of them are worth another try."""

ERROR_KINDS = (
    "connection", "timeout", "rate_limit", "auth", "not_found", "client_error", "server_error",
    "schema", "parse", "template", "config", "python", "process", "limit", "sandbox", "egress",
    "db_connection", "db_constraint", "db_deadlock", "db_timeout", "db_error", "storage_quota",
    "storage_access", "child_failed", "container_failed", "oom", "node_lost", "worker_lost",
    "provider", "policy", "cancelled", "internal", "unknown",
)  # fmt: skip
RETRYABLE_KINDS = frozenset({
    "connection", "timeout", "rate_limit", "server_error", "db_connection", "db_deadlock",
    "db_timeout", "node_lost", "worker_lost",
})  # fmt: skip
