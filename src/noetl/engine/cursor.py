"""Cursor loops: a statement claims rows, a frame of rows becomes bodies, until a claim is empty."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from noetl.dsl.names import names_in
from noetl.dsl.playbook.loop import MOST_IN_FLIGHT, Frame
from noetl.dsl.tasks import Duckdb, Nats, Postgres, Sqlite
from noetl.dsl.template import TemplateFailure, compile_template, reads, render
from noetl.dsl.views import value_of
from noetl.engine import events as ev
from noetl.engine.config import Unrendered, duration
from noetl.engine.folds.loops import has_free_lane
from noetl.engine.folds.steps import errors_of, stats_of
from noetl.engine.moments import later
from noetl.engine.route import finished
from noetl.engine.scope import scope_of
from noetl.engine.work import bound_for, command, template_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.playbook import Step
    from noetl.dsl.playbook.loop import Cursor, Loop
    from noetl.dsl.tasks.task import Task
    from noetl.engine.events import Event
    from noetl.engine.state import FrameState, LoopState, State

MOST_FRAMES: Final = 100_000
_DEFAULT: Final = Frame()


def claim_step(step: Step) -> Step:
    """The step whose only tool runs the claim of a cursor."""
    if step.loop is None or step.loop.cursor is None:
        raise ValueError(f"{step.name} has no cursor")
    return replace(
        step,
        tools=(_claim(step.loop, step.loop.cursor),),
        is_pipeline=False,
        loop=None,
        set={},
        next=None,
    )


def _claim(loop: Loop, cursor: Cursor) -> Task:
    common: dict[str, Any] = {"kind": cursor.kind, "name": "claim", "auth": cursor.auth}
    sql = {**common, "command": cursor.claim, "params": cursor.params}
    match cursor.kind:
        case "postgres":
            return Postgres(**sql)
        case "sqlite":
            return Sqlite(**sql, path=cursor.path or "")
        case "duckdb":
            return Duckdb(**sql, database=cursor.database or ":memory:")
        case _:
            most = loop.spec.frame.max_rows if loop.spec and loop.spec.frame else 1
            return Nats(**common, operation="js_consume", stream=cursor.stream,
                        consumer=cursor.consumer, batch=most)  # fmt: skip


def open_cursor(
    state: State, resolved: Mapping[str, Any], name: str, loop: Loop, cursor: Cursor
) -> list[Event]:
    """Begin a cursor loop: how its frames are cut is settled once per visit."""
    scope = scope_of(state, name, resolved=resolved)
    spec = loop.spec
    try:
        lanes = in_flight(render(spec.max_in_flight if spec else None, scope), 1)
        cut = _cut(spec.frame if spec and spec.frame else _DEFAULT, scope)
    except TemplateFailure as fault:
        return finished(state, resolved, name, error=template_error(fault, name))
    except Unrendered as fault:
        error = ev.Error(kind=fault.kind, code=fault.code, message=fault.message, step=name)
        return finished(state, resolved, name, error=error)
    options = cursor.options
    cut["max_frames"] = options.max_iterations if options else MOST_FRAMES
    return [
        ev.LoopStarted(
            step=name,
            visit=state.step(name).visit,
            total=0,
            mode="cursor",
            max_in_flight=lanes,
            frame_spec=cut,
        )
    ]


def in_flight(asked: object, default: int) -> int:
    """How many may be open together."""
    if isinstance(asked, int) and not isinstance(asked, bool) and asked >= 1:
        return min(asked, MOST_IN_FLIGHT)
    return default


def _cut(frame: Frame, scope: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "max_rows": in_flight(render(frame.max_rows, scope), 1),
        "row_concurrency": in_flight(render(frame.row_concurrency, scope), 1),
        "max_seconds": duration(render(frame.max_seconds, scope), "loop.spec.frame.max_seconds"),
        "process": frame.process,
        "retry_mode": frame.retry_mode,
        "max_attempts": frame.max_attempts,
    }


def next_frames(state: State, name: str, loop: LoopState) -> list[Event]:
    """Claim for every free lane, or end the loop."""
    free = loop.max_in_flight - len(loop.frames) - loop.lanes_closed
    if has_free_lane(loop):
        upto = min(loop.next_frame + free, loop.frame_spec["max_frames"])
        numbers = range(loop.next_frame, upto)
        return [event for number in numbers for event in _dispatch(state, name, number, 1)]
    return [] if loop.frames else [_done(state, name, loop)]


def claim_again(state: State, resolved: Mapping[str, Any], name: str, number: int) -> list[Event]:
    """Claim for a frame whose claim failed."""
    del resolved
    loop = state.step(name).loop
    frame = loop.frames.get(number) if loop else None
    return _dispatch(state, name, number, frame.attempt) if frame else []


def _dispatch(state: State, name: str, number: int, attempt: int) -> list[Event]:
    own = state.step(name)
    loop, written = own.loop, state.program.steps[name].step.loop
    cursor = written.cursor if written else None
    binding = bound_for(state, name)
    binding.names(state.program.reads(name) | (_reads_of(cursor) if cursor else frozenset()))
    most = loop.frame_spec["max_rows"] if loop else 1
    binding.bound["frame"] = {"max_rows": most, "index": number, "attempt": attempt}
    key = f"{name}#{own.visit}/f{number}" + (f"~{attempt}" if attempt > 1 else "")
    return [
        ev.FrameDispatched(step=name, visit=own.visit, frame=number, attempt=attempt),
        command(state, name, key, binding, frame=number, is_claim=True),
    ]


def _reads_of(cursor: Cursor) -> frozenset[tuple[str, ...]]:
    """The names that a claim reads."""
    found = names_in([cursor.params, cursor.path, cursor.database, cursor.stream, cursor.consumer])
    return found | (reads(compile_template(cursor.claim)) if cursor.claim else frozenset())


def frame_turn(state: State, resolved: Mapping[str, Any], name: str, number: int) -> list[Event]:
    """Issue rows of a frame, commit it, or try it again."""
    own = state.step(name)
    loop = own.loop
    frame = loop.frames.get(number) if loop else None
    if loop is None or frame is None:
        return []
    facts: dict[str, Any] = {"step": name, "visit": own.visit, "frame": number}
    if not frame.is_claimed and frame.error is not None:
        return [ev.FrameFailed(**facts, attempt=frame.attempt, error=frame.error)]
    room = loop.frame_spec["row_concurrency"] - frame.open
    rows = [] if loop.is_ending else frame.waiting[:room]
    if rows:
        held = _rows_of(frame, resolved)
        issued: list[Event] = [_row(state, loop, facts, row, held) for row in rows]
        return [*_limit(state, name, number, frame, loop), *issued]
    ended: list[Event] = []
    timer = f"frame:{name}#{own.visit}/f{number}"
    if timer in state.timers:
        ended.append(ev.TimerCancelled(timer_key=timer))
    tries_left = frame.attempt < loop.frame_spec["max_attempts"] and not loop.is_ending
    if frame.failed and frame.error is not None and tries_left:
        return [*ended, ev.FrameFailed(**facts, attempt=frame.attempt, error=frame.error)]
    failed = len(frame.failed)
    if loop.frame_spec["process"] == "frame" and failed:
        failed = frame.total
    return [
        *ended,
        ev.FrameCommitted(**facts, rows=frame.total, failed=failed, attempt=frame.attempt),
    ]


def _limit(state: State, name: str, number: int, frame: FrameState, loop: LoopState) -> list[Event]:
    """The timer of a frame, set with its first rows."""
    key = f"frame:{name}#{state.step(name).visit}/f{number}"
    if frame.open or key in state.timers:
        return []
    due = later(state.now, int(loop.frame_spec["max_seconds"] * 1000))
    return [ev.TimerSet(timer_key=key, kind="frame", due_at=due, step=name)]


def _rows_of(frame: FrameState, resolved: Mapping[str, Any]) -> Any:  # noqa: ANN401 - rows of the author's own
    """The rows of a frame, from where they lie."""
    if frame.reference is None:
        return frame.rows
    whole = value_of(frame.reference, resolved)
    return whole.get("rows", []) if isinstance(whole, dict) else whole


def _row(
    state: State, loop: LoopState, facts: Mapping[str, Any], row: int, rows: list[Any]
) -> ev.CommandIssued:
    name, number = facts["step"], facts["frame"]
    binding = bound_for(state, name)
    binding.names(state.program.reads(name))
    is_whole = loop.frame_spec["process"] == "frame"
    binding.item(rows if is_whole else rows[row], row, None)
    binding.bound["frame"] = {"rows": rows if is_whole else [rows[row]], "index": number}
    tries = loop.frames[number].attempt
    attempt = f"~{tries}" if tries > 1 else ""
    key = f"{name}#{facts['visit']}/f{number}{attempt}/i{row}"
    return command(state, name, key, binding, index=row, frame=number)


def _done(state: State, name: str, loop: LoopState) -> ev.LoopDone:
    error = loop.first_error
    if error is None and loop.next_frame >= loop.frame_spec["max_frames"] and not loop.is_ending:
        message = f"the cursor is not drained after {loop.next_frame} frames"
        error = ev.Error(kind="limit", code="cursor_limit", message=message, step=name)
    best_effort = state.program.steps[name].step.failure_mode == "best_effort"
    only_rows = best_effort and loop.failed and loop.failed < loop.rows
    failed = error is not None and (loop.is_broken or not only_rows)
    return ev.LoopDone(
        step=name,
        visit=state.step(name).visit,
        outcome="FAILED" if failed else "COMPLETED",
        stats=stats_of(loop),
        result={"cursor": "drained", "frames": loop.next_frame, "rows": loop.rows},
        errors=errors_of(loop),
        error=error if failed else None,
    )
