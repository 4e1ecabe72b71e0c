"""What is done to a database from outside of a server: migrations, and the first tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl.clock import SystemClock
from noetl.ids import Ids
from noetl.server.tokens import digest
from noetl.store.base import TokenRow
from noetl.store.postgres import migrate as schema
from noetl.store.postgres.database import Database
from noetl.store.postgres.tokens import PostgresTokens

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """A token that is to be known before anybody can sign in."""

    token: str
    account: str
    roles: tuple[str, ...]
    name: str
    pool: str | None = None


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
            await tokens.put(
                TokenRow(
                    token_id=ids.new(),
                    sha256=digest(bearer.token),
                    account=bearer.account,
                    roles=bearer.roles,
                    name=bearer.name,
                    pool=bearer.pool,
                )
            )
    finally:
        await database.close()
