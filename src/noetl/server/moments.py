"""Times as texts, some seconds from now."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from noetl.clock import rfc3339

if TYPE_CHECKING:
    from noetl.clock import Clock


def from_now(clock: Clock, seconds: float) -> str:
    """The time so many seconds from now; before now when they are negative."""
    return rfc3339(clock.now() + timedelta(seconds=seconds))


def seconds_until(clock: Clock, moment: str) -> float:
    """How long it is until a time; negative when it has passed."""
    return (datetime.fromisoformat(moment) - clock.now()).total_seconds()
