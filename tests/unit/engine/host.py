"""A host for tests: appends, folds and decides in memory, with scripted tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from noetl.dsl.parse import read
from noetl.dsl.playbook import Playbook
from noetl.engine import events as ev
from noetl.engine.decide import Need, decide
from noetl.engine.fold import fold
from noetl.engine.moments import between_ms, later
from noetl.engine.program import prepare
from noetl.engine.state import State

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo, path: demo/it}\n"
START = "2026-01-01T00:00:00+00:00"
Tool = Callable[[ev.CommandIssued], Any]


def ok(data: object = None, **more: Any) -> dict[str, Any]:
    """A tool that succeeds."""
    return {"result": data, **more}


def boom(message: str = "boom", kind: str = "python") -> ev.Error:
    """A tool that fails."""
    return ev.Error(kind=kind, code=f"{kind}_error", message=message)


class Host:
    """One execution from start to end."""

    def __init__(
        self, body: str, tools: Tool | None = None, payload: Any = None, **start: Any
    ) -> None:
        self.playbook = read(HEAD + body, Playbook)
        self.state = State(program=prepare(self.playbook))
        self.log: list[ev.Recorded] = []
        self.open: list[ev.CommandIssued] = []
        self.tools: Tool = tools or (lambda _: ok(1))
        self.calls: list[str] = []
        self.passed_ms = 0
        self.objects: dict[str, Any] = {}
        """What was loaded."""
        self.stored: dict[str, Any] = {}
        """What may be asked for."""
        self.written: list[bytes] = []
        self.watch: Callable[[State], None] = lambda _: None
        workload = {**self.playbook.workload, **(payload or {})}
        self.append(
            ev.PlaybookStarted(
                execution_id="1",
                path="demo/it",
                version=1,
                catalog_id="9",
                workload=workload,
                **start,
            )
        )

    def append(self, *events: ev.Event) -> None:
        """Record and fold events."""
        for event in events:
            number = len(self.log) + 1
            recorded = ev.Recorded(
                execution_id="1",
                seq=number,
                event_id=str(number),
                prev_event_id=str(number - 1) if self.log else None,
                created_at=later(START, number + self.passed_ms),
                event=event,  # type: ignore[arg-type] - the union is closed
            )
            self.log.append(recorded)
            self.written.append(self.encoded(event))
            fold(self.state, recorded)
            self.watch(self.state)
            if isinstance(event, ev.CommandIssued) and event.pool is not None:
                self.open.append(event)
            if isinstance(event, ev.CommandResumed):
                issued = self.state.commands[event.command_key].issued
                if issued.pool is not None:
                    self.open.append(issued)

    @staticmethod
    def encoded(event: ev.Event) -> bytes:
        """An event as it was when it was written."""
        return msgspec.msgpack.encode(event)

    def settle(self) -> None:
        """Decide until nothing follows."""
        for _ in range(100_000):
            decided = decide(self.state, self.objects)
            if isinstance(decided, Need):
                fresh = {need.ref: self.stored[need.ref] for need in decided.refs}
                assert not fresh.keys() & self.objects.keys(), "asked for twice"
                self.objects |= fresh
                continue
            if not decided:
                return
            self.append(*decided)
        raise AssertionError("the engine never comes to rest")

    def report(self, command: ev.CommandIssued) -> None:
        """Run one command as a worker would."""
        key, step = command.command_key, command.step
        found = self.state.commands.get(key)
        if found is None:
            return
        attempt = found.attempt
        self.calls.append(key)
        self.append(
            ev.CommandClaimed(step=step, command_key=key, worker_id="w", attempt=attempt),
            ev.CommandStarted(step=step, command_key=key, attempt=attempt),
        )
        given = self.tools(command)
        if isinstance(given, ev.Error):
            report: ev.Event = ev.CallError(
                step=step, command_key=key, attempt=attempt, error=given
            )
        else:
            report = ev.CallDone(step=step, command_key=key, attempt=attempt, **given)
        self.append(report)
        self.settle()

    def post(self, *events: ev.Event) -> Host:
        """Append what came from outside, and what follows from it."""
        self.append(*events)
        self.settle()
        return self

    def fire(self, timer_key: str) -> Host:
        """Let time pass until a timer fires."""
        due = self.state.timers[timer_key].due_at
        self.passed_ms = max(self.passed_ms, between_ms(START, due) - len(self.log))
        return self.post(ev.TimerFired(timer_key=timer_key))

    def returns(self, child_key: str, result: object = None, error: Any = None) -> Host:
        """A child ends."""
        outcome: Any = "COMPLETED" if error is None else "FAILED"
        return self.post(
            ev.ExecutionReturned(
                child_key=child_key,
                child_execution_id="77",
                outcome=outcome,
                result=result,
                error=error,
            )
        )

    def run(self) -> Host:
        """Run to the end, commands in the order they were issued."""
        self.settle()
        while self.open:
            self.report(self.open.pop(0))
        return self

    @property
    def rows(self) -> list[str]:
        """The log as `type(step)` or `type(step/index)`."""
        return [row(item.event) for item in self.log]

    @property
    def last(self) -> ev.Event:
        """The newest event."""
        return self.log[-1].event


def row(event: ev.Event) -> str:
    """One event in a line."""
    name = type(event).__struct_config__.tag
    step = getattr(event, "step", "")
    index = getattr(event, "index", None)
    key = getattr(event, "command_key", "")
    if index is None and "/i" in key:
        index = key.rpartition("/i")[2]
    place = step if index is None else f"{step}/{index}"
    return f"{name}({place})" if step else str(name)
