"""Connections to PostgreSQL: a pool for what somebody waits for, and one for what nobody does."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, TypeVar

import asyncpg

from noetl.clock import SystemClock
from noetl.store.errors import DatabaseBusy, DatabaseGone, StorageFull
from noetl.store.postgres.pool import CONNECT_S, Pool, closed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from typing import TypeAlias

    from noetl.clock import Clock
    from noetl.store.postgres.pool import Connection

    Held: TypeAlias = Connection

T = TypeVar("T")

FULL_S: Final = 5.0
"""How long a database counts as full after it had no space; who was refused comes back then."""
_STATEMENT_TIMEOUT: Final = "30s"
_SESSION: Final = {
    "application_name": "noetl",
    "timezone": "UTC",
    "idle_in_transaction_session_timeout": "15s",
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
# The statements of the main pool are few and repeat: planned once, for an index, whatever the
# tables held when the first of them came.
_MAIN: Final = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
# Lists are planned for what they are asked: a prefix and a rare value have indexes of their own.
_BACKGROUND: Final = {"plan_cache_mode": "force_custom_plan"}
_GONE: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.QueryCanceledError,
    asyncpg.ReadOnlySQLTransactionError,
    OSError,
)
_BUSY: Final = (asyncpg.InsufficientResourcesError, asyncpg.LockNotAvailableError)
_CLASHED: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


@contextlib.contextmanager
def translated(on_full: Callable[[], None] | None = None) -> Iterator[None]:
    """What the driver raises when the database is away, slow, full or busy, as an error of ours."""
    try:
        yield
    except asyncpg.DiskFullError as error:
        if on_full is not None:
            on_full()
        raise StorageFull(
            f"the database has no space left: {error}", hint="free space on its disk"
        ) from error
    except _BUSY as error:
        raise DatabaseBusy(f"the database has too much to do: {error}") from error
    except _GONE as error:
        raise _gone(error) from error
    except asyncpg.InterfaceError as error:
        if _is_misuse(error):
            raise
        raise DatabaseGone(f"the connection to the database was lost: {error}") from error
    except asyncpg.InternalClientError as error:
        # The server has ended the session and the socket is not closed yet: nothing was sent.
        if "cannot switch to state" not in str(error):
            raise
        raise DatabaseGone(f"the database has ended the session: {error}") from error


def _gone(error: Exception) -> DatabaseGone:
    if isinstance(error, asyncpg.QueryCanceledError):
        return DatabaseGone(f"the database did not answer in time: {error}")
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        hint = "is it a standby, or was it set to read only?"
        return DatabaseGone(f"the database takes no writes now: {error}", hint=hint)
    return DatabaseGone(
        f"the database cannot be reached: {str(error) or type(error).__name__}",
        hint="is PostgreSQL running, and is its address right?",
    )


def _is_misuse(error: asyncpg.InterfaceError) -> bool:
    """Whether the call was wrong; the driver has one class for that and for a lost connection."""
    return not any(word in str(error) for word in ("closed", "closing"))


class Connections:
    """A pool; each call takes a connection for itself."""

    def __init__(self, pool: Pool, clock: Clock | None = None) -> None:
        self._pool = pool
        self._clock = clock or SystemClock()
        self._full_at = -FULL_S

    @property
    def is_full(self) -> bool:
        """Whether the database has refused to write for lack of space a moment ago."""
        return self._clock.monotonic() - self._full_at < FULL_S

    def _is_full_now(self) -> None:
        self._full_at = self._clock.monotonic()

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:  # noqa: ANN401 - parameters
        """All rows."""
        return await self._repeated(lambda held: held.fetch(sql, *args))

    async def fetchrow(self, sql: str, *args: Any) -> asyncpg.Record | None:  # noqa: ANN401 - parameters
        """The first row."""
        return await self._repeated(lambda held: held.fetchrow(sql, *args))

    async def fetchval(self, sql: str, *args: Any) -> Any:  # noqa: ANN401 - parameters
        """The first column of the first row."""
        return await self._repeated(lambda held: held.fetchval(sql, *args))

    async def execute(self, sql: str, *args: Any) -> str:  # noqa: ANN401 - parameters
        """The command's tag."""
        return await self._repeated(lambda held: held.execute(sql, *args))

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for several statements; errors of its use are translated too."""
        with translated(self._is_full_now):
            async with self._pool.lend() as held:
                yield held

    def numbers(self) -> dict[str, int]:
        """The counters of the pool."""
        return self._pool.numbers()

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()

    async def _repeated(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        """One statement is one transaction: that of two which block each other is tried again."""
        with translated(self._is_full_now):
            async with self._pool.lend() as held:
                with contextlib.suppress(*_CLASHED):
                    return await use(held)
                return await use(held)


class Database(Connections):
    """The main pool, with the pool of loops and lists as `background`."""

    def __init__(self, url: str, main: Pool, background: Pool) -> None:
        super().__init__(main)
        self._url = url
        self.background = Connections(background)

    @classmethod
    async def open(cls, url: str, *, size: int = 16) -> Database:
        """Connect; `DatabaseGone` when nobody is there."""
        session = _SESSION | {"statement_timeout": _STATEMENT_TIMEOUT}
        main = Pool(url, least=2, most=max(size, 2), settings=session | _MAIN)
        background = Pool(url, least=1, most=4, settings=session | _BACKGROUND)
        with translated():
            await main.open()
            try:
                await background.open()
            except BaseException:
                main.terminate()
                raise
        return cls(url, main, background)

    @contextlib.asynccontextmanager
    async def dedicated(self) -> AsyncIterator[Connection]:
        """A connection outside the pools, which may wait as long as it likes."""
        with translated():
            held = await asyncpg.connect(
                self._url, timeout=CONNECT_S, server_settings=_SESSION | {"statement_timeout": "0"}
            )
            try:
                yield held
            finally:
                await asyncio.shield(closed(held))

    async def close(self) -> None:
        """Close both pools."""
        await self.background.close()
        await super().close()
