"""Waiting that the end cuts short, and pauses that grow."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from noetl.errors import NoetlError

FIRST_AGAIN_S: Final = 0.2
LONGEST_AGAIN_S: Final = 30.0
_PASSING: Final = frozenset({401, 403, 408, 425, 429})
_SERVER_ERROR: Final = 500


class Pausing:
    """Pauses of something that is told to end one day."""

    def __init__(self) -> None:
        self._over = asyncio.Event()
        self._again_s = FIRST_AGAIN_S

    @property
    def is_over(self) -> bool:
        """Whether the end has come."""
        return self._over.is_set()

    def end(self) -> None:
        """Let the end come; whoever waits goes on."""
        self._over.set()

    async def wait(self, seconds: float) -> None:
        """Wait so long, or until the end."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return

    async def again(self) -> None:
        """Wait before the next try: longer each time."""
        await self.wait(self._again_s)
        self._again_s = min(self._again_s * 2, LONGEST_AGAIN_S)

    def reset(self) -> None:
        """It went well: the next pause is a short one."""
        self._again_s = FIRST_AGAIN_S

    async def first(self, task: asyncio.Task[Any], seconds: float) -> None:
        """Wait for a task, so long, or until the end."""
        over = asyncio.create_task(self._over.wait(), name="end")
        try:
            await asyncio.wait((task, over), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()


def may_pass(fault: NoetlError) -> bool:
    """Whether it makes sense to try again; a server that refuses us may be told otherwise."""
    problem = getattr(fault, "problem", None)
    if problem is not None:
        return problem.status in _PASSING or problem.status >= _SERVER_ERROR
    return bool(getattr(fault, "is_retryable", getattr(fault, "retryable", False)))
