"""Connections that are kept between tasks: a few per database, for some minutes.

Each is given on as new: what a task set, locked, prepared or made for itself is gone.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from psycopg import AsyncConnection

    Connection = AsyncConnection[Any]
    Open = Callable[[], Awaitable[Connection]]
    Begin = Callable[[Connection], Awaitable[object]]

MOST_CONNECTIONS: Final = 4
MOST_POOLS: Final = 32
IDLE_S: Final = 300.0
RESET_S: Final = 5.0


class _Pool:
    """The connections to one database with one credential."""

    def __init__(self, most: int) -> None:
        self.free = asyncio.Semaphore(most)
        self.idle: list[tuple[Connection, float]] = []
        self.users = 0


class Lease:
    """A connection that belongs to a task for now."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_spoiled = True
        """Whether nobody knows what state it is in; the task says when it does."""


class Pools:
    """Pools by key, the least used of them closed when there are too many."""

    def __init__(
        self, *, most: int = MOST_CONNECTIONS, pools: int = MOST_POOLS, idle_s: float = IDLE_S
    ) -> None:
        self._most = most
        self._most_pools = pools
        self._idle_s = idle_s
        self._pools: OrderedDict[str, _Pool] = OrderedDict()
        self._chores: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> int:
        """How many connections wait for a task."""
        return sum(len(pool.idle) for pool in self._pools.values())

    def __len__(self) -> int:
        return len(self._pools)

    @asynccontextmanager
    async def lend(self, key: str, open_: Open, begin: Begin) -> AsyncIterator[Lease]:
        """A connection on which `begin` went well; a kept one that died is replaced."""
        pool = self._pool(key)
        pool.users += 1
        try:
            await pool.free.acquire()
            lease = await self._taken(pool, open_, begin)
            try:
                yield lease
            finally:
                self._later(self._give_back(pool, lease))
        finally:
            pool.users -= 1
            self._shrink()

    async def settled(self) -> None:
        """Wait until every connection that was given back lies in its pool."""
        while self._chores:
            await asyncio.wait(self._chores)

    async def close(self) -> None:
        """Close every connection that no task has."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        await self.settled()
        for pool in self._pools.values():
            await _close(pool.idle)
        self._pools.clear()

    def _pool(self, key: str) -> _Pool:
        pool = self._pools.setdefault(key, _Pool(self._most))
        self._pools.move_to_end(key)
        self._shrink()
        return pool

    def _shrink(self) -> None:
        """Forget pools that were not used for longest, but none that is in use."""
        for key in list(self._pools)[:-1]:
            if len(self._pools) <= self._most_pools:
                break
            if not self._pools[key].users:
                self._later(_close(self._pools.pop(key).idle))

    async def _taken(self, pool: _Pool, open_: Open, begin: Begin) -> Lease:
        try:
            return await self._begun(pool, open_, begin)
        except BaseException:
            pool.free.release()
            raise

    async def _begun(self, pool: _Pool, open_: Open, begin: Begin) -> Lease:
        while pool.idle:
            connection, _ = pool.idle.pop()
            try:
                await begin(connection)
            except BaseException as fault:
                is_dead = connection.broken or connection.closed
                await connection.close()
                if not is_dead or not isinstance(fault, Exception):
                    raise
            else:
                return Lease(connection)
        connection = await open_()
        try:
            await begin(connection)
        except BaseException:
            await connection.close()
            raise
        return Lease(connection)

    async def _give_back(self, pool: _Pool, lease: Lease) -> None:
        connection = lease.connection
        try:
            if not lease.is_spoiled and await _reset(connection):
                pool.idle.append((connection, asyncio.get_running_loop().time()))
                self._watch()
            else:
                await connection.close()
        finally:
            pool.free.release()
            if pool not in self._pools.values():  # it was forgotten meanwhile
                await _close(pool.idle)

    def _watch(self) -> None:
        if self._sweeper is None:
            loop = asyncio.get_running_loop()
            self._sweeper = loop.call_later(self._idle_s, self._sweep)

    def _sweep(self) -> None:
        """Close what nobody used for a while."""
        self._sweeper = None
        before = asyncio.get_running_loop().time() - self._idle_s
        old: list[tuple[Connection, float]] = []
        for pool in self._pools.values():
            old += [item for item in pool.idle if item[1] <= before]
            pool.idle[:] = [item for item in pool.idle if item[1] > before]
        if old:
            self._later(_close(old))
        for key in [key for key, pool in self._pools.items() if not pool.idle and not pool.users]:
            del self._pools[key]
        if self.idle:
            self._watch()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)


async def _reset(connection: Connection) -> bool:
    """Make a connection as new; whether that went well."""
    from psycopg import Error  # noqa: PLC0415 - loaded with the first task
    from psycopg.pq import TransactionStatus  # noqa: PLC0415 - loaded with the first task

    try:
        async with asyncio.timeout(RESET_S):
            if connection.pgconn.transaction_status != TransactionStatus.IDLE:
                await connection.execute("rollback")
            await connection.execute("discard all")
    except (Error, TimeoutError):
        return False
    return not connection.closed


async def _close(connections: list[tuple[Connection, float]]) -> None:
    while connections:
        connection, _ = connections.pop()
        await connection.close()
