"""Rows of older releases, and words that other senders use, in today's form."""

from __future__ import annotations

from typing import Any, Final

ENGINE_VERSION: Final = 1

# Accepted inward and never stored.
ALIASES: Final = {
    "playbook_started": "playbook.started",
    "playbook.initialized": "playbook.started",
    "workflow.initialized": "playbook.started",
    "playbook_completed": "playbook.completed",
    "workflow.completed": "playbook.completed",
    "playbook_failed": "playbook.failed",
    "workflow.failed": "playbook.failed",
    "playbook_cancelled": "playbook.cancelled",
    "execution.cancelled": "playbook.cancelled",
    "action_completed": "command.completed",
    "step_completed": "command.completed",
    "action_failed": "command.failed",
    "step_failed": "command.failed",
}
_WORDS: Final = {"SUCCESS": "COMPLETED", "OK": "COMPLETED", "DONE": "COMPLETED", "ERROR": "FAILED"}


def type_of(name: str) -> str:
    """The type of an event by any of its names."""
    return ALIASES.get(name, name)


def status_word(text: str) -> str:
    """A status in its one spelling."""
    upper = text.upper()
    return _WORDS.get(upper, upper)


def upcast(row: dict[str, Any]) -> dict[str, Any]:
    """A row as this release writes it; one of this release is returned as it is."""
    name, status = row.get("event_type", row.get("name")), row.get("status")
    changed: dict[str, Any] = {}
    if isinstance(name, str) and (type_of(name) != name or "event_type" not in row):
        changed["event_type"] = type_of(name)
    if isinstance(status, str) and status_word(status) != status:
        changed["status"] = status_word(status)
    if "step" not in row:
        changed["step"] = row.get("node_name", "playbook")
    return {**row, **changed} if changed else row
