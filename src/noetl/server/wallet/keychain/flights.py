"""One renewal at a time: who wants the same value waits for the one that is under way."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

from noetl.errors import NoetlError
from noetl.secrets.source import SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

FLIGHT_S: Final = 30.0
_log: Final = logging.getLogger(__name__)


class Flights:
    """Work by key; while the loop runs, work goes on when those who asked for it have left."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Own the work that is under way, until the server stops."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._group = None

    async def one(self, key: str, work: Callable[[], Awaitable[T]]) -> T:
        """What the work of a key gives, begun here or by another."""
        found: asyncio.Future[T] | None = self._under_way.get(key)
        return await asyncio.shield(found or self._begin(key, work))

    def soon(self, key: str, work: Callable[[], Awaitable[object]]) -> None:
        """Begin work that nobody waits for, unless it is under way."""
        if key not in self._under_way:
            self._begin(key, work).add_done_callback(_told)

    def _begin(self, key: str, work: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[T] = loop.create_future()
        found.add_done_callback(_heard)
        self._under_way[key] = found
        begin = loop.create_task if self._group is None else self._group.create_task
        task = begin(self._flight(key, work, found), name=f"secret {key}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return found

    async def _flight(
        self, key: str, work: Callable[[], Awaitable[T]], found: asyncio.Future[T]
    ) -> None:
        """Do the work; whoever waits is told how it ended."""
        try:
            async with asyncio.timeout(FLIGHT_S):
                result = await work()
        except asyncio.CancelledError:
            found.cancel()
            raise
        except TimeoutError:
            fault = SourceUnavailable(f"the secret was not there within {FLIGHT_S:g} seconds")
            found.set_exception(fault)
        except Exception as fault:  # noqa: BLE001 - it is raised again for those who wait
            found.set_exception(fault)
        else:
            found.set_result(result)
        finally:
            del self._under_way[key]


def _heard(done: asyncio.Future[Any]) -> None:
    """Take note of a fault: those who asked may have left."""
    if not done.cancelled():
        done.exception()


def _told(done: asyncio.Future[Any]) -> None:
    """Say why a value was not renewed ahead of its time."""
    fault = None if done.cancelled() else done.exception()
    if fault is not None:
        reason = fault.message if isinstance(fault, NoetlError) else type(fault).__name__
        _log.warning("a secret was not renewed", extra={"reason": reason})
