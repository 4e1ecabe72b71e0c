"""What is done to a database from outside of a server: migrations, backups, checks, questions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.clock import SystemClock, rfc3339
from noetl.edge.errors import NotFound
from noetl.ids import Ids
from noetl.server.access.tokens import digest, new_token
from noetl.server.identity.passwords import Passwords
from noetl.server.identity.tokens import DAYS
from noetl.store.identity import AccountRow, TokenRow
from noetl.store.postgres import asking, checks, dump, loading
from noetl.store.postgres import migrate as schema
from noetl.store.postgres.accounts import PostgresAccounts
from noetl.store.postgres.database import Database
from noetl.store.postgres.sessions import PostgresSessions
from noetl.store.postgres.tokens import PostgresTokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from noetl.api.internal import Purge, Purged


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """A token that is to be known before anybody can sign in."""

    token: str
    account: str
    roles: tuple[str, ...]
    name: str
    pool: str | None = None
    expires_at: str | None = None
    is_person: bool = False
    """Whether an account that is made for it may have a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One migration, and whether the database has it."""

    name: str
    sha256: str
    is_applied: bool


async def migrate(database_url: str) -> list[str]:
    """Bring a database to this release; the names of what was applied."""
    return await schema.migrate(database_url)


async def changes(database_url: str) -> list[Change]:
    """Every migration of this release and whether it was applied."""
    return [
        Change(name=one.name, sha256=one.sha256, is_applied=one.is_applied)
        for one in await schema.status(database_url)
    ]


async def welcome(database_url: str, bearers: Sequence[Bearer]) -> None:
    """Make tokens known; those that are known already stay as they are."""
    database = await Database.open(database_url, size=2)
    try:
        tokens, ids = PostgresTokens(database), Ids(SystemClock())
        for bearer in bearers:
            if bearer.is_person:
                made = AccountRow(account_id=ids.new(), subject=bearer.account, roles=bearer.roles)
                await PostgresAccounts(database).add(made)
            await tokens.put(
                TokenRow(
                    token_id=ids.new(),
                    sha256=digest(bearer.token),
                    account=bearer.account,
                    roles=bearer.roles,
                    name=bearer.name,
                    pool=bearer.pool,
                    expires_at=bearer.expires_at,
                )
            )
    finally:
        await database.close()


async def give_password(database_url: str, account: str, password: str) -> None:
    """Let an account sign in with this password; sessions that began with another one end."""
    database = await Database.open(database_url, size=2)
    try:
        accounts, passwords = PostgresAccounts(database), Passwords()
        row = await accounts.by_subject("default", account)
        if row is None:
            raise NotFound(f"there is no account {account}")
        if await passwords.fits(password, row.password_hash):
            return
        hashed = await passwords.hashed(password)
        await accounts.change(msgspec.structs.replace(row, password_hash=hashed))
        now = rfc3339(SystemClock().now())
        await PostgresSessions(database).revoke_all(row.account_id, now)
    finally:
        await database.close()


async def first_admin(database_url: str, account: str) -> tuple[str, str]:
    """Make an admin's account, or one more token of it; the token, and when it ends."""
    token = new_token()
    expires_at = rfc3339(SystemClock().now() + timedelta(days=DAYS["user"]))
    bearer = Bearer(
        token=token,
        account=account,
        roles=("admin",),
        name="db admin",
        expires_at=expires_at,
        is_person=True,
    )
    await welcome(database_url, (bearer,))
    return token, expires_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A table whose rows were written to a backup, or read from one."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """What a backup holds."""

    release: str
    created_at: str
    migrations: tuple[str, ...]
    tables: tuple[Copied, ...]


async def backup(
    database_url: str, file: Path, told: Callable[[Copied], None] | None = None
) -> Backup:
    """Write every row of the schema as one moment saw it; servers go on meanwhile."""
    return _told(await dump.backup(database_url, file, _telling(told)))


async def restore(
    database_url: str,
    file: Path,
    *,
    is_forced: bool = False,
    told: Callable[[Copied], None] | None = None,
) -> Backup:
    """Put a backup into an empty database; with `is_forced` what it holds is deleted first."""
    found = await loading.restore(database_url, file, is_forced=is_forced, told=_telling(told))
    return _told(found)


def verified(file: Path) -> Backup:
    """What a backup holds, once every byte of it was compared with what it promises."""
    return _told(loading.verify(file))


def _copied(table: dump.Table) -> Copied:
    return Copied(name=table.name, rows=table.rows, bytes=table.bytes)


def _told(found: dump.Manifest) -> Backup:
    return Backup(
        release=found.release,
        created_at=found.created_at,
        migrations=tuple(sorted(found.migrations)),
        tables=tuple(map(_copied, found.tables)),
    )


def _telling(told: Callable[[Copied], None] | None) -> Callable[[dump.Table], None] | None:
    return None if told is None else lambda table: told(_copied(table))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One thing that was looked at in a database."""

    name: str
    is_ok: bool
    meaning: str
    found: tuple[str, ...] = ()


async def check(database_url: str) -> list[Checked]:
    """Compare a database with the migrations, and its rows with what the engine relies on."""
    return [
        Checked(name=one.name, is_ok=one.is_ok, meaning=one.meaning, found=one.found)
        for one in await checks.check(database_url)
    ]


async def query(
    database_url: str, sql: str, schema_name: str = "noetl"
) -> tuple[list[dict[str, Any]], bool]:
    """The rows of one statement that reads, and whether there are more than are told."""
    return await asking.ask(database_url, sql, schema_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """What a doctor wants to know of a database."""

    version: str
    settings: dict[str, str]
    clock_offset_ms: float
    migrations_missing: int


async def vitals(database_url: str) -> Vitals:
    """Version, durability, clock and schema of a database."""
    clock = SystemClock()
    found = await checks.facts(database_url, lambda: clock.now().timestamp())
    return Vitals(
        version=found.version,
        settings=found.settings,
        clock_offset_ms=found.clock_offset_ms,
        migrations_missing=found.migrations_missing,
    )


async def retention(database_url: str, body: Purge) -> Purged:
    """Let go of what is old, as a server does; a dry run only says what would go."""
    # `noetl up` reads this module while its database starts, and needs none of these.
    from noetl.blobs.memory import MemoryBlobs  # noqa: PLC0415 - see above
    from noetl.bus.memory import MemoryBus  # noqa: PLC0415 - see above
    from noetl.server.metrics import ServerMetrics  # noqa: PLC0415 - see above
    from noetl.server.operations.upkeep import Retention  # noqa: PLC0415 - see above
    from noetl.server.parts import ServerParts  # noqa: PLC0415 - see above
    from noetl.store.postgres.store import PostgresStore  # noqa: PLC0415 - see above

    database = await Database.open(database_url, size=2)
    try:
        clock = SystemClock()
        parts = ServerParts(
            store=PostgresStore(database),
            bus=MemoryBus(),
            blobs=MemoryBlobs(),
            clock=clock,
            ids=Ids(clock),
        )
        return await Retention(parts, ServerMetrics()).purge(body)
    finally:
        await database.close()
