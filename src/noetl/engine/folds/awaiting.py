"""A parked command gets what it waited for: it is work again, for a worker or for the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetl.engine.state import Command, State


def settle(state: State, command: Command) -> None:
    """The children of a command have returned."""
    given = [done or {} for done in command.children.values()]
    request = command.request or {}
    if not request.get("many"):
        answer(state, command, given[0])
        return
    failed = next((one for one in given if one["status"] == "error"), None)
    data = [one.get("data") for one in given]
    if failed is not None and not request.get("best_effort"):
        answer(state, command, {"status": "error", "error": failed["error"], "data": data})
    else:
        answer(state, command, {"status": "ok", "data": data})


def answer(state: State, command: Command, outcome: dict[str, Any]) -> None:
    """Hand the outcome to the task that waited; the first one counts."""
    if command.status != "PARKED" or command.awaited is not None:
        return
    command.awaited_ref = outcome.get("reference")
    command.awaited = {
        key: value for key, value in outcome.items() if key != "reference" and value is not None
    }
    state.step(command.step).child_execution_id = outcome.get("execution_id")
    state.push("drive" if command.pool is None else "resume", command.key)
