"""Why a run is not moving: everything that it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetl.engine.state import Command, State

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


def _of(state: State, command: Command) -> list[dict[str, Any]]:
    told: dict[str, Any] = {
        "step": command.step,
        "command_id": command.id,
        "command_key": command.key,
        "attempt": command.attempt,
    }
    if command.status == "PENDING":
        return [{"code": "unclaimed", **told, "pool": command.pool, "kind": command.kind}]
    if command.status in {"CLAIMED", "RUNNING"}:
        held = {"worker_id": command.worker_id, "lease_until": command.lease_until}
        return [{"code": "running", **told, **held}]
    timers = [
        {"code": timer.kind, **told, "due_at": timer.due_at}
        for timer in state.timers.values()
        if timer.target == command.key and timer.kind in {"retry", "wait"}
    ]
    if command.parked == "callback":
        return [{"code": "callback", **told, "callback_key": command.callback_key}]
    waiting = [key for key, done in command.children.items() if done is None]
    return timers + [{"code": "child", **told, "child_key": key} for key in waiting]
