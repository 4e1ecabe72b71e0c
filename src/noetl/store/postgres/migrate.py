"""The schema: SQL files in the order of their names, each applied once and never changed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING, Final

import asyncpg

from noetl.store.errors import MigrationRefused
from noetl.store.postgres.database import translated
from noetl.telemetry.failpoint import failpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

MONTHS_AHEAD: Final = 3
_CONNECT_S: Final = 10.0
_LOCK: Final = "select pg_advisory_lock(hashtextextended('noetl:migrate', 0))"
_TABLE: Final = """
create schema if not exists noetl;
create table if not exists noetl.migration (
    name text primary key,
    sha256 text not null,
    applied_at timestamptz not null default now()
)"""
_IS_THERE: Final = "select to_regclass('noetl.migration') is not null"
_APPLIED: Final = "select name, sha256 from noetl.migration order by name"
_NOTE: Final = "insert into noetl.migration (name, sha256) values ($1, $2)"
ENSURE_PARTITIONS: Final = "select noetl.ensure_partitions(now(), $1)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One file, and whether the database has it."""

    name: str
    sha256: str
    is_applied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The text of a migration."""

    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """What the database remembers of the text."""
        return sha256(self.sql.encode()).hexdigest()


def scripts() -> list[Script]:
    """The migrations of this release."""
    folder = resources.files("noetl.store.postgres") / "migrations"
    found = [item for item in folder.iterdir() if item.name.endswith(".sql")]
    return [
        Script(name=item.name.removesuffix(".sql"), sql=item.read_text(encoding="utf-8"))
        for item in sorted(found, key=lambda item: item.name)
    ]


async def migrate(url: str, known: Sequence[Script] | None = None) -> list[str]:
    """Bring a database to this release, one migrator at a time; the names that were applied."""
    applied: list[str] = []
    async with _connected(url) as connection:
        await connection.execute(_LOCK)
        await connection.execute(_TABLE)
        for script in _missing(scripts() if known is None else known, await recorded(connection)):
            async with connection.transaction():
                await connection.execute(script.sql)
                await connection.execute(_NOTE, script.name, script.sha256)
                await failpoint("migration.apply")
            await failpoint("migration.applied")
            applied.append(script.name)
        await connection.execute(ENSURE_PARTITIONS, MONTHS_AHEAD)
    return applied


async def status(url: str, known: Sequence[Script] | None = None) -> list[Migration]:
    """Every migration of this release and whether it was applied; foreign ones are refused."""
    known = scripts() if known is None else known
    async with _connected(url) as connection:
        had = await recorded(connection) if await connection.fetchval(_IS_THERE) else {}
    _missing(known, had)
    return [Migration(name=s.name, sha256=s.sha256, is_applied=s.name in had) for s in known]


def _missing(known: Sequence[Script], had: dict[str, str]) -> list[Script]:
    """What is still to be applied, when all that was applied is known and unchanged."""
    by_name = {script.name: script for script in known}
    if foreign := sorted(set(had) - set(by_name)):
        raise MigrationRefused(
            f"the database has the migration `{foreign[0]}`, which this release does not know",
            hint="it was written by a newer release: start that one",
        )
    for name, digest in had.items():
        if by_name[name].sha256 != digest:
            raise MigrationRefused(
                f"the migration `{name}` is not the one that was applied",
                hint="a migration is never changed: add a new one",
            )
    last = max(had, default="")
    rest = [script for script in known if script.name not in had]
    for script in rest:
        if script.name < last:
            raise MigrationRefused(
                f"the migration `{script.name}` comes before `{last}`, which was applied",
                hint="migrations only go forward",
            )
    return rest


async def recorded(connection: asyncpg.Connection[asyncpg.Record]) -> dict[str, str]:
    """What was applied, with the digest of each text."""
    return {row["name"]: row["sha256"] for row in await connection.fetch(_APPLIED)}


@contextlib.asynccontextmanager
async def _connected(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    with translated():
        connection = await asyncpg.connect(
            url, timeout=_CONNECT_S, server_settings={"timezone": "UTC"}
        )
        try:
            yield connection
        finally:
            await connection.close()
