"""What a task of each kind returns, how it fails, and what bounds it: for pages, editors and tests.

The table is all that makes this module long.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


DEFAULT_TIMEOUT_S: Final = 300.0
"""`NOETL_WORKER_COMMAND_TIMEOUT_SECONDS` changes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What the keys of a kind do not say."""

    returns: Mapping[str, str] = field(default_factory=dict)
    """Fields of `output.data`, with their meaning; none: the data is the author's own."""
    data: str = ""
    """What the data is, where it is no map of fixed fields."""
    errors: tuple[str, ...] = ()
    """Kinds of errors that it has reasons of its own for."""
    limits: tuple[str, ...] = ()
    """Sentences with numbers."""
    timeout_s: float | None = DEFAULT_TIMEOUT_S
    """How long a try may take when the author says nothing; none: as long as it takes."""
    extra: str = ""
    """The extra that its packages come with."""
    example: str = ""
    """A file in `examples/`."""
    is_built: bool = True
    """Whether workers of this release can run it."""

    @property
    def every_error(self) -> tuple[str, ...]:
        """Its own kinds of errors, then those that a task of any kind may have."""
        return tuple(dict.fromkeys((*self.errors, *EVERY)))


EVERY: Final = ("template", "config", "auth", "schema", "timeout", "cancelled", "internal")
"""Kinds of errors that a task of any kind may have: `auth` when the keychain lacks what it names,
`schema` when its data is no JSON."""
_SQL: Final = {
    "columns": "names of the columns",
    "rows": "rows of the last statement that has any; maps, or lists without `as_objects`",
    "row_count": "how many rows",
    "affected_rows": "how many rows were changed",
    "command_0": "the same fields of the first statement; `command_1` of the second, and so on",
    "ref": "reference of a Parquet file with all rows, when they are too many to be inline",
    "bytes": "with `ref`: the size of that file",
    "preview": "with `ref`: the first rows",
    "truncated": "with `ref`: false, since no row is missing",
}
_SQL_LIMITS: Final = (
    "At most `max_rows` (100,000) rows and `max_bytes` (64 MiB) are in the result.",
    "What is more is streamed to a Parquet file.",
)
_DATABASE: Final = ("auth", "connection", "db_connection", "db_deadlock", "db_timeout",
                    "db_constraint", "db_error", "schema", "limit")  # fmt: skip
_STORED: Final = ("not_found", "storage_access", "storage_quota")
_STORE: Final = ("rate_limit", "client_error", "server_error", "egress", "parse")
_CALL: Final = ("connection", "auth", "not_found", "rate_limit", "client_error", "server_error",
                "egress")  # fmt: skip
_CHILD: Final = ("process", "limit", "sandbox")
_PROCESS: Final = {
    "exit_code": "0",
    "stdout": "what it printed, at most 64 KiB",
    "stderr": "what it printed there, at most 64 KiB",
}
_PROCESS_LIMITS: Final = (
    "A child has 1024 MiB of memory, 256 open files, 64 processes, 512 MiB of disk.",
    "It may print 64 MiB; `limits` changes all of these.",
)

_OBJECTS: Final = About(
    returns={
        "status": "`ok`",
        "operation": "what was done",
        "uri": "where the object lies",
        "size": "its size",
        "etag": "its tag",
        "content_type": "its media type",
        "metadata": "of `get` and `head`: what was kept with it",
        "last_modified": "of `head`: when it was written",
        "data": "of `get`: the content, up to 64 KiB",
        "ref": "of `get`: reference of a larger content",
        "sha256": "of `get`: digest of a larger content",
        "bucket": "of `list`: the bucket",
        "prefix": "of `list`: with what the keys begin",
        "items": "of `list`: the objects",
        "count": "of `list`: how many",
        "next": "of `list`: where the next page begins",
        "deleted": "of `delete`: whether there was one",
        "source": "of `copy`: what was copied",
        "url": "of `sign`: the address",
        "expires": "of `sign`: for how many seconds it is good",
    },
    errors=("auth", "connection", *_STORE, *_STORED),
    limits=(
        "10,000 keys a list; parts of 8 MiB.",
        "`sign` takes lasting keys: a link of a session would show its token, and is refused.",
    ),
    extra="s3",
    example="objects.yaml",
)
ABOUT: Final[Mapping[str, About]] = {
    "python": About(
        data="The value of `result`, of a top-level `return`, or of `main()`.",
        errors=("python", "schema", *_CHILD),
        limits=_PROCESS_LIMITS,
        example="hello.yaml",
    ),
    "http": About(
        returns={
            "status_code": "status of the answer",
            "headers": "its headers, in lower case",
            "body": "its body: JSON, or text",
            "data": "the same as `body`",
            "url": "the address that answered, after redirects",
            "elapsed_ms": "how long it took",
            "items": "with `paginate`: the items of all pages",
            "pages": "with `paginate`: how many pages",
            "last": "with `paginate`: the last page",
            "ref": "with `response_type: blob`: reference of the body",
            "bytes": "with `blob`: its size",
            "sha256": "with `blob`: its digest",
            "content_type": "with `blob`: its media type",
        },
        errors=(*_CALL, "parse", "schema", "limit", "storage_access"),
        limits=(
            "A body over `max_bytes` (16 MiB) becomes a blob, of up to 5 GiB.",
            "At most 5 redirects; 100 pages and 100,000 items of `paginate`.",
        ),
        timeout_s=60.0,
        example="pagination_pipeline.yaml",
    ),
    "postgres": About(
        returns={
            **_SQL,
            "copy": "with `copy`: direction, table, rows; out of it also bytes, content_type, and"
                    " `data` (text of up to 64 KiB) or `ref`",
        },
        errors=(*_DATABASE, "not_found", "storage_access"), limits=(
            *_SQL_LIMITS,
            "At most 4 connections for each credential and database, 32 such pools.",
            "A connection is closed after 5 minutes of rest.",
        ),
        example="postgres_queue.yaml",
    ),
    "sqlite": About(returns=_SQL, errors=("db_timeout", "db_constraint", "db_error", "schema",
                                          "storage_access", "storage_quota", "limit"),
                    limits=_SQL_LIMITS, example="cursor_sqlite.yaml"),
    "duckdb": About(
        returns={**_SQL, "export": "with `export`: where the file lies, and its size"},
        errors=(*_DATABASE, *_STORE, *_STORED, "process"),
        limits=(*_SQL_LIMITS, "1 GB of memory and 2 threads, unless it says otherwise."),
        extra="duckdb",
        example="duckdb_report.yaml",
    ),
    "ducklake": About(
        returns={**_SQL, "export": "with `export`: where the file lies, and its size"},
        errors=(*_DATABASE, *_STORE, *_STORED, "process"),
        limits=_SQL_LIMITS,
        extra="ducklake",
        example="ducklake_history.yaml",
    ),
    "snowflake": About(
        returns={**_SQL, "statement_0": "the same as `command_0`"},
        errors=_DATABASE,
        limits=(*_SQL_LIMITS, "A session takes up to 30 seconds to open."),
        extra="snowflake",
        example="snowflake_load.yaml",
    ),
    "transfer": About(
        returns={
            "rows_transferred": "how many rows",
            "chunks_processed": "in how many chunks",
            "bytes": "how many bytes were moved",
            "mode": "`append`, `replace` or `upsert`",
            "source_type": "kind of the source",
            "target_type": "kind of the target",
            "target_table": "table, or address of the object",
            "columns": "columns that were written",
            "duration_ms": "how long it took",
        },
        errors=(*_DATABASE, *_STORE, *_STORED, "process"),
        limits=("`chunk_size` (10,000) rows a chunk, at most 4 chunks in memory.",
                "64 MiB of a source that is one JSON document."),
        timeout_s=1800.0,
        extra="duckdb",
        example="transfer_files.yaml",
    ),
    "nats": About(
        data="By operation: a value with its revision, keys, objects, messages, what a stream is.",
        errors=("auth", "connection", "not_found", "client_error", "server_error", "limit",
                "egress", "storage_quota"),
        limits=("At most 1,000 messages and 5 seconds a fetch.",),
        timeout_s=10.0,
        example="nats_cache.yaml",
    ),
    "shell": About(
        returns=_PROCESS, errors=_CHILD, limits=_PROCESS_LIMITS, example="shell.yaml"
    ),
    "script": About(returns=_PROCESS, errors=(*_CHILD, "container_failed"),
                    limits=_PROCESS_LIMITS, example="script_report.yaml"),
    "container": About(
        returns={
            "terminal_state": "`succeeded`, or how it failed",
            "job_name": "name of the job",
            "job_uid": "its unique id",
            "completed_at": "when it ended",
            "exit_code": "exit code of the container",
            "reason": "why it ended, in words of the cluster",
            "stdout_uri": "reference of its log",
            "stderr_uri": "reference of its second log, where there is one",
            "output": "the JSON object of its termination message",
        },
        errors=("container_failed", "oom", "node_lost", "auth", "connection", "rate_limit",
                "server_error", "limit"),
        limits=(
            "4 KiB of output, 10 MiB of log, 32 KiB of input in the environment.",
            "900 KiB of input, with the secrets that are in it.",
            "A secret that `value_from` takes from the cluster is not covered in what is told.",
        ),
        timeout_s=3600.0,
        extra="kubernetes",
        example="container_process.yaml",
    ),
    "playbook": About(
        data="The result of the child; with `wait: false`, its `execution_id` and `status`.",
        errors=("child_failed",), limits=("Children of children, at most 32 deep.",),
        timeout_s=None, example="subplaybook_parent.yaml",
    ),
    "playbooks": About(
        data="A list: the results of the children, in the order of `items`.",
        errors=("child_failed",), timeout_s=None, example="playbooks_many.yaml",
    ),
    "subscription": About(
        returns={
            "status": "`success`, or `partial` when some ids could not be settled",
            "operation": "what was done",
            "source": "kind of the source",
            "messages": "what was fetched",
            "count": "how many",
            "acked": "whether they are, or will be, acknowledged without your doing",
            "ack_mode": "when they are acknowledged",
            "ack_ids": "with `ack: manual`: handles for `ack`, `nack` and `term`",
            "metrics": "`fetch_ms` and `bytes` of the poll",
            "requested": "of `ack`, `nack`, `term`: how many ids there were",
            "disposed": "of these: how many were settled",
            "errors": "of these: the ids that were not, and why",
        },
        errors=("auth", "connection", "not_found", "server_error", "egress"),
        limits=(
            "At most 1,000 messages a poll; it waits 5 seconds at most, 20 with `pubsub`.",
            "A worker stays in a Kafka group for 60 seconds after its last task.",
            "With Kafka, what nobody settles in 60 seconds comes again.",
        ),
        timeout_s=25.0,
        example="subscription_drain.yaml",
    ),
    "artifact": About(
        returns={
            "action": "what was done",
            "data": "of `get`: the value",
            "uri": "where the object lies",
            "size_bytes": "its size",
            "sha256": "its digest",
            "content_type": "its media type",
            "ref": "of `get`: reference of what is too large to be data",
            "items": "of `list`: the objects",
            "count": "of `list`: how many there are",
            "truncated": "of `list`: whether some are missing in `items`",
            "deleted": "of `delete`: whether there was one",
        },
        errors=("auth", "connection", *_STORE, *_STORED),
        limits=("64 MiB inline; 10,000 names a list.",),
        example="artifact.yaml",
    ),
    "result_fetch": About(
        data="The value, or `{data: {rows, columns, row_count}}` of rows.",
        errors=("not_found", "storage_access", "parse", "schema", "limit"),
        example="large_result.yaml",
    ),
    "secrets": About(
        returns={
            "name": "name of the secret",
            "version": "its version",
            "handle": "entry of the keychain: later tasks read `keychain.<handle>.value`",
        },
        errors=("auth", "not_found"),
        example="secret_handle.yaml",
    ),
    "gcs": replace(_OBJECTS, extra="gcs"),
    "s3": _OBJECTS,
    "mcp": About(
        returns={
            "server": "which server",
            "method": "what was asked",
            "tool": "which tool",
            "text": "the texts of the answer, joined",
            "content": "the content as the protocol has it",
            "structured": "structured content, where the tool has a schema",
            "result": "the whole answer",
        },
        errors=(*_CALL, "parse", "provider", "process", "sandbox"),
        timeout_s=60.0,
        extra="mcp",
        example="mcp_tickets.yaml",
    ),
    "agent": About(
        returns={
            "status": "`ok` or `error`",
            "framework": "which framework",
            "entrypoint": "what was called",
            "data": "what it returned",
            "execution_id": "the run that it was in",
            "duration": "how long it took, in seconds",
            "error": "what failed",
        },
        errors=("provider", "auth", *_CHILD),
        limits=_PROCESS_LIMITS,
        example="agent_custom.yaml",
    ),
    "wasm": About(data="What the module returned.", errors=("limit", "process"), timeout_s=10.0,
                  extra="wasm", is_built=False),
    "gateway": About(
        returns={
            "delivered": "whether it was taken for a client that waits",
            "status": "of a result: `delivered`, `queued` (its client is away), `duplicate` (the "
                      "request had ended); of progress: `sent`, `ignored` (the request had ended); "
                      "of both: `unknown_request`; none without a request",
        },
        errors=(*_CALL, "parse", "limit"),
        limits=(
            "8 MiB a message; 50 of a request in a second, else `rate_limit`.",
            "A client is told of progress 10 times a second at most, and always of the newest.",
        ),
        example="client_progress.yaml",
    ),
    "wait": About(
        data="With `callback: true`, the body of the call; else nothing.",
        timeout_s=None, example="wait_for_callback.yaml",
    ),
    "noop": About(data="`result`, `message`, or `{status: ok}`.", example="branches.yaml"),
}  # fmt: skip
_SAME: Final = {"snowflake_transfer": "transfer"}


def about(kind: str) -> About:
    """What is known of a kind; of a plug-in, nothing."""
    return ABOUT.get(_SAME.get(kind, kind), About())
