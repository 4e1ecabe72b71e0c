"""A fork: the state of another run, what the caller changed in it, and its open work anew."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from noetl.dsl.views import StepResult
from noetl.engine.folds.loops import go_on
from noetl.engine.folds.steps import give_up, has_limit
from noetl.engine.snapshot import from_data
from noetl.engine.state import State
from noetl.engine.tokens import enter
from noetl.engine.writes import write_at

if TYPE_CHECKING:
    from noetl.engine.state import Command, LoopState, StepState

# What belongs to the new run and is not taken over.
_OWN = frozenset({
    "program", "execution_id", "path", "version", "catalog_id", "pool", "priority",
    "parent_execution_id", "parent_key", "depth", "engine_version", "concurrency_key", "dedup_key",
    "rerun_of", "forked_from", "labels", "trace", "started_at", "now", "seq", "last_event_id",
    "is_started",
})  # fmt: skip


def restored(state: State, snapshot: dict[str, Any], overrides: dict[str, Any]) -> None:
    """Take over a state; what was open is issued again."""
    source = from_data(state.program, snapshot)
    workload = state.workload
    for item in fields(State):
        if item.name not in _OWN:
            setattr(state, item.name, getattr(source, item.name))
    if overrides.get("workload") is not None:
        state.workload = workload
    for path, value in (overrides.get("ctx") or {}).items():
        write_at(state.ctx, path, value)
    for name, value in (overrides.get("results") or {}).items():
        _with_result(state.step(name), value)
    if source.is_queued:
        enter(state, state.program.entry)
    state.is_paused, state.paused_at, state.is_queued = False, None, False
    state.commands, state.command_ids, state.children, state.timers = {}, {}, {}, {}
    kept = ("enter", "skip", "finish")
    state.agenda = {item: None for item in state.agenda if item[0] in kept}
    if is_limited(state):
        state.push("limit")
    _go_on(state, source)


def _go_on(state: State, source: State) -> None:
    """Visits that are live go on; when the run is failing, nobody has claimed their work."""
    for name, step in state.steps.items():
        if not step.is_live or ("finish", name) in state.agenda:
            continue
        if state.is_failing:
            give_up(state, name, is_done=False)
        else:
            _again(state, name, step, source)


def is_limited(state: State) -> bool:
    """Whether the whole run has a limit."""
    executor = state.program.playbook.executor
    return executor is not None and executor.spec is not None and executor.spec.timeout is not None


def _with_result(step: StepState, value: object) -> None:
    """A result that the caller gives instead of the step's own."""
    found = step.result or StepResult()
    step.result = replace(found, status="ok", data=value, error=None, reference=None)


def _again(state: State, name: str, step: StepState, source: State) -> None:
    """Issue the open work of a live visit again."""
    loop = step.loop
    if loop is None:
        state.push("work", name)
    mine = [command for command in source.commands.values() if command.step == name]
    if loop is not None and loop.mode == "cursor":
        _frames_again(state, name, loop, mine)
    elif loop is not None:
        loop.again = sorted(command.index for command in mine if command.index is not None)
        loop.open = 0
        state.push("loop", name)
    if has_limit(state, name):
        state.push("rearm", name)


def _frames_again(state: State, name: str, loop: LoopState, mine: list[Command]) -> None:
    """Rows that are claimed are not claimed again; their open bodies are."""
    loop.open = 0
    for number, frame in loop.frames.items():
        rows = (c.index for c in mine if c.frame == number and not c.issued.is_claim)
        frame.waiting = sorted({*frame.waiting, *(row for row in rows if row is not None)})
        frame.open = 0
        state.push("frame" if frame.is_claimed else "claim", name, number)
    go_on(state, name, loop)
