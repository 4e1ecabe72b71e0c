"""The lines that steps write, told to somebody on their way into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noetl.store.base import Line, Output


class Overheard:
    """An `Output` that tells before it keeps."""

    def __init__(self, output: Output, on_line: Callable[[str, str], None]) -> None:
        self._output = output
        self._on_line = on_line

    async def add(self, lines: Sequence[Line]) -> None:
        """Tell the lines, then keep them."""
        for line in lines:
            self._on_line(line.step, line.text)
        await self._output.add(lines)

    async def read(
        self,
        execution_id: str,
        *,
        step: str | None = None,
        after: tuple[str, str, int, int] | None = None,
        limit: int = 1000,
    ) -> list[Line]:
        """Lines of a run, in order."""
        return await self._output.read(execution_id, step=step, after=after, limit=limit)
