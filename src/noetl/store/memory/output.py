"""Lines that steps wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.store.ranked import age

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.base import Line
    from noetl.store.memory.tables import Tables


class MemoryOutput:
    """Lines by run."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def add(self, lines: Sequence[Line]) -> None:
        """Keep lines; one that is kept already is ignored."""
        for line in lines:
            of_run = self._tables.output.setdefault(line.execution_id, {})
            of_run.setdefault((line.command_id, line.attempt, line.n), line)

    async def read(
        self,
        execution_id: str,
        *,
        step: str | None = None,
        after: tuple[str, str, int, int] | None = None,
        limit: int = 1000,
    ) -> list[Line]:
        """Lines of a run in the order of time; lines of one attempt in the order of `n`."""
        lines = self._tables.output.get(execution_id, {}).values()
        start = None if after is None else (after[0], age(after[1]), *after[2:])
        found = sorted(
            (line for line in lines if step is None or line.step == step),
            key=_place,
        )
        return [line for line in found if start is None or _place(line) > start][:limit]


def _place(line: Line) -> tuple[str, tuple[int, str], int, int]:
    return line.ts, age(line.command_id), line.attempt, line.n
