"""Small things that threads do: those that come while some are done are done together next.

To hand one read or one deletion to a thread costs more than to do it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

MOST_AT_ONCE: Final = 256
Found = TypeVar("Found")


class Together(Generic[Found]):
    """Does one thing to many files."""

    def __init__(self, do: Callable[[Path], Found]) -> None:
        self._do = do
        self._waiting: list[tuple[Path, asyncio.Future[Found]]] = []
        self._task: asyncio.Task[None] | None = None

    async def of(self, path: Path) -> Found:
        """What came of one file; its fault is raised here."""
        done: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._waiting.append((path, done))
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="spool-files")
        return await done

    async def _run(self) -> None:
        """Group after group, until nobody waits."""
        group: list[tuple[Path, asyncio.Future[Found]]] = []
        try:
            while self._waiting:
                await asyncio.sleep(0)  # whoever is ready comes along
                group = self._waiting[:MOST_AT_ONCE]
                del self._waiting[:MOST_AT_ONCE]
                found = await asyncio.to_thread(self._all, [path for path, _ in group])
                for (_, done), one in zip(group, found, strict=True):
                    _tell(done, one)
        except BaseException:
            for _, done in (*group, *self._waiting):
                done.cancel()
            self._waiting.clear()
            raise
        finally:
            self._task = None

    def _all(self, paths: Sequence[Path]) -> list[tuple[Found | None, Exception | None]]:
        return [self._one(path) for path in paths]

    def _one(self, path: Path) -> tuple[Found | None, Exception | None]:
        try:
            return self._do(path), None
        except Exception as fault:  # noqa: BLE001 - the border: whoever waits is told
            return None, fault


def _tell(done: asyncio.Future[Found], one: tuple[Found | None, Exception | None]) -> None:
    found, fault = one
    if done.done():
        return  # whoever asked went away
    if fault is not None:
        done.set_exception(fault)
    else:
        done.set_result(found)  # type: ignore[arg-type]  # none only where that is what was found
