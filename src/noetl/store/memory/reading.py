"""Sums over logs, places in queues, and what has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.engine import events as ev
from noetl.store.ranked import age
from noetl.store.reading import ArcSum, Circuit, StepSum

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.engine.events import Recorded
    from noetl.store.base import CommandRow, ExecutionRow
    from noetl.store.memory.tables import Tables

_PAGE: Final = 512
_NEWEST: Final = 64
"""Events of a run that are looked at: only a second server on one memory asks for changes."""
_OF_STEPS: Final = frozenset({"step", "command", "loop"})


class MemoryReading:
    """Reads the same memory as everybody else."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def steps(self, execution_id: str) -> list[StepSum]:
        """Every step that the log of a run names, by name."""
        found: dict[str, _Step] = {}
        for item in self._log(execution_id):
            if item.event.node_type in _OF_STEPS:
                found.setdefault(item.event.step, _Step()).see(item)  # type: ignore[union-attr]  # of those kinds
        return [found[name].told(name) for name in sorted(found)]

    async def arcs(self, execution_id: str) -> list[ArcSum]:
        """Every arc that exits of the run's steps have looked at, by step and place."""
        found: dict[tuple[str, int], list[int]] = {}
        for item in self._log(execution_id):
            event = item.event
            if isinstance(event, (ev.StepExited, ev.StepSkipped)) and event.routing is not None:
                for place, arc in enumerate(event.routing.arcs):
                    counts = found.setdefault((event.step, place), [0, 0])
                    counts[0] += 1
                    counts[1] += arc.taken
        return [
            ArcSum(step=step, place=place, looked=looked, taken=taken)
            for (step, place), (looked, taken) in sorted(found.items())
        ]

    async def changed(self, first: str, last: str, limit: int = 1000) -> list[str]:
        """Runs that have events whose ids lie in a range, ends included, oldest run first."""
        low, high = age(first), age(last)
        rows = self._tables.executions.rows
        found = (
            name
            for name, row in rows.items()
            if any(low <= age(item.event_id) <= high for item in self._newest(row))
        )
        return sorted(found, key=age)[:limit]

    async def ahead(self, pool: str, command_id: str, most: int = 10_000) -> int | None:
        """Commands of a pool that are claimed before this one, counted so far; none: not in it."""
        mine = self._tables.commands.rows.get(command_id)
        if mine is None or mine.pool != pool or mine.status != "PENDING":
            return None
        rows = self._tables.commands.rows.values()
        before = sum(1 for row in rows if row.pool == pool and _is_before(row, mine))
        return min(before, most)

    async def circuits(self, tenant_id: str, path: str) -> list[Circuit]:
        """The breakers of a path, and those of its downstreams (`<path>.<name>`), by path."""
        return [
            Circuit(path=name, state=state)
            for (tenant, name), state in sorted(self._tables.circuits.items())
            if tenant == tenant_id and (name == path or name.startswith(f"{path}."))
        ]

    def _log(self, execution_id: str) -> Iterator[Recorded]:
        journal = self._tables.journals.get(execution_id)
        after = 0
        while journal is not None and (page := journal.read(after, _PAGE)):
            yield from page
            after = page[-1].seq

    def _newest(self, row: ExecutionRow) -> list[Recorded]:
        journal = self._tables.journals[row.execution_id]
        return journal.read(max(0, row.last_seq - _NEWEST), _NEWEST)


class _Step:
    """One step, as far as its log was read."""

    __slots__ = ("claimed", "ended_at", "entered", "lost", "started_at")

    def __init__(self) -> None:
        self.entered = self.claimed = self.lost = 0
        self.started_at: str | None = None
        self.ended_at: str | None = None

    def see(self, item: Recorded) -> None:
        match item.event:
            case ev.StepEntered():
                self.entered += 1
                self.started_at = self.started_at or item.created_at
            case ev.StepExited() | ev.StepSkipped():
                self.ended_at = item.created_at
            case ev.CommandClaimed():
                self.claimed += 1
            case ev.CommandLost():
                self.lost += 1
            case _:
                pass

    def told(self, name: str) -> StepSum:
        return StepSum(
            step=name,
            entered=self.entered,
            claimed=self.claimed,
            lost=self.lost,
            started_at=self.started_at,
            ended_at=self.ended_at,
        )


def _is_before(row: CommandRow, mine: CommandRow) -> bool:
    return row.status == "PENDING" and _place(row) < _place(mine)


def _place(row: CommandRow) -> tuple[int, str, tuple[int, str]]:
    return -row.priority, row.available_at, age(row.command_id)
