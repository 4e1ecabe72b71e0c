"""A step's list of tools as a pure stepper: what to run now, and what its outcome means.

The worker drives it: `next` says what to do, `report` takes what came of it. A checkpoint holds all
that was decided so far, so that another worker goes on where this one stopped. Resolved secrets are
never part of it: a step's `input` is rendered again from the same bindings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.dsl.scope import Names, Scope
from noetl.dsl.tasks import Noop
from noetl.dsl.template.values import plain
from noetl.dsl.views import Outcome, OutputView, StepResult, StepView
from noetl.engine.backoff import backoff_of
from noetl.engine.bindings import Bindings
from noetl.engine.collect import NAME, collected, collector
from noetl.engine.config import (
    Unrendered,
    config_of,
    keychain_names,
    map_of,
    model_of,
    timeout_s,
)
from noetl.engine.events import Error
from noetl.engine.once import Once
from noetl.engine.progress import Progress
from noetl.engine.rules import completed, failed, refused, ruling, terms_of, told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.playbook import Step
    from noetl.dsl.shape import Model
    from noetl.dsl.tasks.task import Action, Task, TaskSpec
    from noetl.dsl.views import Reference
    from noetl.engine.rules import Ruling, Terms

MOST_RUNS = 1_000_000
_PREVIOUS = frozenset({"previous", "prev"})
_NOTHING: Mapping[str, Any] = {}
_NO_NAMES = Scope(Names())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTask:
    """Run this task now and report its outcome."""

    task: Task
    config: dict[str, Any]
    input: dict[str, Any]
    try_number: int
    idempotency_key: str
    timeout_s: float | None
    resume: Any = None
    """What an earlier try of this pass kept."""
    scope: Scope = field(compare=False, repr=False)
    """For what the tool renders itself: pages, and what code reads by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Park:
    """Give the slot back and come again after the delay, with the checkpoint."""

    delay_ms: int
    checkpoint: dict[str, Any]
    task: str
    error: Error | None = None
    """Why the task is tried again; none when its outcome was good and a rule refused it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The pipeline ended well; `ctx` and `of_step` are writes by path, in their order."""

    result: Any
    ctx: dict[str, Any]
    iter: dict[str, Any]
    of_step: dict[str, Any]
    ends_loop: bool
    tasks: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The pipeline failed; its writes are dropped, its results so far are kept."""

    error: Error
    result: Any
    tasks: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What does not change between the commands of a step."""

    tasks: dict[str, Task]
    order: list[str]
    terms: dict[str, Terms]
    needs: dict[str, frozenset[str]]


def _planned(step: Step, defaults: TaskSpec | None) -> _Plan:
    """The tasks of a step and their terms."""
    tools = step.tools or (Noop(kind="noop"),)
    tasks: dict[str, Task] = {task.name: task for task in tools}
    terms = {name: terms_of(task, defaults) for name, task in tasks.items()}
    needs = {
        name: keychain_names(task, terms[name].rules, step.input) for name, task in tasks.items()
    }
    return _Plan(tasks, list(tasks), terms, needs)


_plan_of = Once(_planned)


class Pipeline:
    """Steps through the tasks of one command."""

    def __init__(  # noqa: PLR0913 - what a command is made of
        self,
        step: Step,
        bindings: Mapping[str, Any],
        *,
        execution_id: str,
        command_key: str,
        idempotency_key: str,
        refs: Mapping[str, Reference] = _NOTHING,
        resolved: Mapping[str, Any] = _NOTHING,
        checkpoint: Mapping[str, Any] | None = None,
        defaults: TaskSpec | None = None,
        limit: int = MOST_RUNS,
    ) -> None:
        """Begin with the first task, or go on from a checkpoint.

        `resolved` is read when a template touches a value by reference; what it lacks is asked for
        by `NeedsObject`, and `next` may then be called again.
        """
        self._step = step
        plan = _plan_of(step, defaults)
        self._tasks = plan.tasks
        self._order = plan.order
        self._terms = plan.terms
        self._needs = plan.needs
        self._seed = f"{execution_id}/{command_key}"
        self._idempotency_key = idempotency_key
        self._limit = limit
        self._bindings = Bindings(step, bindings, execution_id, refs, resolved)
        # The step's `input` sees nothing of what its tasks write.
        self._first = (
            Bindings(step, bindings, execution_id, refs, resolved) if step.input else self._bindings
        )
        self._step_input: dict[str, Any] | None = None
        self._keychain = _NOTHING
        self._running: dict[str, Any] | None = None
        self._park: Park | None = None
        if checkpoint is None:
            self._at = Progress()
            self._enter(0)
        else:
            self._at = msgspec.convert(checkpoint, Progress)
            for key, value in self._at.writes.items():
                self._bindings.write(key, value)

    def needs_keychain(self) -> frozenset[str]:
        """The keychain entries that `next` wants for the task it is about to run."""
        name = self._at.task
        return frozenset() if name is None else self._needs[name]

    def next(self, keychain: Mapping[str, Any] = _NOTHING) -> RunTask | Park | Done | Failed:
        """What to do now; the same again until the outcome of a task is reported.

        A task whose outcome another event brought (a child, a callback) is reported the same way,
        after `next` named it, without being run.
        """
        self._keychain = keychain
        while True:
            at = self._at
            if self._park is not None:
                park, self._park = self._park, None
                return park
            if at.failure is not None:
                return Failed(error=at.failure, result=self._partial(), tasks=at.recorded())
            if at.task is None:
                return self._done()
            if at.runs >= self._limit:
                message = f"the pipeline ran {self._limit} tasks and did not end"
                self._fail({"kind": "limit", "code": "pipeline_limit", "message": message}, None)
                continue
            task = self._tasks[at.task]
            try:
                return self._prepared(task)
            except Unrendered as fault:
                self._settle(task, Outcome(status="error", error=fault.error), {})

    def report(self, outcome: Outcome) -> None:
        """Take what the task gave; its rules decide what follows."""
        if self._running is None or self._at.task is None:
            raise RuntimeError("no task is running")
        inputs, self._running = self._running, None
        self._settle(self._tasks[self._at.task], outcome, inputs)

    def keep(self, state: object) -> None:
        """Keep where the running task is, for its next try."""
        self._at.kept = state

    def rendered(self, model: Model, place: str) -> dict[str, Any]:
        """A part of the step that is read when its tasks have ended, with what they left."""
        return model_of(model, place, self._scope(self._step_input or {}, max(1, self._at.tries)))

    def checkpoint(self) -> dict[str, Any]:
        """All that was decided so far, as JSON; a task that is running has not run."""
        made: dict[str, Any] = msgspec.to_builtins(self._at)
        return made

    # ------------------------------------------------------------------ before a task

    def _prepared(self, task: Task) -> RunTask:
        missing = sorted(self.needs_keychain() - self._keychain.keys())
        if missing:
            message = "the keychain has no " + ", ".join(f"`{name}`" for name in missing)
            raise Unrendered(message, kind="auth", code="keychain_missing")
        attempt = self._at.tries + 1
        inputs = self._inputs(task, attempt)
        scope = self._scope(inputs, attempt)
        run = RunTask(
            task=task,
            config=config_of(task, scope),
            input=inputs,
            try_number=attempt,
            idempotency_key=self._key(task),
            timeout_s=timeout_s(self._terms[task.name].timeout, scope),
            resume=self._at.kept,
            scope=scope,
        )
        self._running = inputs
        return run

    def _inputs(self, task: Task, attempt: int) -> dict[str, Any]:
        """The step's `input`, rendered once and before anything was written, under the task's."""
        if not self._step.input:
            self._step_input = {}
        elif self._step_input is None:
            scope = self._first.scope(keychain=self._keychain)
            self._step_input = map_of(self._step.input, "step.input", scope)
        own = map_of(task.input, "input", self._scope(self._step_input, attempt))
        return {**self._step_input, **own}

    def _key(self, task: Task) -> str:
        name = f"/{task.name}" if self._step.is_pipeline else ""
        passes = self._at.passes[task.name]
        return self._idempotency_key + name + (f"~{passes}" if passes > 1 else "")

    def _scope(
        self, inputs: Mapping[str, Any], attempt: int, outcome: Outcome | None = None
    ) -> Scope:
        at = self._at
        names = self._order if self._step.is_pipeline else ()
        tasks: dict[str, Any] = {
            **{name: self._view(name) for name in names},
            "_prev": None if at.previous is None else at.results[at.previous],
            "_task": at.task,
            "_attempt": attempt,
            "results": dict(at.results),
        }
        more = None if outcome is None else {"output": OutputView(outcome)}
        return self._bindings.scope(keychain=self._keychain, inputs=inputs, tasks=tasks, more=more)

    def _view(self, name: str) -> StepView | None:
        """A finished task: its data, and the error that a rule accepted."""
        if name not in self._at.results:
            return None
        data, error = self._at.results[name], self._at.errors.get(name)
        return StepView(StepResult(status="error" if error else "ok", data=data, error=error))

    # ------------------------------------------------------------------ after a task

    def _settle(self, task: Task, given: Outcome, inputs: Mapping[str, Any]) -> None:
        """Count the try, find the rule, and do what it says."""
        at = self._at
        at.runs += 1
        at.tries += 1
        outcome = completed(given, at.tries)
        entry: dict[str, Any] = {"name": task.name, "kind": task.kind, "try": at.tries}
        entry["status"] = outcome.status
        if (took := (given.meta or {}).get("duration_ms")) is not None:
            entry["ms"] = took
        at.record(entry)
        # Without rules and writes nothing is evaluated.
        is_read = bool(self._terms[task.name].rules or task.set or outcome.error)
        scope = self._scope(inputs, at.tries, outcome) if is_read else _NO_NAMES
        try:
            found = ruling(self._terms[task.name], outcome, scope)
            if found.place:
                entry["rule"] = found.place
            self._act(task, outcome, found, scope)
        except Unrendered as fault:
            self._fail(fault.error, outcome.data)

    def _act(self, task: Task, outcome: Outcome, found: Ruling, scope: Scope) -> None:
        action = found.action
        match action.do:
            case "fail":
                self._fail(failed(outcome, found, scope), outcome.data)
            case "retry":
                self._again(task, outcome, found, scope)
            case "jump":
                target = self._target(task, action)
                self._finish(task, outcome, found, scope)
                self._enter(target)
            case "break":
                self._finish(task, outcome, found, scope)
                self._at.ends_loop = action.loop
                self._enter(len(self._order))
            case _:
                self._finish(task, outcome, found, scope)
                self._enter(self._order.index(task.name) + 1)

    def _again(self, task: Task, outcome: Outcome, found: Ruling, scope: Scope) -> None:
        terms = backoff_of(found.action, found.place, scope)
        tries = self._at.tries
        if tries >= terms.attempts:
            message = f"the outcome is still refused after {tries} tries"
            self._fail(refused(outcome, "retries_exhausted", message), outcome.data)
            return
        self._write(map_of(found.action.set, f"{found.place}.set", scope))
        least = (outcome.error or {}).get("retry_after_s")
        least_s = least if isinstance(least, (int, float)) else 0.0
        delay_ms = terms.delay_ms(tries, seed=self._seed, least_s=least_s)
        if delay_ms:
            self._park = Park(
                delay_ms=delay_ms,
                checkpoint=self.checkpoint(),
                task=task.name,
                error=told(outcome.error),
            )

    def _target(self, task: Task, action: Action) -> int:
        if action.to in self._tasks:
            return self._order.index(action.to)
        before = self._order.index(task.name) - 1
        if action.to in _PREVIOUS and before >= 0:
            return before
        raise Unrendered(f"`jump`: there is no task `{action.to}`")

    def _finish(self, task: Task, outcome: Outcome, found: Ruling, scope: Scope) -> None:
        """Keep the result; both `set` maps see the state before, the rule's is written last."""
        of_task = {} if outcome.error else map_of(task.set, "set", scope)
        of_rule = map_of(found.action.set, f"{found.place}.set", scope)
        self._write(of_task)
        self._write(of_rule)
        self._collect(task, outcome)
        at = self._at
        at.results[task.name] = outcome.data
        at.previous = task.name
        at.errors.pop(task.name, None)
        if outcome.error is not None:
            at.errors[task.name] = dict(outcome.error)

    def _collect(self, task: Task, outcome: Outcome) -> None:
        """Keep what a task collects over its passes where the step's own values are."""
        spec = collector(task, outcome)
        if spec is not None:
            key = f"step.{spec.manifest_as or NAME}"
            data = plain(outcome.data)
            self._write({key: collected(spec, self._at.writes.get(key), data)})

    def _write(self, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            self._at.write(key, value)
            self._bindings.write(key, value)

    def _enter(self, index: int) -> None:
        self._at.enter(self._order[index] if index < len(self._order) else None)

    # ------------------------------------------------------------------ the end

    def _done(self) -> Done:
        at = self._at
        return Done(
            result=self._results() if self._step.is_pipeline else at.results[self._order[0]],
            ctx=at.written("ctx"),
            iter=dict(self._bindings.iter_writes),
            of_step=at.written("step"),
            ends_loop=at.ends_loop,
            tasks=at.recorded(),
        )

    def _results(self) -> dict[str, Any]:
        """What every finished task gave, in the pipeline's order."""
        results = self._at.results
        return {name: results[name] for name in self._order if name in results}

    def _partial(self) -> Any:  # noqa: ANN401 - data of a tool
        """What there is of a failed pipeline: earlier results and what the failed task left."""
        at = self._at
        if not self._step.is_pipeline:
            return at.partial
        return self._results() | ({} if at.partial is None else {str(at.task): at.partial})

    def _fail(self, error: Mapping[str, Any], partial: object) -> None:
        at = self._at
        names = ("status_code", "retry_after_s")
        told = {name: error[name] for name in names if error.get(name) is not None}
        at.partial = partial
        at.failure = Error(
            kind=error["kind"],
            code=error["code"],
            message=error["message"],
            retryable=bool(error.get("retryable")),
            step=self._step.name,
            task=at.task or None,
            index=self._bindings.index,
            details={**(error.get("details") or {}), **told} or None,
        )
