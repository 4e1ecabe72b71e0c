"""The end of a run: when nothing is left to wait for, it completes or it has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.dsl.conformity import BadSchema, faults
from noetl.dsl.template import TemplateFailure, render
from noetl.dsl.template.values import plain
from noetl.dsl.views import Lazy
from noetl.engine import events as ev
from noetl.engine.scope import scope_of
from noetl.engine.work import template_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.views import Reference
    from noetl.engine.events import Event
    from noetl.engine.state import State


def is_at_rest(state: State) -> bool:
    """Whether no visit is live, no command open, and no timer set that something waits for."""
    if state.is_queued or state.live_visits or state.commands:
        return False
    return all(timer.kind == "execution_timeout" for timer in state.timers.values())


def completion(state: State, resolved: Mapping[str, Any]) -> list[Event]:
    """The terminal event of a run that has nothing left to wait for."""
    if state.failure is not None:
        order = [name for name in state.program.steps if name in state.failed_steps]
        return [ev.PlaybookFailed(error=state.failure, failed_steps=tuple(order))]
    try:
        data, reference = _result(state, resolved)
        error = _violation(state, data, reference, resolved)
    except TemplateFailure as fault:
        return [ev.PlaybookFailed(error=template_error(fault, "playbook"))]
    if error is not None:
        return [ev.PlaybookFailed(error=error, result=data, reference=reference)]
    return [ev.PlaybookCompleted(result=data, reference=reference)]


def _result(state: State, resolved: Mapping[str, Any]) -> tuple[Any, Reference | None]:
    """What the run returns: as written, else the data of the last step that counts."""
    playbook = state.program.playbook
    if playbook.output is not None and playbook.output.value is not None:
        return render(playbook.output.value, scope_of(state, resolved=resolved)), None
    if playbook.result is not None:
        return render(playbook.result, scope_of(state, resolved=resolved)), None
    name = state.last_terminal_step or state.last_step
    result = state.step(name).result if name else None
    return (None, None) if result is None else (result.data, result.reference)


def _violation(
    state: State, data: object, reference: Reference | None, resolved: Mapping[str, Any]
) -> ev.Error | None:
    """Where the result breaks the schema that the playbook promises."""
    output = state.program.playbook.output
    if output is None or output.schema is None:
        return None
    value = plain(data if reference is None else Lazy(reference, resolved))
    try:
        broken = faults(output.schema, value)
    except BadSchema as fault:
        broken = [{"pointer": "", "message": fault.message}]
    if not broken:
        return None
    told = "; ".join(f"{item['pointer'] or '/'}: {item['message']}" for item in broken[:5])
    message = f"the result breaks `output.schema`: {told}"
    details = {"faults": broken[:20]}
    return ev.Error(kind="schema", code="output_schema", message=message, details=details)
