"""Whether a database keeps what it was told: production refuses one that may forget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.errors import UnsafeDatabase

if TYPE_CHECKING:
    from noetl.store.postgres.database import Database

_OLDEST: Final = 150000
_SETTINGS: Final = """
select name, setting from pg_settings
where name in ('fsync', 'full_page_writes', 'synchronous_commit') and setting = 'off'
order by name"""
_VERSION: Final = "select current_setting('server_version_num')::int"


async def require_durable(database: Database) -> None:
    """Refuse a database that loses commits in a crash, or is older than what we rely on."""
    version: int = await database.background.fetchval(_VERSION)
    if version < _OLDEST:
        raise UnsafeDatabase(
            f"PostgreSQL {version // 10000} is too old", hint="version 15 or newer is needed"
        )
    unsafe = [row["name"] for row in await database.background.fetch(_SETTINGS)]
    if unsafe:
        raise UnsafeDatabase(
            f"the database may forget commits: {', '.join(unsafe)} is off",
            hint="switch it on in postgresql.conf, or run with NOETL_ENV=dev",
        )
