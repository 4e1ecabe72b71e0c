"""Loops: a source becomes items, items become iterations, within `max_in_flight` and in order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noetl.dsl.template import TemplateFailure, render
from noetl.engine import events as ev
from noetl.engine.cursor import in_flight, next_frames, open_cursor
from noetl.engine.folds.steps import errors_of, stats_of
from noetl.engine.route import finished
from noetl.engine.scope import scope_of
from noetl.engine.work import issue, template_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.playbook.loop import Loop
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


def begin(state: State, resolved: Mapping[str, Any], name: str, loop: Loop) -> list[Event]:
    """Evaluate the source of a loop."""
    if loop.cursor is not None:
        return open_cursor(state, resolved, name, loop, loop.cursor)
    scope = scope_of(state, name, resolved=resolved)
    try:
        items = items_of(render(loop.source, scope))
        asked = render(loop.spec.max_in_flight if loop.spec else None, scope)
    except BadSource as fault:
        error = ev.Error(kind="config", code="loop_source", message=str(fault), step=name)
        return finished(state, resolved, name, error=error)
    except TemplateFailure as fault:
        return finished(state, resolved, name, error=template_error(fault, name))
    most = 1 if loop.mode == "sequential" else in_flight(asked, DEFAULT_PARALLEL)
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


def advance(state: State, resolved: Mapping[str, Any], name: str) -> list[Event]:
    """Issue what may run now, or end the loop."""
    loop = state.step(name).loop
    if loop is None:
        return []
    if loop.mode == "cursor":
        return next_frames(state, name, loop)
    if not loop.is_ending and (loop.next_index < loop.total or loop.again):
        room = loop.max_in_flight - loop.open
        again = loop.again[:room]
        upto = min(loop.total, loop.next_index + room - len(again))
        indexes = [*again, *range(loop.next_index, upto)]
        return [issue(state, name, resolved, index) for index in indexes]
    return [] if loop.open else [_done(state, name, loop)]


def _done(state: State, name: str, loop: LoopState) -> ev.LoopDone:
    best_effort = state.program.steps[name].step.failure_mode == "best_effort"
    failed = loop.failed > 0 and (not best_effort or loop.failed == loop.done)
    return ev.LoopDone(
        step=name,
        visit=state.step(name).visit,
        outcome="FAILED" if failed else "COMPLETED",
        stats=stats_of(loop),
        result=list(loop.results),
        errors=errors_of(loop),
        error=loop.first_error if failed else None,
    )
