"""Kinds that read and write stores: SQL, transfers, objects, results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.shape import (
    AtLeastOne,
    ByType,
    Constraint,
    Flag,
    ListOf,
    MapOf,
    Model,
    Of,
    Text,
    Written,
    choice,
    key,
    model,
    whole,
)
from noetl.dsl.shape.reader import SQL, WORKER
from noetl.dsl.shape.units import Duration, Size
from noetl.dsl.tasks.shared import (
    ANY,
    FILLED,
    MAP,
    ROWS,
    TEXT,
    TEXTS,
    ByteRange,
    Script,
    needed,
)
from noetl.dsl.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Mapping


@model
class Sql(Task):
    """Keys that every SQL kind shares."""

    constraints: ClassVar[tuple[Constraint, ...]] = (AtLeastOne(("command", "commands", "script")),)

    command: Any = key(
        ByType(text=Text(SQL, filled=True), list=ListOf(Text(SQL, filled=True))),
        "SQL text", default=None, aliases=("query", "sql"),
    )  # fmt: skip
    commands: tuple[str, ...] = key(ListOf(Text(SQL), lone=True), "SQL statements", default=())
    script: Script | None = key(Of(Script), "SQL that is fetched", default=None)
    params: Any = key(
        ROWS,
        "values bound by the driver, for a single statement; PostgreSQL: a list for `%s` or `$1`,"
        " a map for `%(name)s` (`%%` is a percent sign then); SQLite and DuckDB: `?`, `:name`,"
        " `$name`",
        default=None,
    )
    max_rows: int | str = key(whole(1, role=WORKER), "most rows", default=100_000)
    max_bytes: int | str = key(Size(WORKER), "most bytes", default=67_108_864)
    as_objects: bool = key(Flag(), "rows as maps", default=True)


@model
class Connection(Model):
    """A PostgreSQL connection written out."""

    host: str | None = key(TEXT, "host", default=None)
    port: int | str | None = key(whole(1, 65_535, role=WORKER), "port (5432)", default=None)
    user: str | None = key(TEXT, "user", default=None)
    password: str | None = key(TEXT, "password; better an `auth` alias", default=None)
    database: str | None = key(TEXT, "database", default=None)
    sslmode: str | None = key(TEXT, "TLS mode (prefer; with `ca` verify-full)", default=None)
    ca: str | None = key(TEXT, "certificates of authorities, in PEM", default=None)


@model
class Copy(Model):
    """Streams rows with COPY."""

    direction: str = key(choice("from", "to"), "into or out of the table", default="from")
    table: str = key(TEXT, "table")
    columns: tuple[str, ...] = key(TEXTS, "columns", default=())
    format: str = key(choice("csv", "binary", "text"), "format", default="csv")
    header: bool = key(Flag(), "the first line of a csv or text names columns", default=False)
    ref: str | None = key(TEXT, "reference to the data", default=None)
    data: Any = key(ANY, "the data: rows, text, or base64 of binary", default=None)


@model
class Postgres(Sql):
    """Runs SQL on PostgreSQL."""

    constraints: ClassVar[tuple[Constraint, ...]] = (
        AtLeastOne(("command", "commands", "script", "copy")),
    )

    connection: Connection | None = key(Of(Connection), "connection", default=None)
    schema: str | None = key(TEXT, "search path", default=None)
    statement_timeout: Any = key(Duration(WORKER), "limit of a statement", default=None)
    transaction: bool = key(Flag(), "one transaction", default=True)
    read_only: bool = key(Flag(), "read only", default=False)
    copy: Copy | None = key(Of(Copy), "stream rows", default=None)


@model
class Sqlite(Sql):
    """Runs SQL on a SQLite file."""

    path: str = needed(FILLED, "file under the data roots")


@model
class Attached(Model):
    """A file or an object that the statements see under a name."""

    path: str | None = key(
        TEXT, "file under the data roots, or address of an object in a store", default=None,
        aliases=("database", "uri"),
    )  # fmt: skip
    as_: str | None = key(
        TEXT, "name in the statements; without one, that of the file", name="as", default=None,
        aliases=("name", "alias"),
    )  # fmt: skip
    read_only: bool | str = key(Flag(WORKER), "of a file: nothing is written to it", default=False)
    format: str | None = key(
        choice("parquet", "csv", "json", role=WORKER),
        "of an object: what it holds; without one, as its name says", default=None,
    )  # fmt: skip


@model
class Export(Model):
    """Where the rows of the last query go."""

    format: str = key(
        choice("parquet", "csv", "json", "xlsx", role=WORKER), "format of the file",
        default="parquet",
    )  # fmt: skip
    to: str = key(
        TEXT, "`blob`, an object in a store, or a file under the data roots", default="blob"
    )


@model
class Granted(Model):
    """A database that is attached under a name, or a store whose objects may be read."""

    type: str = key(
        choice("postgres", "mysql", "sqlite", "s3", "gcs", role=WORKER), "kind of database or store"
    )
    credential: Any = key(
        ByType(text=TEXT, map=MAP), "credential alias, or a map of its fields", default=None,
        aliases=("auth",),
    )  # fmt: skip
    scope: str | None = key(
        TEXT, "of a store: the beginning of the addresses that it is for", default=None
    )
    read_only: bool | str = key(
        Flag(WORKER), "of a database: nothing is written to it", default=False
    )


_ATTACHED = ByType(text=TEXT, map=Written(Attached))


@model
class Duckdb(Sql):
    """Runs SQL on DuckDB."""

    auth: Any = key(
        ByType(text=TEXT, map=MapOf(Written(Granted))),
        "credential alias, or what is reached by names", default=None, aliases=("credential",),
    )  # fmt: skip
    database: str = key(TEXT, "file, or `:memory:`", default=":memory:")
    attach: Any = key(
        ByType(list=ListOf(_ATTACHED), map=MapOf(_ATTACHED)),
        "files and objects to attach: a list, or a map by name",
        default=None,
    )
    extensions: tuple[str, ...] = key(ListOf(Text()), "extensions to load", default=())
    export: Export | None = key(Of(Export), "where the rows go", default=None)
    memory_limit: Any = key(ByType(text=TEXT, number=Size()), "memory", default="1GB")
    threads: int | str = key(whole(1, 256, role=WORKER), "threads", default=2)


@model
class Ducklake(Duckdb):
    """Runs SQL on a DuckLake."""

    catalog: str = needed(TEXT, "credential of the metadata database")
    data_path: str = needed(TEXT, "object store address of the data")
    lake: str = key(Text(), "name of the lake", default="lake")
    snapshot_version: Any = key(
        ByType(text=TEXT, number=whole(0)), "snapshot to read", default=None
    )


@model
class Snowflake(Sql):
    """Runs SQL on Snowflake."""

    warehouse: str | None = key(TEXT, "warehouse", default=None)
    database: str | None = key(TEXT, "database", default=None)
    schema: str | None = key(TEXT, "schema", default=None)
    role: str | None = key(TEXT, "role", default=None)


_STORES = ("postgres", "duckdb", "snowflake", "sqlite", "s3", "gcs")


@model
class TransferSource(Model):
    """Where a transfer reads."""

    kind: str = key(choice(*_STORES, "http"), "kind of store", aliases=("type", "tool"))
    auth: Any = key(ByType(text=TEXT, map=MAP), "credential", default=None, aliases=("credential",))
    query: str | None = key(Text(SQL), "SQL to read", default=None, aliases=("command", "sql"))
    url: str | None = key(TEXT, "address", default=None)
    uri: str | None = key(TEXT, "object", default=None)
    path: str | None = key(TEXT, "file", default=None)
    database: str | None = key(TEXT, "database", default=None)
    format: str | None = key(Text(), "format", default=None)
    data_path: str | None = key(Text(), "path of the rows in the answer", default=None)
    method: str | None = key(TEXT, "HTTP method", default=None)
    headers: Mapping[str, Any] = key(MAP, "HTTP headers", default_factory=dict)
    params: Any = key(ROWS, "parameters", default=None)


@model
class TransferTarget(Model):
    """Where a transfer writes."""

    kind: str = key(choice(*_STORES), "kind of store", aliases=("type", "tool"))
    auth: Any = key(ByType(text=TEXT, map=MAP), "credential", default=None, aliases=("credential",))
    table: str | None = key(TEXT, "table", default=None)
    uri: str | None = key(TEXT, "object", default=None)
    path: str | None = key(TEXT, "file", default=None)
    database: str | None = key(TEXT, "database", default=None)
    schema: str | None = key(TEXT, "schema", default=None)
    columns: tuple[str, ...] = key(TEXTS, "columns", default=())
    mapping: Mapping[str, Any] = key(MAP, "target column to source field", default_factory=dict)
    create: bool = key(Flag(), "create the table", default=False)


@model
class Transfer(Task):
    """Moves rows from one store to another."""

    source: TransferSource = needed(Of(TransferSource), "where to read")
    target: TransferTarget = needed(Of(TransferTarget), "where to write")
    mode: str = key(choice("append", "replace", "upsert"), "how to write", default="append")
    key_: tuple[str, ...] = key(
        ListOf(Text(), lone=True), name="key", doc="key columns of upsert", default=()
    )
    chunk_size: int | str = key(whole(1, 1_000_000, role=WORKER), "rows a chunk", default=10_000)
    on_type_error: str = key(choice("fail", "null"), "what a bad value does", default="fail")


@model
class ArtifactInput(Model):
    """Which object it is, and what is put there."""

    uri: Any = key(
        ANY, "address: `noetl://`, `s3://`, `gs://`, `nats-kv://`, `nats-obj://`, or `file://` "
        "under the data roots; a `put` without one names the object by its content", default=None,
    )  # fmt: skip
    result_ref: Any = key(
        ANY, "reference of a result, or a map that has it; beside `uri`: what is put there",
        default=None, aliases=("ref",),
    )  # fmt: skip
    data: Any = key(ANY, "what is put: text as it is, else JSON", default=None)
    data_b64: str | None = key(TEXT, "what is put, in base64", default=None)
    content_type: str | None = key(TEXT, "its media type", default=None)


@model
class Artifact(Task):
    """Reads and writes stored objects."""

    input: Mapping[str, Any] = key(
        Written(ArtifactInput),
        "which object, and what is put there",
        default_factory=dict,
        aliases=("args",),
    )

    action: str = needed(choice("get", "put", "head", "list", "delete", role=WORKER), "what to do")


@model
class RowRange(Model):
    """Some of the rows of a result."""

    offset: int | str = key(whole(0, role=WORKER), "rows to skip", default=0)
    limit: int | str | None = key(whole(0, role=WORKER), "most rows", default=None)


@model
class ResultFetch(Task):
    """Fetches a result by its reference."""

    ref: str = needed(TEXT, "the reference")
    path: str | None = key(TEXT, "path inside the result", default=None)
    rows: RowRange | None = key(Of(RowRange), "some of its rows", default=None)
    range: Mapping[str, Any] | None = key(Written(ByteRange), "some of its bytes", default=None)


@model
class Objects(Task):
    """Reads and writes an object store."""

    operation: str = needed(
        choice("get", "put", "list", "head", "delete", "copy", "sign", role=WORKER), "what to do"
    )
    bucket: str = needed(TEXT, "bucket")
    key_: str | None = key(TEXT, "object", name="key", default=None)
    prefix: str | None = key(TEXT, "prefix to list", default=None)
    ref: str | None = key(TEXT, "reference to the data", default=None)
    data: Any = key(ANY, "the data", default=None)
    path: str | None = key(TEXT, "file to put", default=None)
    source: Any = key(ByType(text=TEXT, map=MAP), "object to copy", default=None)
    content_type: str | None = key(TEXT, "content type", default=None)
    metadata: Mapping[str, Any] = key(MAP, "metadata", default_factory=dict)
    if_none_match: Any = key(
        ByType(text=TEXT, flag=Flag()),
        "create only; the store itself sees to it for bytes of one part (`multipart_mb`), of more "
        "it is asked before",
        default=None,
    )
    range: Mapping[str, Any] | None = key(Written(ByteRange), "bytes to get", default=None)
    multipart_mb: int | str = key(
        whole(5, 1024, role=WORKER), "part size; up to it all is one request", default=8
    )
    expires: int | str = key(whole(1, 604_800, role=WORKER), "life of a link", default=900)
    endpoint: str | None = key(TEXT, "endpoint", default=None)
    region: str | None = key(TEXT, "region", default=None)
