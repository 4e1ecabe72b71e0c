"""The children and the files of one worker: what every task that runs DuckDB shares."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from noetl.tools.base import ToolError
from noetl.tools.duckdb.children import Children
from noetl.tools.roots import place_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from noetl.tools.base import ToolContext
    from noetl.tools.duckdb.children import Child

MEMORY: Final = ":memory:"
_MARGIN_S: Final = 0.05  # a wait for a file ends before the deadline of its task does


class Engine:
    """Children to run jobs in, and one writer per file."""

    def __init__(self, roots: tuple[Path, ...], python: str = sys.executable) -> None:
        self.roots = roots
        self.children = Children(python)
        self.writers: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    async def close(self) -> None:
        """End the children that wait for work."""
        await self.children.close()

    def file_of(self, path: str) -> Path:
        """The place of a database under the data roots."""
        return place_for(path.removeprefix("file://"), self.roots)

    def job(self, database: str, texts: Iterable[str], **more: Any) -> dict[str, Any]:  # noqa: ANN401 - keys of a job
        """What a child is told, with the defaults of the kind, but for its folder."""
        return {
            "database": database,
            "texts": list(texts),
            "params": None,
            "attach": [],
            "extensions": [],
            "roots": [str(root.resolve()) for root in self.roots],
            "memory_limit": "1GB",
            "threads": 2,
            "as_objects": True,
            "max_rows": 100_000,
            "max_bytes": 64 << 20,
            "spill": None,
            "export": None,
            **more,
        }

    @asynccontextmanager
    async def child(self) -> AsyncIterator[Child]:
        """A child for one task, with a folder that is emptied afterwards."""
        child = await self.children.take()
        try:
            yield child
        finally:
            await self.children.give(child)

    async def run(self, child: Child, job: dict[str, Any]) -> dict[str, Any]:
        """The data of a job that is run in a child."""
        told = {**job, "scratch": str(child.scratch)}
        return (await self.children.run(child, told)).data

    @asynccontextmanager
    async def writer(self, files: Iterable[Path], ctx: ToolContext) -> AsyncIterator[None]:
        """One writer per file; who waits too long is told that the file was busy."""
        deadline = None if ctx.deadline is None else ctx.deadline - _MARGIN_S
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout_at(deadline):
                    for path in sorted(set(files)):
                        lock = self.writers.setdefault(path, asyncio.Lock())
                        await held.enter_async_context(lock)
            except TimeoutError:
                message = "another task writes to the file"
                raise ToolError("db_timeout", "database_locked", message) from None
            yield
