"""How often, and when, a message that could not be published is tried again."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

PUBLICATION: Final = "events"
"""The kind of a message that stands for the events of a commit."""
LOCK: Final = timedelta(seconds=60)
"""Who has taken a message and is silent for so long has lost it."""
MOST_ATTEMPTS: Final = 50
MOST_ERROR: Final = 2_000
_MOST_DOUBLED: Final = 8


def delay_of(attempts: int, most_delay_s: int) -> float:
    """Seconds until the next try: doubled with each, up to a bound."""
    return float(min(most_delay_s, 2 ** max(0, min(attempts - 1, _MOST_DOUBLED))))
