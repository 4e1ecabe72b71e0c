"""Workers that are alive, by pool: told by what they say, forgotten when they fall silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from noetl.clock import Clock

SILENT_AFTER_S: Final = 30.0


@dataclass(slots=True)
class Worker:
    """One worker."""

    name: str
    pool: str
    capacity: int
    free_slots: int
    seen: float


class Workers:
    """The registry of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, Worker] = {}

    def join(self, name: str, pool: str, capacity: int) -> None:
        """A worker makes itself known."""
        self._known[name] = Worker(name, pool, capacity, capacity, self._clock.monotonic())

    def seen(self, name: str, pool: str | None = None, free_slots: int | None = None) -> None:
        """A worker was heard of; one that asks for work without joining is known too."""
        found = self._known.get(name)
        if found is None:
            if pool is not None:
                self.join(name, pool, free_slots or 1)
            return
        found.seen = self._clock.monotonic()
        if free_slots is not None:
            found.free_slots = free_slots

    def leave(self, name: str) -> None:
        """A worker leaves."""
        self._known.pop(name, None)

    def live(self, pool: str) -> list[Worker]:
        """The workers of a pool that were heard of lately."""
        since = self._clock.monotonic() - SILENT_AFTER_S
        return [item for item in self._known.values() if item.pool == pool and item.seen >= since]
