"""Recorded logs: a file each, whose first line holds the playbook and what the log comes to.

The other lines are rows as the server exports them. Logs of cases are many, and lie compressed in
folders (`zcat` shows them). A log is never written again once it is checked in: it stands for
histories that exist out there.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.dsl.parse import read
from noetl.dsl.playbook import Playbook
from noetl.engine.program import prepare
from noetl.engine.rows import from_row, to_row
from noetl.engine.state import State
from noetl.engine.status import progress_of, status_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.engine.events import Recorded
    from noetl.engine.program import Program

FOLDER = Path(__file__).parent / "logs"


@dataclass(kw_only=True)
class Log:
    """One history."""

    name: str
    playbook: str
    rows: list[Recorded]
    final: str
    """The digest of the state at its end."""
    status: str
    objects: dict[str, Any] = field(default_factory=dict)
    """Values over the inline limit, by reference."""
    on_worker: list[str] = field(default_factory=list)
    """Steps that a worker ran although the engine could: their tools were mocked."""

    def begun(self) -> State:
        """The state before the first event."""
        return State(program=_program(self.playbook, frozenset(self.on_worker)))


@cache
def _program(text: str, on_worker: frozenset[str]) -> Program:
    program = prepare(read(text, Playbook))
    program.on_worker = on_worker
    return program


def names() -> list[str]:
    """Every recorded log."""
    found = (path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.jsonl*"))
    return sorted(name.partition(".jsonl")[0] for name in found)


def case_of(name: str) -> str:
    """The case, scene or seed that a log comes from; a case has a log for each of its runs."""
    return name.rpartition("-")[0]


def load(name: str) -> Log:
    """Read a log."""
    head, *lines = text_of(name).splitlines()
    about = json.loads(head)
    return Log(name=name, rows=[from_row(json.loads(line)) for line in lines], **about)


def text_of(name: str) -> str:
    """The text of a log."""
    path = _place(name)
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def _place(name: str) -> Path:
    return FOLDER / f"{name}.jsonl.gz" if "/" in name else FOLDER / f"{name}.jsonl"


def save(log: Log) -> Path:
    """Write a log."""
    about: dict[str, Any] = {"playbook": log.playbook, "final": log.final, "status": log.status}
    if log.objects:
        about["objects"] = log.objects
    if log.on_worker:
        about["on_worker"] = log.on_worker
    path = _place(log.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(about), *(json.dumps(to_row(item)) for item in log.rows)]
    data = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def final_of(state: State) -> dict[str, Any]:
    """What a state means outside: what a new field of the machinery does not change."""
    facts: dict[str, Any] = {
        "status": status_of(state),
        "seq": state.seq,
        "workload": state.workload,
        "ctx": state.ctx,
        "result": state.result,
        "reference": state.reference,
        "failure": state.failure,
        "failed_steps": state.failed_steps,
        "progress": progress_of(state),
        "steps": {name: _step(step) for name, step in state.steps.items()},
        "commands": {key: [one.status, one.attempt] for key, one in state.commands.items()},
        "timers": {key: timer.due_at for key, timer in state.timers.items()},
        "children": sorted(state.children),
        "started_at": state.started_at,
        "ended_at": state.ended_at,
    }
    plain: dict[str, Any] = msgspec.to_builtins(facts)
    return plain


def _step(step: Any) -> list[Any]:
    result = step.result
    known = None if result is None else [result.status, result.data, result.reference, result.error]
    return [step.status, step.visit, step.is_handled, known]


def digest(state: State) -> str:
    """The digest of what a state means outside."""
    return sha256(json.dumps(final_of(state), sort_keys=True).encode()).hexdigest()


def kinds(logs: Sequence[Log]) -> set[str]:
    """The types of events that logs hold."""
    return {str(type(item.event).__struct_config__.tag) for log in logs for item in log.rows}
