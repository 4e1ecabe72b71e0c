"""How long to wait before a call is made again, and which failures are worth it."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final, TypeVar

from noetl.api.http import NoAnswer
from noetl.api.problems import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

PRESSED_S: Final = 2.0
DENIED_S: Final = 10.0
_SERVER_SIDE: Final = 500
_WORTH_IT: Final = frozenset({408, 425, 429})
_PRESSED: Final = frozenset({429, 503})
_DENIED: Final = frozenset({401, 403})


class Backoff:
    """Delays that double up to a limit, each shortened by chance so that workers spread out."""

    def __init__(self, least_s: float = 0.1, most_s: float = 10.0, spread: float = 0.5) -> None:
        self._least_s = least_s
        self._most_s = most_s
        self._spread = spread
        self._failures = 0

    def next(self) -> float:
        """The delay before the next try."""
        longest = min(self._most_s, self._least_s * float(1 << self._failures))
        self._failures = min(self._failures + 1, 32)
        return longest * random.uniform(1.0 - self._spread, 1.0)  # noqa: S311 - spreads load, hides nothing

    def after(self, fault: Exception) -> float:
        """The delay after this failure: what the server asked for, else the next one."""
        own = self.next()
        if not isinstance(fault, Refused):
            return own
        if fault.problem.retry_after is not None:
            return max(own, fault.problem.retry_after)
        if is_denied(fault):
            return DENIED_S
        return max(own, PRESSED_S) if fault.problem.status in _PRESSED else own

    def reset(self) -> None:
        """The call went through."""
        self._failures = 0


def is_denied(fault: Exception) -> bool:
    """Whether the server does not know or does not trust this worker."""
    return isinstance(fault, Refused) and fault.problem.status in _DENIED


def is_pressed(fault: Exception) -> bool:
    """Whether the server has more to do than it can."""
    return isinstance(fault, Refused) and fault.problem.status in _PRESSED


def is_passing(fault: Exception) -> bool:
    """Whether the same call may go through later; an answer we cannot read may as well."""
    if not isinstance(fault, Refused):
        return isinstance(fault, (NoAnswer, OSError))  # a TimeoutError is an OSError
    status = fault.problem.status
    return status >= _SERVER_SIDE or status in _WORTH_IT or fault.code == "bad_answer"


async def patiently(call: Callable[[], Awaitable[T]], *, within_s: float | None = None) -> T:
    """Make a call until it goes through or is refused for good; without a limit, for ever."""
    loop = asyncio.get_running_loop()
    ends = None if within_s is None else loop.time() + within_s
    backoff = Backoff()
    while True:
        try:
            return await call()
        except Exception as fault:
            if not is_passing(fault) or (ends is not None and loop.time() >= ends):
                raise
            delay_s = backoff.after(fault)
        await asyncio.sleep(delay_s)
