"""Where a fork begins: a position in the log of a run, and the state there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.engine import events as ev
from noetl.engine.fold import fold
from noetl.engine.snapshot import as_data
from noetl.engine.state import State
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.engine.events import Recorded
    from noetl.engine.program import Program

FAILED = "failed"


class BadPosition(NoetlError):
    """A position that the log of the run does not have."""

    code = "bad_position"
    status = 422


class VersionConflict(NoetlError):
    """Steps that are done do not exist in the version that is to go on."""

    code = "version_conflict"
    status = 409


def position(
    log: Sequence[Recorded],
    *,
    seq: int | None = None,
    event_id: str | None = None,
    step: str | None = None,
) -> int:
    """The `seq` after which the fork begins; exactly one way to name it."""
    given = [item for item in (seq, event_id, step) if item is not None]
    if len(given) != 1:
        raise BadPosition("name one of from_seq, from_event_id and from_step")
    if seq is not None:
        if not 1 <= seq <= len(log):
            raise BadPosition(f"the log has the positions 1..{len(log)}, not {seq}")
        return seq
    if event_id is not None:
        found = [item.seq for item in log if item.event_id == event_id]
        if not found:
            raise BadPosition(f"the log has no event {event_id}")
        return found[0]
    return _before(log, _failed_step(log) if step == FAILED else str(step))


def _failed_step(log: Sequence[Recorded]) -> str:
    for item in log:
        event = item.event
        if isinstance(event, ev.StepExited) and event.outcome == "FAILED" and not event.handled:
            return event.step
    raise BadPosition("no step of the run has failed unhandled")


def _before(log: Sequence[Recorded], step: str) -> int:
    """Just before the last entry of a step."""
    for item in reversed(log):
        if isinstance(item.event, ev.StepEntered) and item.event.step == step:
            return item.seq - 1
    raise BadPosition(f"the run has not entered the step `{step}`")


def snapshot_at(program: Program, log: Sequence[Recorded], seq: int) -> dict[str, Any]:
    """The state after an event, as data; what one decision wrote together stays together."""
    state = State(program=program)
    for item in log[: _settled(log, seq)]:
        if isinstance(item.event, ev.TERMINAL):
            break  # a fork of a run that has ended goes on just before its end
        fold(state, item)
    return as_data(state)


def _settled(log: Sequence[Recorded], seq: int) -> int:
    """The end of the decision that a position lies in."""
    while seq < len(log) and belongs(log[seq - 1].event, log[seq].event):
        seq += 1
    return seq


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


def must_fit(snapshot: dict[str, Any], program: Program) -> None:
    """Refuse a version that lacks steps which the run has touched."""
    missing = [name for name in snapshot["steps"] if name not in program.steps]
    if missing:
        raise VersionConflict(f"the version has no step {', '.join(missing)}")
