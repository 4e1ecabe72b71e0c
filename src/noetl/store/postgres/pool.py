"""Connections that are lent one at a time, made when they are needed and kept for a while.

The driver's own pool starts two tasks and a reset for every statement, which costs more than a
small statement does. Here a free connection is taken from a list.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final

import asyncpg

from noetl.store.errors import DatabaseBusy, DatabaseGone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from typing import TypeAlias

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

ACQUIRE_S: Final = 2.0
CONNECT_S: Final = 5.0
CLOSE_S: Final = 5.0
LIFETIME_S: Final = 1800.0
LENT_S: Final = 32.0
"""Longer than the database works on a statement: whoever has no answer by then gets none."""


class Pool:
    """At most so many connections; whoever waits longer than two seconds for one is told so."""

    def __init__(
        self,
        url: str,
        *,
        least: int,
        most: int,
        settings: Mapping[str, str],
        lent_s: float = LENT_S,
    ) -> None:
        self._url = url
        self._lent_s = lent_s
        self._least = least
        self._most = most
        self._settings = dict(settings)
        self._free: list[Connection] = []
        self._born: dict[Connection, float] = {}
        self._making = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    async def open(self) -> None:
        """Make the first connections."""
        try:
            async with asyncio.TaskGroup() as group:
                made = [group.create_task(self._make()) for _ in range(self._least)]
        except BaseExceptionGroup as group_error:
            self.terminate()
            raise group_error.exceptions[0] from group_error
        self._free += [task.result() for task in made]

    @contextlib.asynccontextmanager
    async def lend(self) -> AsyncIterator[Connection]:
        """A connection; one that was left in the middle of something is not used again.

        Nor is one to a server that takes no writes: the next may find the one that does.
        """
        held = await self.take()
        watch = asyncio.get_running_loop().call_later(self._lent_s, self._unanswered, held)
        try:
            yield held
        except (asyncio.CancelledError, asyncpg.ReadOnlySQLTransactionError):
            held.terminate()
            raise
        finally:
            watch.cancel()
            self.give_back(held)

    async def take(self) -> Connection:
        """A free connection, or a new one, or the next that is given back."""
        until = asyncio.get_running_loop().time() + ACQUIRE_S
        while True:
            if self._is_closed:
                raise DatabaseGone("the connections to the database were closed")
            while self._free:
                held = self._free.pop()
                if not held.is_closed():
                    return held
                self._forget(held)
            if len(self._born) + self._making < self._most:
                return await self._make()
            await self._turn(until)

    def give_back(self, held: Connection) -> None:
        """Let others use a connection."""
        if held not in self._born:
            return
        age_s = asyncio.get_running_loop().time() - self._born[held]
        if self._is_closed or held.is_closed() or held.is_in_transaction() or age_s > LIFETIME_S:
            held.terminate()
            self._forget(held)
        else:
            self._free.append(held)
        self._wake()

    def numbers(self) -> dict[str, int]:
        """Connections at least, at most, open and idle, and how many requests wait for one."""
        return {
            "least": self._least,
            "most": self._most,
            "size": len(self._born) + self._making,
            "idle": len(self._free),
            "waiting": len(self._waiting),
        }

    async def close(self) -> None:
        """Close what is free; what is lent now is dropped."""
        self._is_closed = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        free, self._free = self._free, []
        await asyncio.gather(*map(closed, free))
        for held in free:
            self._forget(held)
        self.terminate()

    def terminate(self) -> None:
        """Drop everything at once."""
        self._is_closed = True
        for held in list(self._born):
            held.terminate()
            self._forget(held)

    async def _turn(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout_at(until):
                await waiting
        except TimeoutError:
            raise DatabaseBusy(
                f"no connection to the database came free within {ACQUIRE_S:g} s",
                hint="NOETL_DATABASE_POOL_MAX says how many there are",
            ) from None
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self._wake()  # it was our turn: let the next one go
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(waiting)

    def _wake(self) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

    async def _make(self) -> Connection:
        self._making += 1
        try:
            held = await asyncpg.connect(
                self._url,
                timeout=CONNECT_S,
                server_settings=self._settings,
                max_cached_statement_lifetime=0,  # a plan is kept as long as its connection
            )
        except BaseException:
            self._wake()
            raise
        finally:
            self._making -= 1
        if self._is_closed:
            held.terminate()
            raise DatabaseGone("the connections to the database were closed")
        self._born[held] = asyncio.get_running_loop().time()
        return held

    def _unanswered(self, held: Connection) -> None:
        """End a connection that says nothing; those at rest may be as dead, and are made anew."""
        for each in (held, *self._free):
            each.terminate()

    def _forget(self, held: Connection) -> None:
        self._born.pop(held, None)


async def closed(held: Connection) -> None:
    """Close a connection politely, or at once when it was lost already."""
    try:
        await held.close(timeout=CLOSE_S)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        held.terminate()
