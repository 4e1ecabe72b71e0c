"""A backup: one file with the rows of every table as one moment saw them.

The file is a ZIP archive. `manifest.json` names the format, the release, the migrations that the
database had, the monthly partitions, the sequences, and per table its columns, how many rows it
has, and the size and SHA-256 of its member. `tables/<name>.copy` holds the rows as PostgreSQL's
`COPY` writes text (UTF-8, dates in ISO style, times in UTC). Tables stand in an order in which
their references can be kept. What runs now (`runtime`) is of its own place and is not in it.

It is written and read as a stream: a table of any size takes the memory of one part of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
from dataclasses import asdict, dataclass, field
from graphlib import TopologicalSorter
from hashlib import sha256
from typing import IO, TYPE_CHECKING, Any, Final

import asyncpg

from noetl import __version__
from noetl.store.errors import MigrationRefused
from noetl.store.postgres import migrate as schema
from noetl.store.postgres.database import translated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    Connection = asyncpg.Connection[asyncpg.Record]

FORMAT: Final = "noetl-backup"
VERSION: Final = 1
MANIFEST: Final = "manifest.json"
NOT_KEPT: Final = ("migration", "runtime", "execution_label")
"""What a database has of itself: labels, for one, are written by every run that is restored."""
_CONNECT_S: Final = 10.0
_SESSION: Final = {
    "application_name": "noetl backup",
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
_TABLES: Final = """
select c.relname as name, array_agg(a.attname::text order by a.attnum) as columns
from pg_class c join pg_attribute a on a.attrelid = c.oid
where c.relnamespace = to_regnamespace('noetl') and c.relkind in ('r', 'p')
    and not c.relispartition and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
group by c.relname order by c.relname"""
_REFERENCES: Final = """
select f.conrelid::regclass::text as name, f.confrelid::regclass::text as needs
from pg_constraint f where f.contype = 'f' and f.connamespace = to_regnamespace('noetl')"""
_PARTITIONS: Final = """
select c.relname as name from pg_class c
where c.relnamespace = to_regnamespace('noetl') and c.relispartition
    and c.relname ~ '^event_[0-9]{4}_[0-9]{2}$' order by c.relname"""
_SEQUENCES: Final = """
select sequencename as name, last_value from pg_sequences
where schemaname = 'noetl' and last_value is not null order by sequencename"""
IS_TABLE: Final = "select to_regclass(format('noetl.%I', $1::text)) is not null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of a backup."""

    name: str
    columns: list[str]
    rows: int = 0
    bytes: int = 0
    sha256: str = ""

    @property
    def member(self) -> str:
        """Its place in the file."""
        return f"tables/{self.name}.copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a backup says about itself."""

    format: str = FORMAT
    version: int = VERSION
    release: str = __version__
    created_at: str = ""
    migrations: dict[str, str] = field(default_factory=dict)
    partitions: list[str] = field(default_factory=list)
    sequences: dict[str, int] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)


async def backup(url: str, file: Path, told: Callable[[Table], None] | None = None) -> Manifest:
    """Write a backup beside its place, then put it there; nobody is stopped meanwhile."""
    beside = file.with_name(f".{file.name}.{os.getpid()}.part")
    opened = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(opened, "wb") as out:
            made = await _write(url, out, told)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
    return made


async def _write(url: str, out: IO[bytes], told: Callable[[Table], None] | None) -> Manifest:
    # One moment for all tables: what is committed later is not in it, and nobody waits.
    async with (
        connected(url) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        if not await connection.fetchval(IS_TABLE, "migration"):
            raise MigrationRefused("the database has no schema of NoETL", hint="is it the one?")
        migrations = await schema.recorded(connection)
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            tables = []
            for table in await _tables(connection):
                tables.append(await _copied(connection, archive, table))
                if told is not None:
                    told(tables[-1])
            sequences = await connection.fetch(_SEQUENCES)
            made = Manifest(
                created_at=await connection.fetchval("select to_json(now()) #>> '{}'"),
                migrations=migrations,
                partitions=[row["name"] for row in await connection.fetch(_PARTITIONS)],
                sequences={row["name"]: row["last_value"] for row in sequences},
                tables=tables,
            )
            archive.writestr(MANIFEST, json.dumps(asdict(made), indent=1))
    return made


async def _tables(connection: Connection) -> list[Table]:
    """The tables, those first that others refer to."""
    found = {row["name"]: list(row["columns"]) for row in await connection.fetch(_TABLES)}
    order = TopologicalSorter({name: set[str]() for name in found})
    for row in await connection.fetch(_REFERENCES):
        name, needs = (row[key].removeprefix("noetl.") for key in ("name", "needs"))
        if name != needs:
            order.add(name, needs)
    kept = [name for name in order.static_order() if name in found and name not in NOT_KEPT]
    return [Table(name=name, columns=found[name]) for name in kept]


async def _copied(connection: Connection, archive: zipfile.ZipFile, table: Table) -> Table:
    digest, size = sha256(), 0
    with archive.open(table.member, "w", force_zip64=True) as out:

        async def take(part: bytes) -> None:
            nonlocal size
            digest.update(part)
            size += len(part)
            out.write(part)

        columns = ", ".join(map(quoted, table.columns))
        rows = f"select {columns} from noetl.{quoted(table.name)}"  # noqa: S608 - names of the catalog, quoted
        tag = await connection.copy_from_query(rows, output=take)
    return Table(
        name=table.name,
        columns=table.columns,
        rows=int(tag.split()[-1]),
        bytes=size,
        sha256=digest.hexdigest(),
    )


def quoted(name: str) -> str:
    """A name of the catalog as SQL has it."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


@contextlib.asynccontextmanager
async def connected(url: str, **settings: Any) -> AsyncIterator[Connection]:  # noqa: ANN401 - texts
    """A connection of its own, whose texts look the same on every server."""
    with translated():
        connection = await asyncpg.connect(
            url, timeout=_CONNECT_S, server_settings=_SESSION | settings
        )
        try:
            yield connection
        finally:
            await connection.close()
