"""What a log says about runs and their steps: status, attempts, durations, results, children."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.engine import events as ev

if TYPE_CHECKING:
    from noetl.dsl.views import Reference
    from noetl.engine.events import Recorded

RUNNING: Final = "RUNNING"


@dataclass(slots=True, kw_only=True)
class StepRun:
    """One step over all its visits."""

    name: str
    status: str = RUNNING
    runs: int = 0
    attempts: int = 0
    issued: int = 0
    entered_at: str = ""
    duration_ms: float = 0.0
    result: Any = None
    reference: Reference | None = None
    error: dict[str, Any] | None = None
    is_handled: bool = False
    total: int | None = None
    done: int = 0
    percent: float | None = None
    children: list[Run] = field(default_factory=list)

    @property
    def retried(self) -> int:
        """Attempts after the first ones."""
        return self.attempts - self.issued

    def as_json(self) -> dict[str, Any]:
        """The step as `-o json` shows it."""
        return {
            "status": self.status,
            "runs": self.runs,
            "attempts": self.attempts or self.runs,
            "duration_ms": round(self.duration_ms),
            "result": self.result,
            "error": self.error,
        }


@dataclass(slots=True, kw_only=True)
class Run:
    """One execution and its steps, in the order of their first entry."""

    execution_id: str
    path: str
    version: int
    started_at: str
    pool: str = "shared"
    status: str = RUNNING
    ended_at: str | None = None
    last_at: str = ""
    events: int = 0
    result: Any = None
    reference: Reference | None = None
    error: dict[str, Any] | None = None
    reason: str = ""
    steps: dict[str, StepRun] = field(default_factory=dict)
    arcs: set[tuple[str, int]] = field(default_factory=set)
    """The arcs that were taken: their step and their number in it."""
    commands: dict[str, Command] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    """The step that asked for each child, by `child_key`."""

    @property
    def is_terminal(self) -> bool:
        """Whether the run has ended."""
        return self.ended_at is not None

    @property
    def duration_ms(self) -> float:
        """From the first event to the last one."""
        return elapsed_ms(self.started_at, self.ended_at or self.last_at)

    def as_json(self) -> dict[str, Any]:
        """The run as `-o json` shows it."""
        return {
            "execution_id": self.execution_id,
            "status": self.status,
            "result": self.result,
            "error": self.error,
            "steps": {name: step.as_json() for name, step in self.steps.items()},
            "duration_ms": round(self.duration_ms),
        }

    def step(self, name: str) -> StepRun:
        """A step, made on first use."""
        if name not in self.steps:
            self.steps[name] = StepRun(name=name)
        return self.steps[name]


@dataclass(slots=True)
class Command:
    """A command of a step: how often it was tried, and whether it is one iteration."""

    step: str
    is_iteration: bool
    tries: int = 1


class Runs:
    """All runs of one log, folded event by event."""

    def __init__(self) -> None:
        self.by_id: dict[str, Run] = {}
        self.root: Run | None = None

    def fold(self, recorded: Recorded) -> Run | None:
        """Take one event; the run it changed."""
        event = recorded.event
        if isinstance(event, ev.PlaybookStarted):
            self._begin(recorded, event)
        run = self.by_id.get(recorded.execution_id)
        if run is None or run.is_terminal:
            return run
        run.events += 1
        run.last_at = recorded.created_at
        if isinstance(event, ev.TERMINAL):
            _end(run, recorded.created_at, event)
        elif isinstance(event, _OF_STEPS):
            _of_step(run, recorded.created_at, event)
        elif isinstance(event, _OF_LOOPS):
            _of_loop(run, event)
        else:
            _of_command(run, event)
        return run

    def unfinished(self) -> list[Run]:
        """The runs that have not ended."""
        return [run for run in self.by_id.values() if not run.is_terminal]

    def _begin(self, recorded: Recorded, event: ev.PlaybookStarted) -> None:
        run = Run(
            execution_id=recorded.execution_id,
            path=event.path,
            version=event.version,
            pool=event.pool,
            started_at=recorded.created_at,
        )
        self.by_id.setdefault(run.execution_id, run)
        self.root = self.root or run
        parent = self.by_id.get(event.parent_execution_id or "")
        if parent is not None and (step := parent.asked.get(event.parent_key or "")):
            parent.step(step).children.append(run)


_OF_STEPS: Final = (ev.StepEntered, ev.StepSkipped, ev.StepExited, ev.StepProgress)
_OF_LOOPS: Final = (ev.LoopStarted, ev.LoopDone)


def _of_step(
    run: Run, at: str, event: ev.StepEntered | ev.StepSkipped | ev.StepExited | ev.StepProgress
) -> None:
    step = run.step(event.step)
    match event:
        case ev.StepEntered():
            step.status = RUNNING
            step.runs += 1
            step.entered_at = at
            step.total, step.done, step.percent = event.iterations_expected, 0, None
        case ev.StepSkipped():
            if not step.runs:
                step.status = "SKIPPED"
            _taken(run, event.step, event.routing)
        case ev.StepExited():
            step.status = event.outcome
            step.duration_ms += elapsed_ms(step.entered_at, at)
            step.result = step.result if event.result is None and step.total else event.result
            step.reference = event.reference or (step.reference if step.total else None)
            step.error = error_map(event.error)
            step.is_handled = event.handled
            _taken(run, event.step, event.routing)
        case ev.StepProgress():
            step.percent = event.percent


def _of_loop(run: Run, event: ev.LoopStarted | ev.LoopDone) -> None:
    step = run.step(event.step)
    if isinstance(event, ev.LoopStarted):
        step.total, step.done = event.total, 0
    else:
        step.result, step.reference = event.result, event.reference
        step.done = step.total or 0


def _of_command(run: Run, event: ev.AnyEvent | ev.SubscriptionEvent) -> None:
    match event:
        case ev.CommandIssued():
            step = run.step(event.step)
            step.issued += 1
            step.attempts += 1
            is_iteration = event.index is not None and not event.is_claim
            run.commands[event.command_key] = Command(event.step, is_iteration)
        case ev.CommandLost() | ev.CommandParked():
            is_retry = isinstance(event, ev.CommandLost) or (
                event.reason == "retry" and event.request is None
            )
            if is_retry:
                _again(run, event.command_key)
        case ev.CallDone() | ev.CallError():
            # Tries that followed without a wait are only told with the report.
            tries = 1 + sum(1 for task in event.tasks if task.get("try", 1) > 1)
            command = run.commands.get(event.command_key)
            while command is not None and command.tries < tries:
                _again(run, event.command_key)
        case ev.CommandCompleted() | ev.CommandFailed() | ev.CommandCancelled():
            command = run.commands.pop(event.command_key, None)
            if command is not None and command.is_iteration:
                run.step(command.step).done += 1
        case ev.ExecutionRequested():
            run.asked[event.child_key] = event.step
        case _:
            pass


def _again(run: Run, command_key: str) -> None:
    command = run.commands.get(command_key)
    if command is not None:
        command.tries += 1
        run.step(command.step).attempts += 1


def _taken(run: Run, step: str, routing: ev.Routing | None) -> None:
    if routing is not None:
        run.arcs.update((step, index) for index, arc in enumerate(routing.arcs) if arc.taken)


def _end(
    run: Run, at: str, event: ev.PlaybookCompleted | ev.PlaybookFailed | ev.PlaybookCancelled
) -> None:
    run.status = event.status
    run.ended_at = at
    if isinstance(event, ev.PlaybookCancelled):
        run.reason = event.reason
    else:
        run.result, run.reference = event.result, event.reference
    if isinstance(event, ev.PlaybookFailed):
        run.error = error_map(event.error)
    for step in run.steps.values():
        if step.status == RUNNING:
            step.status = "CANCELLED"
            step.duration_ms += elapsed_ms(step.entered_at, at)


def error_map(error: ev.Error | None) -> dict[str, Any] | None:
    """An error as plain data."""
    return None if error is None else msgspec.to_builtins(error)


def elapsed_ms(since: str, until: str) -> float:
    """Milliseconds between two times of events."""
    if not since or not until:
        return 0.0
    passed = datetime.fromisoformat(until) - datetime.fromisoformat(since)
    return max(0.0, passed.total_seconds() * 1000)
