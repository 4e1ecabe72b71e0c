"""Concurrency keys: how many runs of a key are under way, and which one may begin next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.edge.errors import UnknownExecution
from noetl.engine import events as ev
from noetl.server.ingest.posts import Post, Stamped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from noetl.engine.state import State
    from noetl.server.ingest.programs import Programs
    from noetl.server.ingest.queue import Ingest
    from noetl.store.base import ExecutionRow, Executions, Roles

START_TIMER: Final = "start:run"
"""The timer of a run that begins later."""


class Admissions:
    """Lets queued runs begin."""

    def __init__(
        self, executions: Executions, programs: Programs, ingest: Ingest, roles: Roles
    ) -> None:
        self._executions = executions
        self._programs = programs
        self._ingest = ingest
        self._roles = roles

    def held(self, key: str) -> AbstractAsyncContextManager[None]:
        """Hold a key, among all servers, while its runs are counted and one is started."""
        return self._roles.exclusive(f"concurrency:{key}")

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
            admitted: set[str] = set()
            for row in queued:
                if len(admitted) >= room:
                    return
                try:
                    await self._ingest.post(Post(row.execution_id, _admitting(key, admitted)))
                except UnknownExecution:
                    continue  # a run that is no longer kept

    async def begin(self, execution_id: str) -> bool:
        """Let a run whose time has come begin, or wait for its key; false when it does not wait."""
        row = await self._executions.get(execution_id)
        if row is None:
            return False
        key = row.concurrency_key
        if key is None:
            return await self._begin(execution_id, "", may_begin=True)
        async with self.held(key):
            running, _ = await self.counted(key)
            room = await self._limit(row.catalog_id) - len(running)
            # Without room there is a run that holds the key, and its end admits this one.
            return await self._begin(execution_id, key, may_begin=room > 0)

    async def _begin(self, execution_id: str, key: str, *, may_begin: bool) -> bool:
        begun: list[str] = []

        def make(state: State) -> Iterator[Stamped]:
            begun.clear()
            if START_TIMER not in state.timers or state.is_paused:
                return
            begun.append(execution_id)
            yield Stamped(ev.TimerFired(timer_key=START_TIMER), has_more=may_begin)
            if may_begin:
                yield Stamped(ev.ExecutionAdmitted(concurrency_key=key))

        await self._ingest.post(Post(execution_id, make))
        return bool(begun)

    async def _limit(self, catalog_id: str) -> int:
        playbook = (await self._programs.get(catalog_id)).playbook
        spec = playbook.executor.spec if playbook.executor else None
        return spec.concurrency.limit if spec and spec.concurrency else 1


def _admitting(key: str, admitted: set[str]) -> Callable[[State], Iterator[Stamped]]:
    def make(state: State) -> Iterator[Stamped]:
        admitted.discard(state.execution_id)  # a commit before this one may have lost a race
        if state.is_queued and state.terminal is None and START_TIMER not in state.timers:
            admitted.add(state.execution_id)
            yield Stamped(ev.ExecutionAdmitted(concurrency_key=key))

    return make
