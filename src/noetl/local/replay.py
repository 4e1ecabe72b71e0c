"""A stored log against today's engine: it must decide again what it decided then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.dsl.parse import parse
from noetl.dsl.playbook import Playbook
from noetl.dsl.plugins import STORED
from noetl.engine.decide import Need, decide
from noetl.engine.events import CommandIssued, EngineFailed, PlaybookStarted
from noetl.engine.fold import fold
from noetl.engine.program import prepare
from noetl.engine.state import State
from noetl.local.playbooks import PlaybookChanged, Shelf
from noetl.store.memory.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from noetl.engine.events import Event, Recorded
    from noetl.store.base import Catalog

# Values that the host stores apart or makes up; what is decided about them is the same.
_OF_THE_HOST: Final = frozenset({"callback_key"})
_LARGE: Final = {"reference": ("result",), "items_ref": ("items",), "refs": ("ctx", "bindings")}


@dataclass(frozen=True, slots=True)
class Difference:
    """The first event that the engine would not have decided."""

    recorded: Recorded
    expected: Event

    def words(self) -> str:
        """`run 7, seq 12: the log has step.exit of a, today it is step.enter of b`."""
        at = f"run {self.recorded.execution_id}, seq {self.recorded.seq}"
        stored, today = _named(self.recorded.event), _named(self.expected)
        fields = ""
        if stored == today:
            names = _differ(self.recorded.event, self.expected)
            fields = f" with other values of {', '.join(names)}"
        return f"{at}: the log has {stored}, today it is {today}{fields}"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of it."""

    runs: int
    decisions: int
    difference: Difference | None = None
    unread: str | None = None
    """A large value without which a run cannot be decided again."""


async def replay_beside(log: Sequence[Recorded], text: str, folder: Path) -> Replayed:
    """Replay with a playbook and the sub-playbooks of a folder."""
    shelf = Shelf(MemoryStore().catalog, folder)
    await shelf.shelve(text)
    return await replay(log, shelf)


async def replay(log: Sequence[Recorded], catalog: Catalog) -> Replayed:
    """Fold every run of a log, and compare each decision with what the log has."""
    runs: dict[str, list[Recorded]] = {}
    for recorded in log:
        runs.setdefault(recorded.execution_id, []).append(recorded)
    decisions = 0
    for events in runs.values():
        state = await _state(events, catalog)
        waiting: list[Event] = []
        for recorded in events:
            if isinstance(recorded.event, EngineFailed):
                continue
            if waiting:
                expected = waiting.pop(0)
                if _differ(recorded.event, expected):
                    return Replayed(len(runs), decisions, Difference(recorded, expected))
                decisions += 1
            fold(state, recorded)
            if waiting:
                continue
            decided = decide(state)
            if isinstance(decided, Need):
                return Replayed(len(runs), decisions, unread=decided.refs[0].ref)
            waiting = list(decided)
    return Replayed(len(runs), decisions)


async def _state(events: Sequence[Recorded], catalog: Catalog) -> State:
    """Where a run begins, with its playbook as it was; else with the one that has its path now."""
    start, entry = events[0].event, None
    if isinstance(start, PlaybookStarted):
        entry = await catalog.get(start.catalog_id)
        entry = entry or await catalog.resolve(start.tenant_id, start.path)
    model = None if entry is None else parse(entry.content, plugins=STORED).model
    if not isinstance(model, Playbook):
        path = getattr(start, "path", "")
        raise PlaybookChanged(
            f"the playbook {path} of the log is not there", hint="restore its file"
        )
    by_worker = {
        item.event.step
        for item in events
        if isinstance(item.event, CommandIssued) and item.event.pool is not None
    }
    return State(program=prepare(model, frozenset(by_worker)))


def _differ(stored: Event, today: Event) -> list[str]:
    """The fields that differ; a value that was stored apart is not looked at."""
    if type(stored) is not type(today):
        return ["event_type"]
    was, now = _read_back(stored), _read_back(today)
    apart = {
        name
        for place, names in _LARGE.items()
        if getattr(was, place, None) and not getattr(now, place, None)
        for name in (place, *names)
    }
    names = {*was.__struct_fields__} - apart - _OF_THE_HOST
    return sorted(name for name in names if getattr(was, name) != getattr(now, name))


def _read_back(event: Event) -> Event:
    """An event in the form that a log gives it."""
    return msgspec.json.decode(msgspec.json.encode(event), type=type(event))


def _named(event: Event) -> str:
    step = getattr(event, "step", None)
    kind = msgspec.to_builtins(event)["event_type"]
    return f"{kind} of {step}" if step else kind
