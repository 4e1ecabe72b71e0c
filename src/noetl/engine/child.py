"""Tools that the engine runs itself, and tasks of a worker that wait: children, waits, callbacks.

A step whose only tool is `playbook`, `playbooks` or `wait` is driven here by the same pure stepper
that workers drive, so that rules, retries and writes mean the same in both places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.dsl.views import Lazy, Outcome
from noetl.engine import events as ev
from noetl.engine.config import Unrendered, duration
from noetl.engine.moments import later, utc
from noetl.engine.pipeline import Done, Park, Pipeline, RunTask
from noetl.engine.route import CtxFull, check_room

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.engine.events import Event
    from noetl.engine.state import Command, State

CALLBACK_S: Final = 24 * 3600.0
MOST_CHILDREN: Final = 1_000


def drive(state: State, resolved: Mapping[str, Any], key: str) -> list[Event]:
    """Go on with a command that no worker runs."""
    command = state.commands[key]
    pipeline = _pipeline(state, command, resolved)
    if command.awaited is not None and isinstance(pipeline.next(), RunTask):
        pipeline.report(outcome_of(command, resolved))
    while True:
        match pipeline.next():
            case RunTask() as run:
                try:
                    return _parked(state, command, run, pipeline.checkpoint())
                except Unrendered as fault:
                    pipeline.report(Outcome(status="error", error=fault.error))
            case Park() as park:
                return [
                    ev.CommandParked(
                        step=command.step,
                        command_key=key,
                        attempt=command.attempt,
                        reason="retry",
                        delay_ms=park.delay_ms,
                        checkpoint=park.checkpoint,
                        task=park.task,
                        error=park.error,
                    )
                ]
            case Done() as done:
                return _done(state, command, done)
            case failed:
                return [*timers_gone(state, key), ev.CommandFailed(
                    step=command.step, command_key=key, error=failed.error
                )]  # fmt: skip


def _pipeline(state: State, command: Command, resolved: Mapping[str, Any]) -> Pipeline:
    issued = command.issued
    spec = state.program.playbook.executor.spec if state.program.playbook.executor else None
    return Pipeline(
        state.program.steps[command.step].step,
        issued.bindings,
        refs=issued.refs,
        resolved=resolved,
        execution_id=state.execution_id,
        command_key=command.key,
        idempotency_key=issued.idempotency_key,
        checkpoint=command.checkpoint,
        defaults=spec.policy.defaults if spec and spec.policy else None,
    )


def outcome_of(command: Command, resolved: Mapping[str, Any]) -> Outcome:
    """What a command waited for, as the outcome of its task."""
    awaited = command.awaited or {}
    data = awaited.get("data")
    if command.awaited_ref is not None:
        data = Lazy(command.awaited_ref, resolved)
    return Outcome(status=awaited["status"], data=data, error=awaited.get("error"))


def _done(state: State, command: Command, done: Done) -> list[Event]:
    key = command.key
    try:
        check_room(state.ctx, done.ctx)
    except CtxFull as fault:
        error = ev.Error(kind="limit", code="ctx_limit", message=str(fault), step=command.step)
        return [ev.CommandFailed(step=command.step, command_key=key, error=error)]
    closed: list[Event] = [
        *timers_gone(state, key),
        ev.CommandCompleted(
            step=command.step, command_key=key, iter=done.iter, ends_loop=done.ends_loop
        ),
    ]
    if done.ctx or done.of_step:
        closed.append(
            ev.CtxUpdated(step=command.step, cause=key, ctx=done.ctx, of_step=done.of_step)
        )
    return closed


def timers_gone(state: State, key: str) -> list[Event]:
    """The timers of a command that is closed."""
    if not state.timers:
        return []
    names = (f"{kind}:{key}" for kind in ("retry", "wait", "park_deadline"))
    return [ev.TimerCancelled(timer_key=name) for name in names if name in state.timers]


def _parked(
    state: State, command: Command, run: RunTask, checkpoint: dict[str, Any]
) -> list[Event]:
    """Ask for what the task needs, and wait."""
    request = request_of(run.task.kind, run.config, run.input, run.timeout_s)
    facts: dict[str, Any] = {
        "step": command.step,
        "command_key": command.key,
        "attempt": command.attempt,
        "checkpoint": checkpoint,
        "task": run.task.name or None,
        "request": request,
    }
    if "children" in request:
        asked = _children(state, command, request)
        return [
            *asked,
            ev.CommandParked(reason="child", **facts),
            *_deadline(state, command, request.get("timeout_s")),
        ]
    if "wait_ms" in request or "until" in request:
        return [ev.CommandParked(reason="retry", **facts)]
    return [ev.CommandParked(reason="callback", **facts)]


def request_of(
    kind: str, config: Mapping[str, Any], inputs: Mapping[str, Any], timeout_s: float | None
) -> dict[str, Any]:
    """What a waiting task asks for, in the one form that engine and workers share."""
    if kind == "wait":
        if config.get("callback"):
            return {"timeout_s": CALLBACK_S if timeout_s is None else timeout_s}
        if config.get("until") is not None:
            return {"until": _moment(config["until"])}
        wait_s = duration(config.get("seconds"), "seconds")
        return {"wait_ms": round(wait_s * 1000)}
    many = kind == "playbooks"
    if many:
        items = config.get("items")
        if not isinstance(items, list) or len(items) > MOST_CHILDREN:
            raise Unrendered(f"`items` must be a list of at most {MOST_CHILDREN} children")
        children = [_child(item, config) for item in items]
    else:
        children = [_child({**config, "input": dict(inputs)}, config)]
    return {
        "children": children,
        "many": many,
        "best_effort": bool(config.get("best_effort")),
        "wait": config.get("wait") is not False,
        "timeout_s": timeout_s,
    }


def _child(item: Any, config: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - an item of the author's own
    if not isinstance(item, dict) or not (item.get("path") or item.get("catalog_id")):
        raise Unrendered("`items`: every child needs a `path` or a `catalog_id`")
    workload = item.get("input") or {}
    if not isinstance(workload, dict):
        raise Unrendered("`input`: the payload of a child is a map")
    path, _, at = str(item["path"]).partition("@") if item.get("path") else ("", "", "")
    version = item.get("version") or at or None
    return {
        "path": path or None,
        "catalog_id": str(item["catalog_id"]) if item.get("catalog_id") else None,
        "version": None if version is None else str(version),
        "workload": workload,
        "pool": item.get("pool") or config.get("pool"),
        "return_step": item.get("return_step"),
        "dedup_key": item.get("dedup_key"),
    }


def _moment(text: object) -> str:
    try:
        return utc(str(text))
    except ValueError:
        raise Unrendered(f"`until`: `{text}` is not an RFC 3339 time") from None


def _children(state: State, command: Command, request: Mapping[str, Any]) -> list[Event]:
    attempt = f"~{command.attempt}" if command.attempt > 1 else ""
    made: list[Event] = []
    for number, child in enumerate(request["children"]):
        made.append(
            ev.ExecutionRequested(
                step=command.step,
                command_key=command.key,
                child_key=f"{command.key}/c{number}{attempt}",
                is_awaited=request["wait"],
                **{**child, "pool": child.get("pool") or state.pool},
            )
        )
    return made


def _asked(request: Mapping[str, Any]) -> dict[str, Any]:
    """What a worker asks for, in the form that the engine's own requests have."""
    given = [{**child, "input": child.get("workload")} for child in request.get("children") or ()]
    if not given:
        raise Unrendered("there is no child to start")
    return {**request, "children": [_child(child, {}) for child in given]}


def request(state: State, resolved: Mapping[str, Any], key: str) -> list[Event]:
    """Start the children that a parked task of a worker asked for."""
    del resolved
    command = state.commands[key]
    try:
        asked = _asked(command.request or {})
    except Unrendered as fault:
        error = ev.Error(kind=fault.kind, code=fault.code, message=fault.message, step=command.step)
        return [ev.CommandFailed(step=command.step, command_key=key, error=error)]
    return [*_children(state, command, asked), *_deadline(state, command, asked.get("timeout_s"))]


def _deadline(state: State, command: Command, timeout_s: float | None) -> list[Event]:
    if timeout_s is None:
        return []
    due = later(state.now, round(timeout_s * 1000))
    key = f"park_deadline:{command.key}"
    return [ev.TimerSet(timer_key=key, kind="park_deadline", due_at=due, step=command.step)]


def park(state: State, resolved: Mapping[str, Any], key: str) -> list[Event]:
    """The timer of a command that waits: until a retry, for a time, or for an answer."""
    del resolved
    command = state.commands[key]
    asked = command.request or {}
    if command.parked == "callback":
        return _deadline(state, command, asked.get("timeout_s", CALLBACK_S))
    if "until" in asked:
        due, kind = max(asked["until"], state.now), "wait"
    elif "wait_ms" in asked:
        due, kind = later(state.now, int(asked["wait_ms"])), "wait"
    else:
        due, kind = later(state.now, command.delay_ms or 0), "retry"
    return [ev.TimerSet(timer_key=f"{kind}:{key}", kind=kind, due_at=due, step=command.step)]


def resume(state: State, resolved: Mapping[str, Any], key: str) -> list[Event]:
    """A parked command is work again."""
    del resolved
    command = state.commands[key]
    awaited = command.awaited
    if awaited is not None and command.awaited_ref is not None:
        awaited = {**awaited, "reference": command.awaited_ref}
    return [
        *timers_gone(state, key),
        ev.CommandResumed(
            step=command.step,
            command_key=key,
            attempt=command.attempt + 1,
            checkpoint=command.checkpoint,
            awaited=awaited,
        ),
    ]
