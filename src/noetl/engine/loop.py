"""Loops: a source becomes items, items become iterations, within `max_in_flight` and in order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noetl.dsl.template import TemplateFailure, render
from noetl.engine import events as ev
from noetl.engine.route import finished
from noetl.engine.scope import scope_of
from noetl.engine.work import issue, template_error

if TYPE_CHECKING:
    from noetl.engine.events import Event
    from noetl.engine.state import LoopState, State

MOST_ITEMS = 1_000_000
DEFAULT_PARALLEL = 10


class BadSource(Exception):
    """A value that a loop cannot go over."""


def items_of(source: object) -> list[Any]:
    """The items of a loop's source, by its type and never by guessing."""
    if isinstance(source, list):
        items = source
    elif isinstance(source, dict):
        items = [{"key": key, "value": value} for key, value in source.items()]
    elif isinstance(source, bool) or source is None or isinstance(source, float):
        raise BadSource(f"cannot loop over {json.dumps(source)}")
    elif isinstance(source, int):
        if source < 0:
            raise BadSource(f"cannot loop {source} times")
        items = list(range(min(source, MOST_ITEMS + 1)))
    else:
        items = _of_text(str(source))
    if len(items) > MOST_ITEMS:
        raise BadSource(f"more than {MOST_ITEMS} items")
    return items


def _of_text(text: str) -> list[Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if isinstance(parsed, list):
        return parsed
    parts = text.split("\n") if "\n" in text else text.split(",")
    return [part.strip() for part in parts if part.strip()]


def begin(state: State, name: str) -> list[Event]:
    """Evaluate the source of a loop."""
    loop = state.program.steps[name].step.loop
    if loop is None:
        return []
    scope = scope_of(state, name)
    try:
        items = items_of(render(loop.source, scope))
        asked = render(loop.spec.max_in_flight if loop.spec else None, scope)
    except BadSource as fault:
        error = ev.Error(kind="config", code="loop_source", message=str(fault), step=name)
        return finished(state, name, error=error)
    except TemplateFailure as fault:
        return finished(state, name, error=template_error(fault, name))
    most = 1 if loop.mode == "sequential" else _in_flight(asked)
    return [
        ev.LoopStarted(
            step=name,
            visit=state.step(name).visit,
            total=len(items),
            mode=loop.mode,
            max_in_flight=most,
            items=items,
        )
    ]


def _in_flight(asked: object) -> int:
    if isinstance(asked, int) and not isinstance(asked, bool) and asked >= 1:
        return min(asked, 1000)
    return DEFAULT_PARALLEL


def advance(state: State, name: str) -> list[Event]:
    """Issue what may run now, or end the loop."""
    loop = state.step(name).loop
    if loop is None:
        return []
    if not loop.is_ending and loop.next_index < loop.total:
        room = loop.max_in_flight - loop.open
        upto = min(loop.total, loop.next_index + room)
        return [issue(state, name, index) for index in range(loop.next_index, upto)]
    return [_done(state, name, loop)]


def _done(state: State, name: str, loop: LoopState) -> ev.LoopDone:
    best_effort = state.program.steps[name].step.failure_mode == "best_effort"
    failed = loop.failed > 0 and (not best_effort or loop.failed == loop.done)
    return ev.LoopDone(
        step=name,
        visit=state.step(name).visit,
        outcome="FAILED" if failed else "COMPLETED",
        stats={"total": loop.total, "success": loop.done - loop.failed, "failed": loop.failed},
        result=list(loop.results),
        errors=tuple(loop.errors),
        error=loop.first_error if failed else None,
    )
