"""One run under a random schedule: workers that die, reports that come late, twice or reordered.

What a tool gives depends on the seed and on its command alone, so that two schedules of one
playbook can be compared.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from noetl.dsl.views import Outcome
from noetl.engine import events as ev
from noetl.engine.child import request_of
from noetl.engine.cursor import claim_step
from noetl.engine.pipeline import Done, Failed, Park, Pipeline, RunTask
from noetl.engine.why import why
from tests.unit.engine.host import Host

if TYPE_CHECKING:
    from noetl.engine.state import Command

WAITING = frozenset({"playbook", "playbooks", "wait"})
LIMITS = frozenset({"step_timeout", "execution_timeout", "frame", "park_deadline"})
MOST_TURNS = 5_000


@dataclass(frozen=True, kw_only=True)
class Chaos:
    """How often each trouble happens, as a share of the turns."""

    failing: float = 0.0
    """The share of tries that fail."""
    twice: float = 0.0
    stale: float = 0.0
    """Old mail that comes again after anything else."""
    lost: float = 0.0
    most_lost: int = 2
    """How often one command may lose its worker."""
    limits: float = 0.0
    pause: float = 0.0
    control: float = 0.0
    """The run is cancelled or finalized."""
    in_order: bool = False


CALM = Chaos(in_order=True)


class Run:
    """A playbook from start to end."""

    def __init__(self, host: Host, seed: int, order: str, chaos: Chaos = CALM) -> None:
        self.host = host
        self.seed = seed
        self.chaos = chaos
        self.chance = random.Random(f"{order}/{seed}")
        self.mail: list[ev.Event] = []
        self.sent: list[ev.Event] = []
        self.handed: set[tuple[str, int]] = set()
        self.lost: dict[str, int] = {}

    def to_the_end(self) -> Run:
        """Take turns until the run has ended; one that cannot move is a defect."""
        self.host.settle()
        for _ in range(MOST_TURNS):
            if self.host.state.terminal is not None:
                return self
            self.turn()
        raise AssertionError(f"the run does not end: {why(self.host.state)}")

    def turn(self) -> None:
        """Something happens."""
        if self._trouble():
            return
        state = self.host.state
        ways = []
        if self.mail:
            ways.append(self._deliver)
        if not state.is_paused and self._claimable():
            ways.append(self._claim)
        if state.children:
            ways.append(self._return)
        if any(command.parked == "callback" for command in state.commands.values()):
            ways.append(self._answer)
        if not state.is_paused and self._timers(LIMITS, among=False):
            ways.append(self._fire)
        if state.is_queued:
            ways.append(lambda: self.host.post(ev.ExecutionAdmitted()))
        if state.is_paused and not ways:
            ways.append(self._resume)
        if not ways:
            raise AssertionError(f"nothing can happen: {why(state)} {list(state.agenda)}")
        (ways[0] if self.chaos.in_order else self.chance.choice(ways))()

    # ------------------------------------------------------------------ what workers do

    def _claimable(self) -> list[Command]:
        commands = self.host.state.commands.values()
        return [one for one in commands if one.status == "PENDING" and one.pool is not None]

    def _pick(self, items: list[Any]) -> Any:
        return items[0] if self.chaos.in_order else self.chance.choice(items)

    def _claim(self) -> None:
        command = self._pick(self._claimable())
        key, attempt = command.key, command.attempt
        named = {"step": command.step, "command_key": key, "attempt": attempt}
        worker = f"w{attempt}"
        self.host.post(ev.CommandClaimed(**named, worker_id=worker, lease_until="later"))
        assert (key, attempt) not in self.handed, "an attempt is handed out once"
        self.handed.add((key, attempt))
        self.mail.append(ev.CommandStarted(**named))
        if self.chance.random() < 0.1:
            self.mail.append(ev.StepProgress(**named, percent=50))
        self.mail.append(self.execute(command, worker))

    def execute(self, command: Command, worker: str) -> ev.Event:
        """Run the tasks of a command as a worker does; its report."""
        issued = command.issued
        named: dict[str, Any] = {"step": command.step, "command_key": command.key,
                                 "attempt": command.attempt, "worker_id": worker}  # fmt: skip
        step = self.host.state.program.steps[command.step].step
        pipeline = Pipeline(
            claim_step(step) if issued.is_claim else step,
            issued.bindings,
            execution_id="1",
            command_key=command.key,
            idempotency_key=issued.idempotency_key,
            checkpoint=command.checkpoint,
        )
        awaited = command.awaited
        while True:
            match pipeline.next():
                case RunTask() as run if awaited is not None:
                    given = {key: awaited.get(key) for key in ("status", "data", "error")}
                    pipeline.report(Outcome(**given))
                    awaited = None
                case RunTask() as run if run.task.kind in WAITING:
                    asked = request_of(run.task.kind, run.config, run.input, run.timeout_s)
                    return ev.CommandParked(
                        **named, reason=_reason(asked), checkpoint=pipeline.checkpoint(),
                        task=run.task.name, request=asked,
                    )  # fmt: skip
                case RunTask() as run:
                    pipeline.report(self.outcome(command, run))
                case Park() as park:
                    return ev.CommandParked(
                        **named, reason="retry", delay_ms=park.delay_ms,
                        checkpoint=park.checkpoint, task=park.task,
                    )  # fmt: skip
                case Done() as done:
                    return ev.CallDone(
                        **named, result=done.result, ctx=done.ctx, iter=done.iter,
                        of_step=done.of_step, ends_loop=done.ends_loop, tasks=done.tasks,
                    )  # fmt: skip
                case Failed() as failed:
                    return ev.CallError(**named, error=failed.error, result=failed.result)

    def outcome(self, command: Command, run: RunTask) -> Outcome:
        """What a task gives: by its name and try alone."""
        name = f"{command.key}/{run.idempotency_key}/{run.try_number}"
        if self._fails(name):
            error = {"kind": "python", "code": "python_error", "message": name, "retryable": False}
            return Outcome(status="error", error=error)
        if command.issued.is_claim:
            most = random.Random(f"{self.seed}/{command.step}").randint(0, 3)
            rows = list(range(2)) if (command.frame or 0) < most else []
            return Outcome(data={"rows": rows, "row_count": len(rows)})
        return Outcome(data={"v": name})

    def _fails(self, name: str) -> bool:
        return random.Random(f"{self.seed}/{name}").random() < self.chaos.failing

    # ------------------------------------------------------------------ what comes in

    def _deliver(self) -> None:
        """One report, or several in one batch, each perhaps three times."""
        count = 1 if self.chaos.in_order else self.chance.choice([1, 1, 2, 3])
        batch: list[ev.Event] = []
        for _ in range(min(count, len(self.mail))):
            place = 0 if self.chaos.in_order else self.chance.randrange(len(self.mail))
            report = self.mail.pop(place)
            self.sent.append(report)
            batch += [report] * (3 if self.chance.random() < self.chaos.twice else 1)
        self.host.post(*batch)

    def _return(self) -> None:
        key = self._pick(list(self.host.state.children))
        child = self.host.state.children[key]
        place = key.removeprefix(child.command_key).partition("~")[0]
        name = f"{child.command_key}/{place}"
        facts: dict[str, Any] = {"child_key": key, "child_execution_id": name}
        if not child.is_awaited:
            returned = ev.ExecutionReturned(**facts, outcome="STARTED")
        elif self._fails(name):
            error = ev.Error(kind="python", code="python_error", message=name)
            returned = ev.ExecutionReturned(**facts, outcome="FAILED", error=error)
        else:
            returned = ev.ExecutionReturned(**facts, outcome="COMPLETED", result=name)
        self.sent.append(returned)
        self.host.post(*[returned] * (3 if self.chance.random() < self.chaos.twice else 1))

    def _answer(self) -> None:
        commands = self.host.state.commands.values()
        command = self._pick([one for one in commands if one.parked == "callback"])
        named: dict[str, Any] = {"step": command.step, "command_key": command.key,
                                 "attempt": command.attempt}  # fmt: skip
        if self._fails(f"{command.key}/callback"):
            error = ev.Error(kind="python", code="refused", message="no")
            report: ev.Event = ev.CallError(**named, error=error)
        else:
            report = ev.CallDone(**named, result={"answer": command.key})
        self.sent.append(report)
        self.host.post(*[report] * (3 if self.chance.random() < self.chaos.twice else 1))

    def _timers(self, kinds: frozenset[str], *, among: bool) -> list[str]:
        timers = self.host.state.timers.items()
        return [key for key, timer in timers if (timer.kind in kinds) == among]

    def _fire(self) -> None:
        self.host.fire(self._pick(self._timers(LIMITS, among=False)))

    # ------------------------------------------------------------------ trouble

    def _trouble(self) -> bool:
        """Whether something went wrong, or somebody meddled."""
        chaos = self.chaos
        ways = [self._end, self._pause, self._lose, self._repeat, self._expire, lambda: False]
        shares = [chaos.control, chaos.pause, chaos.lost, chaos.stale, chaos.limits]
        (way,) = self.chance.choices(ways, [*shares, 1 - sum(shares)])
        return way()

    def _pause(self) -> bool:
        if self.host.state.is_paused:
            self._resume()
        else:
            self.host.post(ev.ExecutionPaused(by="me"))
        return True

    def _repeat(self) -> bool:
        if self.sent:
            self.host.post(self.chance.choice(self.sent))
        return bool(self.sent)

    def _expire(self) -> bool:
        late = self._timers(LIMITS, among=True)
        if not late or self.host.state.is_paused:
            return False
        self.host.fire(self.chance.choice(late))
        return True

    def _resume(self) -> None:
        self.host.passed_ms += self.chance.choice([0, 5, 600_000])
        self.host.post(ev.ExecutionResumed(by="me"))

    def _lose(self) -> bool:
        commands = self.host.state.commands.values()
        held = [
            one
            for one in commands
            if one.status in {"CLAIMED", "RUNNING"}
            and one.report is None
            and self.lost.get(one.key, 0) < self.chaos.most_lost
        ]
        if not held:
            return False
        command = self.chance.choice(held)
        self.lost[command.key] = self.lost.get(command.key, 0) + 1
        self.host.post(
            ev.CommandLost(step=command.step, command_key=command.key, attempt=command.attempt)
        )
        return True

    def _end(self) -> bool:
        error = ev.Error(kind="control", code="finalized", message="ended by hand")
        self.host.post(
            self.chance.choice(
                [
                    ev.PlaybookCancelled(by="me"),
                    ev.PlaybookCompleted(by="me"),
                    ev.PlaybookFailed(by="me", error=error),
                ]
            )
        )
        return True


def _reason(asked: dict[str, Any]) -> Literal["retry", "child", "callback"]:
    if "children" in asked:
        return "child"
    return "retry" if "wait_ms" in asked or "until" in asked else "callback"


def started(body: str, seed: int, order: str, chaos: Chaos = CALM) -> Run:
    """A run that has begun; some wait for others first."""
    return Run(Host(body, is_queued=seed % 11 == 0), seed, order, chaos)


def wild(seed: int) -> Chaos:
    """Every trouble, each at a random rate."""
    chance = random.Random(f"chaos/{seed}")
    return Chaos(
        failing=chance.choice([0.0, 0.1, 0.4]),
        twice=chance.choice([0.0, 0.3]),
        stale=chance.choice([0.0, 0.1]),
        lost=chance.choice([0.0, 0.1]),
        most_lost=chance.choice([2, 4]),
        limits=chance.choice([0.0, 0.0, 0.1]),
        pause=chance.choice([0.0, 0.0, 0.1]),
        control=chance.choice([0.0, 0.0, 0.0, 0.02]),
    )


def same_tools(chaos: Chaos, **troubles: float) -> Chaos:
    """Other troubles around tools that give the same."""
    return replace(Chaos(failing=chaos.failing), **troubles)
