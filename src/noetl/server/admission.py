"""Concurrency keys: how many runs of a key are under way, and which one may begin next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.engine import events as ev
from noetl.server.errors import UnknownExecution
from noetl.server.locks import Locks
from noetl.server.posts import Post, Stamped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from noetl.engine.state import State
    from noetl.server.ingest import Ingest
    from noetl.server.programs import Programs
    from noetl.store.base import ExecutionRow, Executions


class Admissions:
    """Lets queued runs begin."""

    def __init__(self, executions: Executions, programs: Programs, ingest: Ingest) -> None:
        self._executions = executions
        self._programs = programs
        self._ingest = ingest
        self._locks = Locks()

    def held(self, key: str) -> AbstractAsyncContextManager[None]:
        """Hold a key while its runs are counted and one is started."""
        return self._locks.of(key)

    async def counted(self, key: str) -> tuple[list[ExecutionRow], list[ExecutionRow]]:
        """The runs of a key that are under way, and those that wait; oldest first."""
        holders = await self._executions.holders(key)
        running = [row for row in holders if row.status != "PENDING"]
        return running, [row for row in holders if row.status == "PENDING"]

    async def admit(self, key: str) -> None:
        """Let the oldest waiting runs begin, within the limit."""
        async with self.held(key):
            running, queued = await self.counted(key)
            if not queued:
                return
            room = await self._limit(queued[0].catalog_id) - len(running)
            for row in queued[: max(0, room)]:
                try:
                    await self._ingest.post(Post(row.execution_id, _admitting(key)))
                except UnknownExecution:
                    continue  # a run that is no longer kept

    async def _limit(self, catalog_id: str) -> int:
        playbook = (await self._programs.get(catalog_id)).playbook
        spec = playbook.executor.spec if playbook.executor else None
        return spec.concurrency.limit if spec and spec.concurrency else 1


def _admitting(key: str) -> Callable[[State], Iterator[Stamped]]:
    def make(state: State) -> Iterator[Stamped]:
        if state.is_queued and state.terminal is None:
            yield Stamped(ev.ExecutionAdmitted(concurrency_key=key))

    return make
