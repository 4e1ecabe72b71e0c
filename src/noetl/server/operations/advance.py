"""Read models made anew from the log, page by page; nothing is decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.internal import Advanced, NotAdvanced
from noetl.edge.errors import RaceLost, Unacceptable, UnknownExecution, UnknownPath
from noetl.engine.fold import fold
from noetl.engine.state import State
from noetl.errors import NoetlError
from noetl.ids import parse
from noetl.server.operations.foreign import program_of, steps_of
from noetl.store.upkeep import IMPORTED
from noetl.store.views import Past, change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.engine.program import Program
    from noetl.server.ingest.programs import Programs
    from noetl.server.parts import ServerParts
    from noetl.store.base import ExecutionRow

MOST: Final = 1_000
MOST_TRIES: Final = 3
_PAGE: Final = 1_000


class Refreshes:
    """Writes read models again."""

    def __init__(self, parts: ServerParts, programs: Programs) -> None:
        self._store = parts.store
        self._ids = parts.ids
        self._programs = programs

    async def advance(self, execution_ids: Sequence[str | int]) -> Advanced:
        """Refresh runs; one that cannot be is told, and fails no other."""
        if not 1 <= len(execution_ids) <= MOST:
            raise Unacceptable(
                f"{len(execution_ids)} runs at once", code="batch_size_invalid", hint=f"1..{MOST}"
            )
        done: list[str] = []
        failed: list[NotAdvanced] = []
        for given in dict.fromkeys(map(parse, execution_ids)):
            try:
                await self._refresh(given)
            except NoetlError as fault:
                failed.append(NotAdvanced(execution_id=given, code=fault.code))
            else:
                done.append(given)
        return Advanced(advanced=tuple(done), failed=tuple(failed))

    async def _refresh(self, execution_id: str) -> None:
        for _ in range(MOST_TRIES):
            before = await self._store.executions.get(execution_id)
            if before is None:
                raise UnknownExecution(f"there is no execution {execution_id}")
            row = await self._made(before)
            if await self._store.projections.refresh(row):
                return
        raise RaceLost(f"execution {execution_id} goes on too fast")

    async def _made(self, before: ExecutionRow) -> ExecutionRow:
        """The row of a run, as the commits of its whole log would have left it."""
        execution_id = before.execution_id
        state = State(program=await self._program(before))
        state.execution_id = execution_id
        row = before
        while state.seq < before.last_seq:
            page = await self._store.log.read(execution_id, state.seq, _PAGE)
            page = [item for item in page if item.seq <= before.last_seq]
            if not page:
                raise UnknownExecution(f"the log of execution {execution_id} is not whole")
            seq = state.seq
            for item in page:
                fold(state, item)
            row = change(seq, state, page, self._ids.new, Past(row=row)).execution
        is_foreign = before.kind == IMPORTED
        return msgspec.structs.replace(
            row,
            kind=before.kind,
            concurrency_key=before.concurrency_key,
            pending_commands=0 if is_foreign else row.pending_commands,
        )

    async def _program(self, row: ExecutionRow) -> Program:
        try:
            return await self._programs.get(row.catalog_id)
        except UnknownPath:
            if row.kind != IMPORTED:
                raise
        names: dict[str, None] = {}
        after = 0
        while page := await self._store.log.read(row.execution_id, after, _PAGE):
            names |= dict.fromkeys(steps_of(item.event for item in page))
            after = page[-1].seq
        return program_of(tuple(names))
