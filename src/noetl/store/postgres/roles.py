"""What only one process of a cluster does at a time, held as advisory locks of its sessions.

A session that ends, however it ends, gives up what it held; so nobody has to clean up after a
process that died.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

import asyncpg

from noetl.store.errors import DatabaseGone
from noetl.store.locks import Locks
from noetl.store.postgres.database import translated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from noetl.store.postgres.database import Database, Held

T = TypeVar("T")

PROBE_S: Final = 5.0
_EXCLUSIVE: Final = 2
"""Connections of the background pool that waiting for names may take."""
_WATCHED: Final = """
select set_config('tcp_keepalives_idle', '5', false),
    set_config('tcp_keepalives_interval', '2', false),
    set_config('tcp_keepalives_count', '5', false),
    set_config('client_connection_check_interval', '5s', false)"""
"""A server that cannot reach the holder any more takes the role back after 15 s."""
_LOCK: Final = "select pg_advisory_lock(hashtextextended('noetl:' || $1, 0))"
_LOCK_BRIEFLY: Final = "select pg_advisory_xact_lock(hashtextextended('noetl:' || $1, 0))"
"""Until the transaction ends: a connection of a pool is never given back with a lock."""
_PROBE: Final = "select 1"
_ENDED: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)


class PostgresRoles:
    """Roles of the servers that share a database."""

    def __init__(self, database: Database, *, probe_s: float = PROBE_S) -> None:
        self._database = database
        self._probe_s = probe_s
        self._here = Locks()
        self._room = asyncio.Semaphore(_EXCLUSIVE)

    @asynccontextmanager
    async def lead(self, role: str) -> AsyncIterator[asyncio.Event]:
        """Wait for a role and hold it; the event is set when its connection was lost."""
        lost = asyncio.Event()
        async with _apart(self._database.dedicated()) as connection:
            connection.add_termination_listener(lambda _: lost.set())
            with translated():
                await connection.execute(_WATCHED)
                await connection.execute(_LOCK, f"role:{role}")
            probing = asyncio.create_task(
                _probe(connection, lost, self._probe_s), name=f"role {role}"
            )
            try:
                yield lost
            finally:
                probing.cancel()
                await asyncio.gather(probing, return_exceptions=True)

    @asynccontextmanager
    async def exclusive(self, key: str) -> AsyncIterator[None]:
        """Wait for a name and hold it for a short while.

        Those of one process wait for each other here, so that only one of them takes a connection.
        """
        async with self._here.of(key), self._room, _apart(self._held(key)):
            yield

    @asynccontextmanager
    async def _held(self, key: str) -> AsyncIterator[None]:
        try:
            async with (
                self._database.background.connection() as connection,
                connection.transaction(),
            ):
                await connection.execute(_LOCK_BRIEFLY, f"key:{key}")
                yield
        except asyncpg.InternalClientError as error:  # ended by the server, and not yet closed
            raise DatabaseGone(f"the connection that held {key} was lost") from error


@asynccontextmanager
async def _apart(holding: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Hold something while others work: what they raise is theirs, and no failure of it."""
    held = await holding.__aenter__()
    try:
        yield held
    except BaseException:
        with suppress(DatabaseGone):
            await holding.__aexit__(None, None, None)
        raise
    await holding.__aexit__(None, None, None)


async def _probe(connection: Held, lost: asyncio.Event, every_s: float) -> None:
    """Notice a network that swallows everything before the server gives the role to another."""
    while not lost.is_set():
        await asyncio.sleep(every_s)
        try:
            await connection.execute(_PROBE, timeout=every_s)
        except _ENDED:
            lost.set()  # as the listener does, when the connection ended by itself
    connection.terminate()
