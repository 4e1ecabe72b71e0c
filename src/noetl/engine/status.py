"""The one place where the status of a run is derived, and what of it is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl.engine.state import State

STATUSES = ("PENDING", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED")


def status_of(state: State) -> str:
    """The terminal event if there is one, else paused, else queued, else running."""
    if state.terminal is not None:
        return state.terminal
    if state.is_paused:
        return "PAUSED"
    return "PENDING" if state.is_queued else "RUNNING"


def progress_of(state: State) -> dict[str, int]:
    """How many steps were entered, and how many of them ended in which way."""
    words = {"COMPLETED": "completed_steps", "FAILED": "failed_steps", "SKIPPED": "skipped_steps"}
    counts = dict.fromkeys(
        ("total_steps", "completed_steps", "running_steps", "failed_steps", "skipped_steps"), 0
    )
    for step in state.steps.values():
        if step.is_live:
            counts["running_steps"] += 1
        elif step.status in words:
            counts[words[step.status]] += 1
        if step.status is not None and step.status != "SKIPPED":
            counts["total_steps"] += 1
    return counts


def current_steps(state: State) -> tuple[str, ...]:
    """The steps that are under way, in the order of the definition."""
    if not state.live_visits:
        return ()
    live = {name for name, step in state.steps.items() if step.is_live}
    return tuple(name for name in state.program.steps if name in live)
