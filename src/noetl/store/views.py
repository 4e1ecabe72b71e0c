"""Events to the rows that readers, claims and loops see: one `Change` for one append.

Pure, and its cost is that of the events given: no open command and no step is looked at that they
do not name. What the rows of a run need from its past is in the row before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.engine import events as ev
from noetl.engine.status import current_steps, progress_of, status_of
from noetl.store.base import Change, CommandRow, ExecutionRow, Outgoing, TimerRow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from noetl.engine.events import Recorded
    from noetl.engine.state import Command, State
    from noetl.store.base import ScheduleRow


def digest_of(callback_key: str) -> str:
    """The form in which a callback key is kept: whoever reads the store cannot answer with it."""
    return sha256(callback_key.encode()).hexdigest()


@dataclass(slots=True, kw_only=True)
class Past:
    """What the events alone do not say: the row before, and the commands that they closed."""

    row: ExecutionRow | None = None
    closed: Mapping[str, Command] = field(default_factory=dict)
    """By key, as they were before the events."""
    spares_children: bool = False
    """The end of the run leaves its children alone."""


@dataclass(slots=True)
class _Noted:
    """What a run of events touched."""

    execution_id: str
    new_id: Callable[[], str]
    issued: dict[str, Recorded] = field(default_factory=dict)
    touched: dict[str, str | None] = field(default_factory=dict)
    available: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    timers: dict[str, TimerRow] = field(default_factory=dict)
    timers_gone: dict[str, None] = field(default_factory=dict)
    outgoing: list[Outgoing] = field(default_factory=list)
    callbacks: dict[str, str] = field(default_factory=dict)
    started: Recorded | None = None
    terminal: Recorded | None = None
    withdrawn: set[str] = field(default_factory=set)
    """Commands that no longer want their children."""
    asked: set[str] = field(default_factory=set)
    """Children that these events asked for."""
    lost: set[str] = field(default_factory=set)
    has_steps: bool = False

    def send(self, kind: str, **payload: Any) -> None:  # noqa: ANN401 - the message's own fields
        self.outgoing.append(
            Outgoing(
                outgoing_id=self.new_id(),
                execution_id=self.execution_id,
                kind=kind,
                payload=payload,
            )
        )


def change(
    expected_seq: int,
    state: State,
    recorded: Sequence[Recorded],
    new_id: Callable[[], str],
    past: Past | None = None,
) -> Change:
    """All that an append writes, from the state after it and the events themselves."""
    past = past or Past()
    noted = _Noted(state.execution_id, new_id)
    for item in recorded:
        note = _NOTES.get(type(item.event))
        if note is not None:
            note(noted, state, item, item.event)
    row = _execution(state, recorded[-1], noted, past.row)
    _children(noted, state, past)
    _ended(noted, row)
    return Change(
        execution_id=state.execution_id,
        expected_seq=expected_seq,
        events=tuple(recorded),
        execution=row,
        commands=_commands(state, noted, past),
        timers=tuple(noted.timers.values()),
        timers_gone=tuple(noted.timers_gone),
        outgoing=tuple(noted.outgoing),
        callbacks=noted.callbacks,
    )


def _issued(noted: _Noted, _state: State, item: Recorded, event: ev.CommandIssued) -> None:
    noted.issued[event.command_key] = item
    noted.touched[event.command_key] = None
    noted.available[event.command_key] = item.created_at


def _went_on(
    noted: _Noted, _state: State, _item: Recorded, event: ev.CommandClaimed | ev.CommandStarted
) -> None:
    noted.touched[event.command_key] = None
    noted.attempts[event.command_key] = event.attempt
    noted.lost.discard(event.command_key)


def _reported(
    noted: _Noted, _state: State, _item: Recorded, event: ev.CallDone | ev.CallError
) -> None:
    noted.touched.setdefault(event.command_key, None)


def _freed(
    noted: _Noted, _state: State, item: Recorded, event: ev.CommandResumed | ev.CommandLost
) -> None:
    noted.touched[event.command_key] = None
    noted.attempts[event.command_key] = event.attempt
    noted.available[event.command_key] = item.created_at


def _lost(noted: _Noted, state: State, item: Recorded, event: ev.CommandLost) -> None:
    _freed(noted, state, item, event)
    noted.lost.add(event.command_key)


def _parked(noted: _Noted, state: State, _item: Recorded, event: ev.CommandParked) -> None:
    key = event.command_key
    noted.touched[key] = None
    noted.attempts[key] = event.attempt
    if event.callback_key is not None:
        command, issued = state.commands.get(key), noted.issued.get(key)
        found = command.id if command is not None else issued.event_id if issued else None
        if found is not None:
            noted.callbacks[digest_of(event.callback_key)] = found


def _completed(noted: _Noted, _state: State, _item: Recorded, event: ev.CommandCompleted) -> None:
    noted.touched[event.command_key] = "COMPLETED"


def _failed(noted: _Noted, _state: State, _item: Recorded, event: ev.CommandFailed) -> None:
    noted.touched[event.command_key] = "FAILED"


def _cancelled(noted: _Noted, _state: State, _item: Recorded, event: ev.CommandCancelled) -> None:
    noted.touched[event.command_key] = "CANCELLED"
    noted.withdrawn.add(event.command_key)


def _timer_set(noted: _Noted, _state: State, _item: Recorded, event: ev.TimerSet) -> None:
    noted.timers_gone.pop(event.timer_key, None)
    noted.timers[event.timer_key] = TimerRow(
        execution_id=noted.execution_id,
        timer_key=event.timer_key,
        kind=event.kind,
        due_at=event.due_at,
    )


def _timer_gone(
    noted: _Noted, _state: State, _item: Recorded, event: ev.TimerFired | ev.TimerCancelled
) -> None:
    noted.timers.pop(event.timer_key, None)
    noted.timers_gone[event.timer_key] = None


def _fired(noted: _Noted, state: State, item: Recorded, event: ev.TimerFired) -> None:
    _timer_gone(noted, state, item, event)
    kind, _, command_key = event.timer_key.partition(":")
    if kind == "park_deadline":
        noted.withdrawn.add(command_key)


def _requested(noted: _Noted, _state: State, _item: Recorded, event: ev.ExecutionRequested) -> None:
    noted.asked.add(event.child_key)
    noted.send("start_child", **_request(event))


def _moved(noted: _Noted, _state: State, _item: Recorded, _event: ev.Event) -> None:
    noted.has_steps = True


def _started(noted: _Noted, _state: State, item: Recorded, _event: ev.PlaybookStarted) -> None:
    noted.has_steps = True
    noted.started = item


def _finished(noted: _Noted, _state: State, item: Recorded, _event: ev.Event) -> None:
    noted.has_steps = True
    noted.terminal = item


_NOTES: Final[dict[type[ev.Event], Callable[..., None]]] = {
    ev.PlaybookStarted: _started,
    ev.StateRestored: _moved,
    ev.StepEntered: _moved,
    ev.StepExited: _moved,
    ev.StepSkipped: _moved,
    ev.CommandIssued: _issued,
    ev.CommandClaimed: _went_on,
    ev.CommandStarted: _went_on,
    ev.CallDone: _reported,
    ev.CallError: _reported,
    ev.CommandParked: _parked,
    ev.CommandResumed: _freed,
    ev.CommandLost: _lost,
    ev.CommandCompleted: _completed,
    ev.CommandFailed: _failed,
    ev.CommandCancelled: _cancelled,
    ev.TimerSet: _timer_set,
    ev.TimerFired: _fired,
    ev.TimerCancelled: _timer_gone,
    ev.ExecutionRequested: _requested,
    ev.PlaybookCompleted: _finished,
    ev.PlaybookFailed: _finished,
    ev.PlaybookCancelled: _finished,
}


def _request(event: ev.ExecutionRequested) -> dict[str, Any]:
    request: dict[str, Any] = msgspec.to_builtins(event)
    request.pop("event_type", None)
    return request


def _children(noted: _Noted, state: State, past: Past) -> None:
    """Children that nobody waits for any more are cancelled."""
    is_over = noted.terminal is not None and not past.spares_children
    if not is_over and not noted.withdrawn:
        return
    for child_key, child in state.children.items():
        is_unwanted = child.command_key in noted.withdrawn and child_key not in noted.asked
        if child.is_awaited and (is_over or is_unwanted):
            noted.send("cancel_child", child_key=child_key)


def _ended(noted: _Noted, row: ExecutionRow) -> None:
    """A run that ended tells its parent, and the runs that wait for its key."""
    ended = noted.terminal
    if ended is None:
        return
    if row.parent_execution_id is not None and row.parent_key is not None:
        noted.send(
            "return",
            parent_execution_id=row.parent_execution_id,
            child_key=row.parent_key,
            event_id=ended.event_id,
        )
    if row.concurrency_key is not None:
        noted.send("admit", key=row.concurrency_key)


# ---------------------------------------------------------------------------- rows


def _commands(state: State, noted: _Noted, past: Past) -> tuple[CommandRow, ...]:
    rows = []
    for key, status in noted.touched.items():
        row = _command(state, noted, past, key, status)
        if row is not None:
            rows.append(row)
    return tuple(rows)


def _command(
    state: State, noted: _Noted, past: Past, key: str, status: str | None
) -> CommandRow | None:
    command = state.commands.get(key)
    if command is not None and status is None:
        return _open(state, noted, command)
    # Closed by an event, or in bulk by the end of the run.
    ending = status or "CANCELLED"
    known = past.closed.get(key)
    if known is not None:
        return _row_of(state.execution_id, known, status=ending)
    issued = noted.issued.get(key)
    return None if issued is None else _forgotten(noted, issued, ending)


def _open(state: State, noted: _Noted, command: Command) -> CommandRow:
    status = "CLAIMED" if command.status == "RUNNING" else command.status
    is_held = status == "CLAIMED"
    # Who has reported needs no lease, nor who was lost for good; a paused run closes such a
    # command only when it goes on.
    is_over = command.report is not None or command.key in noted.lost
    return _row_of(
        state.execution_id,
        command,
        status=status,
        worker_id=command.worker_id if is_held else None,
        lease_until=command.lease_until if is_held and not is_over else None,
        started_at=command.started_at if command.status == "RUNNING" else None,
        available_at=noted.available.get(command.key, ""),
    )


def _row_of(execution_id: str, command: Command, *, status: str, **more: Any) -> CommandRow:  # noqa: ANN401 - fields of the row
    return CommandRow(
        execution_id=execution_id,
        command_id=command.id,
        command_key=command.key,
        step=command.step,
        kind=command.kind,
        pool=command.pool,
        priority=command.priority,
        status=status,
        attempt=command.attempt,
        losses=command.lost,
        max_attempts=command.max_attempts,
        checkpoint=command.checkpoint,
        **more,
    )


def _forgotten(noted: _Noted, issued: Recorded, status: str) -> CommandRow | None:
    """A command that was issued and closed by the same run of events."""
    event = issued.event
    if not isinstance(event, ev.CommandIssued):
        return None
    return CommandRow(
        execution_id=noted.execution_id,
        command_id=issued.event_id,
        command_key=event.command_key,
        step=event.step,
        kind=event.kind,
        pool=event.pool,
        priority=event.priority,
        status=status,
        attempt=noted.attempts.get(event.command_key, 1),
        max_attempts=event.max_attempts,
    )


def _execution(
    state: State, last: Recorded, noted: _Noted, before: ExecutionRow | None
) -> ExecutionRow:
    if noted.started is not None:
        before = _begun(noted.started)
    if before is None:
        raise ValueError(f"execution {state.execution_id} has neither a start nor a row before")
    terminal = noted.terminal
    has_steps = noted.has_steps
    return ExecutionRow(
        execution_id=before.execution_id,
        status=status_of(state),
        catalog_id=before.catalog_id,
        path=before.path,
        version=before.version,
        pool=before.pool,
        priority=before.priority,
        last_seq=last.seq,
        last_event_id=last.event_id,
        started_at=before.started_at,
        updated_at=last.created_at,
        completed_at=before.completed_at if terminal is None else terminal.created_at,
        parent_execution_id=before.parent_execution_id,
        parent_key=before.parent_key,
        concurrency_key=before.concurrency_key,
        dedup_key=before.dedup_key,
        rerun_of=before.rerun_of,
        forked_from=before.forked_from,
        current_steps=tuple(current_steps(state)) if has_steps else before.current_steps,
        progress=progress_of(state) if has_steps else before.progress,
        pending_commands=len(state.commands),
        labels=before.labels,
        tenant_id=before.tenant_id,
        organization_id=before.organization_id,
        kind=before.kind,
        root_execution_id=before.root_execution_id,
        last_event_type=type(last.event).__struct_config__.tag,  # type: ignore[arg-type]  # every event has one
        workload=before.workload,
        result=before.result if terminal is None else _result(state),
        error=before.error if terminal is None else _error(state),
        trace=before.trace,
        created_by=before.created_by,
        request_id=before.request_id,
        client_id=before.client_id,
    )


def _result(state: State) -> Any:  # noqa: ANN401 - a user's value
    if state.reference is not None:
        return {"reference": msgspec.to_builtins(state.reference)}
    return state.result


def _error(state: State) -> dict[str, Any] | None:
    if state.terminal != "FAILED" or state.failure is None:
        return None
    told: dict[str, Any] = msgspec.to_builtins(state.failure)
    return told


def _begun(item: Recorded) -> ExecutionRow:
    event = item.event
    if not isinstance(event, ev.PlaybookStarted):
        raise TypeError("a run begins with playbook.started")
    return ExecutionRow(
        execution_id=item.execution_id,
        status="RUNNING",
        catalog_id=event.catalog_id,
        path=event.path,
        version=event.version,
        pool=event.pool,
        priority=event.priority,
        last_seq=item.seq,
        last_event_id=item.event_id,
        started_at=item.created_at,
        updated_at=item.created_at,
        parent_execution_id=event.parent_execution_id,
        parent_key=event.parent_key,
        concurrency_key=event.concurrency_key,
        dedup_key=event.dedup_key,
        rerun_of=event.rerun_of,
        forked_from=event.forked_from,
        labels=event.labels,
        tenant_id=event.tenant_id,
        last_event_type="playbook.started",
        workload=event.workload,
        trace=event.trace,
        created_by=event.created_by,
        request_id=(event.request or {}).get("request_id"),
        client_id=(event.request or {}).get("client_id"),
    )


def carried_over(before: ScheduleRow | None, row: ScheduleRow) -> ScheduleRow:
    """The new row under the id of the one that it replaces; with equal times, at its place.

    One that a person has paused stays so, however often its document comes again.
    """
    if before is None:
        return row
    if before.policy.get("paused"):
        row = msgspec.structs.replace(row, enabled=False, policy=row.policy | {"paused": True})
    row = msgspec.structs.replace(
        row,
        schedule_id=before.schedule_id,
        last_run_at=before.last_run_at,
        last_execution_id=before.last_execution_id,
        last_status=before.last_status,
    )
    times = ("cron", "interval_s", "timezone", "enabled")
    bounds = ("start_at", "end_at", "jitter_s")
    if any(getattr(before, name) != getattr(row, name) for name in times) or any(
        before.policy.get(name) != row.policy.get(name) for name in bounds
    ):
        return row
    return msgspec.structs.replace(row, next_run_at=before.next_run_at)
