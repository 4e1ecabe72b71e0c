"""Commands that wait for a worker, as far as this server knows: its own, and what it has seen.

A request for work asks this list and not the store: most requests come with a report, and a read
for each of them would double what a step costs. Work of other servers is looked for once a second.
What is listed may be taken meanwhile; the commit decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.store.ranked import Ranked, age

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.store.base import CommandRow, Commands

LOOK_S: Final = 1.0
MOST_SEEN: Final = 1_000
MOST_URGENT: Final = 100
"""What is looked at where more than enough is known to wait: only what others have in front."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A command that nobody has."""

    execution_id: str
    command_id: str
    kind: str
    priority: int
    available_at: str


class Pending:
    """Waiting commands by pool: higher priority first, then oldest."""

    def __init__(self, commands: Commands, clock: Clock) -> None:
        self._commands = commands
        self._clock = clock
        self._pools: dict[str, dict[str, Ranked[str]]] = {}
        self._known: dict[str, tuple[str, Waiting]] = {}
        self._runs: dict[str, dict[str, None]] = {}
        self._looked: dict[str, float] = {}

    def add(self, pool: str, waiting: Waiting) -> None:
        """A command waits."""
        self.drop(waiting.command_id)
        self._known[waiting.command_id] = (pool, waiting)
        self._runs.setdefault(waiting.execution_id, {})[waiting.command_id] = None
        queue = self._pools.setdefault(pool, {}).setdefault(waiting.kind, Ranked())
        queue.put(
            waiting.command_id, -waiting.priority, waiting.available_at, *age(waiting.command_id)
        )

    def drop(self, command_id: str) -> None:
        """A command waits no more."""
        found = self._known.pop(command_id, None)
        if found is None:
            return
        pool, waiting = found
        self._pools[pool][waiting.kind].drop(command_id)
        siblings = self._runs[waiting.execution_id]
        del siblings[command_id]
        if not siblings:
            del self._runs[waiting.execution_id]

    def count(self, pool: str) -> int:
        """How many commands of a pool wait."""
        return sum(map(len, self._pools.get(pool, {}).values()))

    def leave(self, execution_id: str) -> None:
        """Nothing of a run can be claimed now: it has ended, or is paused."""
        for command_id in list(self._runs.get(execution_id, ())):
            self.drop(command_id)

    def doubt(self) -> None:
        """Another server has written: ask the store at the next request."""
        self._looked.clear()

    async def of(
        self, pool: str, limit: int, exclude: frozenset[str]
    ) -> tuple[list[Waiting], list[CommandRow]]:
        """The first commands of a pool; and the rows, when the store was asked."""
        rows: list[CommandRow] = []
        now = self._clock.monotonic()
        if now - self._looked.get(pool, -LOOK_S) >= LOOK_S:
            rows = await self._look(pool)
            self._looked[pool] = now
        queues = self._pools.get(pool, {})
        found = [
            entry
            for kind, queue in queues.items()
            if kind not in exclude
            for entry in queue.lowest(limit)
        ]
        if len(queues) > 1:
            found.sort()
        return [self._known[command_id][1] for _, _, command_id in found[:limit]], rows

    async def _look(self, pool: str) -> list[CommandRow]:
        """What the store says; it knows best unless it has more than it tells."""
        limit = MOST_SEEN if self.count(pool) < MOST_SEEN else MOST_URGENT
        rows = await self._commands.pending(pool, limit)
        if len(rows) < limit:
            seen = {row.command_id for row in rows}
            for queue in self._pools.get(pool, {}).values():
                for command_id in queue.keys(len(queue)):
                    if command_id not in seen:
                        self.drop(command_id)
        for row in rows:
            if row.command_id not in self._known:
                self.add(
                    pool,
                    Waiting(
                        row.execution_id, row.command_id, row.kind, row.priority, row.available_at
                    ),
                )
        return rows
