"""The way back of a backup: verified first, then put into an empty database as a stream."""

from __future__ import annotations

import contextlib
import json
import zipfile
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar, Final

from noetl.errors import NoetlError
from noetl.store.postgres import migrate as schema
from noetl.store.postgres.dump import (
    FORMAT,
    IS_TABLE,
    MANIFEST,
    VERSION,
    Manifest,
    Table,
    connected,
    quoted,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from noetl.store.postgres.dump import Connection

_OTHERS: Final = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and application_name = 'noetl'"""
_MONTH: Final = "select noetl.ensure_partitions(to_timestamp($1, 'YYYY_MM'), 0)"
_SET: Final = "select setval(format('noetl.%I', $1::text)::regclass, $2)"
_DROP: Final = "drop schema if exists noetl cascade"
_PART: Final = 256 << 10
_MOST_MANIFEST: Final = 16 << 20
_OWNED: Final = (
    "execution",
    "event",
    "catalog",
    "credential",
    "schedule",
    "subscription",
    "plugin",
)
"""Tables that hold what people and runs have made; rows elsewhere make no database."""


class BackupDamaged(NoetlError):
    """A file that is no backup, or not the one that was written."""

    code = "backup_damaged"
    status: ClassVar[int] = 422


class RestoreRefused(NoetlError):
    """A database that a backup cannot be restored into."""

    code = "restore_refused"
    status: ClassVar[int] = 409


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError) as fault:
        raise BackupDamaged(
            f"{file} is not a whole backup: {fault}", hint="take another one"
        ) from fault


def _manifest(archive: zipfile.ZipFile) -> Manifest:
    try:
        if archive.getinfo(MANIFEST).file_size > _MOST_MANIFEST:
            raise BackupDamaged("the manifest is too large to be one")
        told = json.loads(archive.read(MANIFEST))
        tables = [Table(**table) for table in told.pop("tables")]
        found = Manifest(**told, tables=tables)
    except (KeyError, ValueError, TypeError, AttributeError) as fault:
        raise BackupDamaged(f"the file has no manifest of a backup: {fault}") from fault
    if (found.format, found.version) != (FORMAT, VERSION):
        raise BackupDamaged(
            f"the file is of format {found.format} {found.version}",
            hint=f"this release reads {FORMAT} {VERSION}",
        )
    return found


def verify(file: Path) -> Manifest:
    """Read every byte of a backup and compare it with what the manifest promises."""
    with _opened(file) as archive:
        found = _manifest(archive)
        for table in found.tables:
            digest, size = sha256(), 0
            for part in _parts(archive, table):
                digest.update(part)
                size += len(part)
            if (size, digest.hexdigest()) != (table.bytes, table.sha256):
                raise BackupDamaged(
                    f"the rows of `{table.name}` are not those that were written",
                    hint="the file was changed or cut: take another one",
                )
    return found


def _parts(archive: zipfile.ZipFile, table: Table) -> Iterator[bytes]:
    try:
        with archive.open(table.member) as rows:
            while part := rows.read(_PART):
                yield part
    except KeyError as fault:
        raise BackupDamaged(f"the file has no rows of `{table.name}`") from fault
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as fault:
        raise BackupDamaged(f"the rows of `{table.name}` cannot be read: {fault}") from fault


async def restore(
    url: str, file: Path, *, is_forced: bool = False, told: Callable[[Table], None] | None = None
) -> Manifest:
    """Put a backup into an empty database, and bring it to this release.

    With `is_forced` what the database holds is deleted first.
    """
    found = verify(file)
    scripts = _scripts(found)
    async with connected(url) as connection:
        await _must_be_free(connection, is_forced=is_forced)
        await connection.execute(_DROP)
        await schema.migrate(url, scripts)
        async with connection.transaction():
            await _load(connection, file, found, told)
        await connection.execute("analyze")
    await schema.migrate(url)
    return found


def _scripts(found: Manifest) -> list[schema.Script]:
    """The migrations that the rows fit, which are the first ones of this release."""
    known = {script.name: script for script in schema.scripts()}
    foreign = [
        name
        for name, digest in found.migrations.items()
        if name not in known or known[name].sha256 != digest
    ]
    if foreign:
        raise RestoreRefused(
            f"the backup is of release {found.release}, whose migration `{foreign[0]}` is not "
            "known here",
            hint="restore it with that release or a newer one",
        )
    return [known[name] for name in sorted(found.migrations)]


async def _must_be_free(connection: Connection, *, is_forced: bool) -> None:
    if await connection.fetchval(_OTHERS):
        raise RestoreRefused(
            "a server is connected to the database", hint="stop it first: `noetl down`"
        )
    if is_forced:
        return
    for name in _OWNED:
        if await connection.fetchval(IS_TABLE, name) and await _has_rows(connection, name):
            raise RestoreRefused(
                f"the database is not empty: `{name}` has rows",
                hint="restore into an empty one, or delete what it holds with `--yes --force`",
            )


async def _has_rows(connection: Connection, name: str) -> bool:
    sql = f"select exists (select from noetl.{quoted(name)})"  # noqa: S608 - quoted
    return bool(await connection.fetchval(sql))


async def _load(
    connection: Connection,
    file: Path,
    found: Manifest,
    told: Callable[[Table], None] | None,
) -> None:
    for name in found.partitions:
        await connection.execute(_MONTH, name.removeprefix("event_"))
    for table in reversed(found.tables):
        if await _has_rows(
            connection, table.name
        ):  # migrations made them: they are in the file too
            await connection.execute(f"delete from noetl.{quoted(table.name)}")  # noqa: S608 - quoted
    with _opened(file) as archive:
        for table in found.tables:
            tag = await connection.copy_to_table(
                table.name,
                schema_name="noetl",
                columns=table.columns,
                source=_streamed(archive, table),
            )
            if int(tag.split()[-1]) != table.rows:
                raise BackupDamaged(f"`{table.name}` came to another number of rows")
            if told is not None:
                told(table)
    for name, value in found.sequences.items():
        await connection.execute(_SET, name, value)


async def _streamed(archive: zipfile.ZipFile, table: Table) -> AsyncIterator[bytes]:
    for part in _parts(archive, table):
        yield part
