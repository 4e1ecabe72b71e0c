"""How runs have ended, for those who wait for one of them; bounded, whoever comes first."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.intake.outcomes import RunOutcome

MOST_REMEMBERED: Final = 10_000


class Runs:
    """Outcomes that were told, and those who wait for theirs."""

    def __init__(self, ask: Callable[[str], Awaitable[RunOutcome | None]] | None = None) -> None:
        """`ask` tells of a run that may have ended before anybody listened."""
        self._ask = ask
        self._ended: OrderedDict[str, RunOutcome] = OrderedDict()
        self._waiting: dict[str, list[asyncio.Future[RunOutcome]]] = {}

    def told(self, outcome: RunOutcome) -> None:
        """A run has ended."""
        waiting = self._waiting.pop(outcome.execution_id, ())
        for future in waiting:
            if not future.done():
                future.set_result(outcome)
        if waiting:
            return
        self._ended[outcome.execution_id] = outcome
        while len(self._ended) > MOST_REMEMBERED:
            self._ended.popitem(last=False)

    async def ended(
        self, execution_id: str, timeout_s: float | None, *, is_old: bool = False
    ) -> RunOutcome | None:
        """How a run ends; none when it does not in time. An old one may have ended long ago."""
        known = self._ended.pop(execution_id, None)
        if known is not None:
            return known
        if is_old and self._ask is not None:
            known = await self._ask(execution_id)
            if known is not None:
                return known
        future: asyncio.Future[RunOutcome] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(execution_id, []).append(future)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            return None
        finally:
            left = [one for one in self._waiting.pop(execution_id, ()) if one is not future]
            if left:
                self._waiting[execution_id] = left
