"""Where a fork may begin: between decisions, never within one."""

from __future__ import annotations

from noetl.engine import events as ev
from noetl.errors import NoetlError

FAILED = "failed"


class BadPosition(NoetlError):
    """A position that the log of the run does not have."""

    code = "bad_position"
    status = 422


class VersionConflict(NoetlError):
    """Steps that are done do not exist in the version that is to go on."""

    code = "version_conflict"
    status = 409


def belongs(event: ev.Event, following: ev.Event) -> bool:
    """Whether an event is part of the same decision as the one before it."""
    if isinstance(following, ev.CtxUpdated):
        if isinstance(event, ev.CommandCompleted):
            return following.cause == event.command_key
        is_exit = isinstance(event, (ev.StepExited, ev.CtxUpdated))
        return is_exit and following.cause.startswith("arc:")
    if _is_timed_out(event) and isinstance(following, (ev.StepExited, ev.TimerCancelled)):
        return True
    if _is_timed_out(following):
        return _is_timed_out(event) or isinstance(event, ev.TimerCancelled)
    if isinstance(following, (ev.StepExited, ev.TimerCancelled)):
        return (isinstance(event, ev.CtxUpdated) and event.cause == "set") or isinstance(
            event, ev.TimerCancelled
        )
    return False


def _is_timed_out(event: ev.Event) -> bool:
    """Whether an event closes a command of a visit that took too long."""
    return isinstance(event, ev.CommandCancelled) and event.reason == "step_timeout"
