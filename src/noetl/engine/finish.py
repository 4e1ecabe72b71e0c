"""The end of a run: when nothing is left to wait for, it completes or it has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.dsl.template import TemplateFailure, render
from noetl.engine import events as ev
from noetl.engine.scope import scope_of
from noetl.engine.work import template_error

if TYPE_CHECKING:
    from noetl.engine.events import Event
    from noetl.engine.state import State


def completion(state: State) -> list[Event]:
    """The terminal event, once no visit is live, no command open and no timer set."""
    if state.live_visits or state.commands or state.timers:
        return []
    final = state.program.playbook.final
    if final and not state.final_entered and final in state.program.steps:
        return [ev.StepEntered(step=final, visit=1)]
    if state.failure is not None:
        order = [name for name in state.program.steps if name in state.failed_steps]
        return [ev.PlaybookFailed(error=state.failure, failed_steps=tuple(order))]
    try:
        return [ev.PlaybookCompleted(result=_result(state))]
    except TemplateFailure as fault:
        return [ev.PlaybookFailed(error=template_error(fault, "playbook"))]


def _result(state: State) -> object:
    playbook = state.program.playbook
    if playbook.output is not None and playbook.output.value is not None:
        return render(playbook.output.value, scope_of(state))
    if playbook.result is not None:
        return render(playbook.result, scope_of(state))
    name = state.last_terminal_step or state.last_step
    result = state.step(name).result if name else None
    return result.data if result is not None else None
