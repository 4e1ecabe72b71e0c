"""Waits without a slot: for a while, until a time, or for an answer."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final

from noetl.clock import rfc3339
from noetl.dsl.tasks import Wait
from noetl.tools.base import Parked, ToolError, Traits

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext

MOST_WAIT_S: Final = 366 * 86_400.0


class WaitTool:
    """The kind `wait`."""

    kind: ClassVar[str] = "wait"
    Config: ClassVar[type[Task]] = Wait
    traits: ClassVar[Traits] = Traits(side_effects=False, parks=True)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def run(self, config: Wait, ctx: ToolContext) -> Parked:
        """Park until the time has come or the answer is there."""
        if config.callback:
            return Parked(reason="callback", request={"timeout_s": ctx.timeout_s})
        until = None if config.until is None else _moment(config.until)
        wait_s = config.seconds if until is None else (until - self._clock.now()).total_seconds()
        if isinstance(wait_s, bool) or not isinstance(wait_s, (int, float)):
            message = "one of /seconds, /until and /callback: true is needed"
            raise ToolError("config", "invalid_config", message)
        if not math.isfinite(wait_s) or wait_s > MOST_WAIT_S:
            raise ToolError("config", "invalid_config", "a wait ends within a year")
        if until is not None:  # the server knows the time; the clock of this machine may be wrong
            return Parked(reason="retry", request={"until": rfc3339(until)})
        return Parked(reason="retry", request={"wait_ms": max(0, math.ceil(wait_s * 1000))})

    async def cancel(self, ctx: ToolContext) -> None:
        """Nothing to stop."""


def _moment(until: str) -> datetime:
    """A time, which must name its zone."""
    try:
        moment = datetime.fromisoformat(until.strip())
    except ValueError as fault:
        raise ToolError("config", "invalid_config", f"/until: {fault}") from None
    if moment.tzinfo is None:
        message = "/until: the time needs a zone, such as 2026-01-31T12:00:00Z"
        raise ToolError("config", "invalid_config", message)
    return moment
