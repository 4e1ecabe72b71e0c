"""Why a run is not moving: everything that it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetl.engine.state import Command, LoopState, State

MOST_REASONS = 200
_OF_COMMANDS = frozenset({"retry", "wait", "park_deadline"})


def why(state: State) -> list[dict[str, Any]]:
    """What a live run waits for, each reason with its code; nothing for one that has ended."""
    if state.terminal is not None:
        return []
    found: list[dict[str, Any]] = []
    if state.is_paused:
        found.append({"code": "paused", "since": state.paused_at})
    if state.is_queued:
        found.append({"code": "concurrency_queue", "concurrency_key": state.concurrency_key})
    for command in state.commands.values():
        found += _of(state, command)
        if len(found) >= MOST_REASONS:
            return found[:MOST_REASONS]
    for key, timer in state.timers.items():
        if timer.kind not in _OF_COMMANDS:
            found.append({"code": "timer", "timer_key": key, "kind": timer.kind,
                          "due_at": timer.due_at})  # fmt: skip
    return found[:MOST_REASONS]


def loops(state: State) -> list[dict[str, Any]]:
    """The loops that are under way, in the order of the definition: how far each of them is."""
    if state.terminal is not None or not state.live_visits:
        return []
    return [
        _loop(name, step.loop)
        for name in state.program.steps
        if (step := state.steps.get(name)) is not None and step.is_live and step.loop is not None
    ]


def _loop(name: str, loop: LoopState) -> dict[str, Any]:
    told: dict[str, Any] = {"step": name, "done": loop.done, "in_flight": loop.open,
                            "failed": loop.failed}  # fmt: skip
    if loop.mode == "cursor":
        return {"code": "cursor", **told, "frames": len(loop.frames)}
    return {"code": "loop", **told, "total": loop.total}


def is_stalled(state: State) -> bool:
    """Whether a run goes on and nothing is outstanding that could move it."""
    if state.terminal is not None or state.is_paused or state.is_queued:
        return False
    return not (state.commands or state.timers or state.children)


def _of(state: State, command: Command) -> list[dict[str, Any]]:
    told: dict[str, Any] = {
        "step": command.step,
        "command_id": command.id,
        "command_key": command.key,
        "attempt": command.attempt,
    }
    if command.status == "PENDING":
        lost = {"lost": command.lost} if command.lost else {}
        return [{"code": "unclaimed", **told, "pool": command.pool, "kind": command.kind, **lost}]
    if command.status in {"CLAIMED", "RUNNING"}:
        held = {"worker_id": command.worker_id, "lease_until": command.lease_until}
        return [{"code": "running", **told, **held}]
    timers = [
        {"code": timer.kind, **told, "due_at": timer.due_at, "error": command.error}
        for timer in state.timers.values()
        if timer.target == command.key and timer.kind in {"retry", "wait"}
    ]
    if command.parked == "callback":
        return [{"code": "callback", **told, "kind": command.kind}]
    waiting = [key for key, done in command.children.items() if done is None]
    return timers + [{"code": "child", **told, "child_key": key} for key in waiting]
