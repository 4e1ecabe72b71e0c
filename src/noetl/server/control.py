"""Steering a run from outside: cancel, pause, resume, finalize; the same request twice is one."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.executions import Controlled
from noetl.engine import events as ev
from noetl.engine.status import status_of
from noetl.engine.upcast import status_word
from noetl.server.errors import Conflict, Unacceptable
from noetl.server.posts import Post, Stamped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.api.executions import Control, Finalize
    from noetl.engine.state import State
    from noetl.server.ingest import Ingest

_ENDS: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
MOST_TOLD: Final = 10_000


@dataclass(slots=True)
class _Counted:
    commands: int = 0
    children: int = 0

    def see(self, state: State) -> None:
        """What the end of the run will close."""
        self.commands = len(state.commands)
        self.children = sum(child.is_awaited for child in state.children.values())


class Controls:
    """Cancel, pause, resume, finalize."""

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest
        self._told: OrderedDict[str, Controlled] = OrderedDict()
        """Answers of cancels, so that a repeated one is answered alike."""

    async def cancel(self, execution_id: str, body: Control, by: str = "user") -> Controlled:
        """End a run at once, its open work and its waiting children with it."""
        counted = _Counted()
        reason = body.reason or "user requested"

        def make(state: State) -> Iterator[Stamped]:
            if state.terminal == "CANCELLED":
                return
            _must_be_open(state)
            counted.see(state)
            yield Stamped(ev.PlaybookCancelled(by=by, reason=reason))

        await self._ingest.post(Post(execution_id, make, spares_children=not body.cascade))
        told = _ended(execution_id, "CANCELLED", counted, cascades=body.cascade)
        told = self._told.setdefault(execution_id, told)
        if len(self._told) > MOST_TOLD:
            self._told.popitem(last=False)
        return told

    async def finalize(self, execution_id: str, body: Finalize, by: str = "user") -> Controlled:
        """End a run with a status of the caller's choice."""
        status = status_word(body.status)
        if status not in _ENDS:
            raise Unacceptable(
                f"`{body.status}` is not a status that a run can end with",
                code="bad_status",
                hint="COMPLETED, FAILED or CANCELLED",
            )
        event = _terminal(status, body, by)
        counted = _Counted()

        def make(state: State) -> Iterator[Stamped]:
            if state.terminal == status:
                return
            _must_be_open(state)
            counted.see(state)
            yield Stamped(event)

        await self._ingest.post(Post(execution_id, make))
        return _ended(execution_id, status, counted, cascades=True)

    async def pause(self, execution_id: str, body: Control, by: str = "user") -> Controlled:
        """Issue nothing new; what runs finishes and is recorded."""

        def make(state: State) -> Iterator[Stamped]:
            status = status_of(state)
            if status == "PAUSED":
                return
            if status != "RUNNING":
                raise Conflict(f"the execution is {status}", code="not_running")
            yield Stamped(ev.ExecutionPaused(by=by, reason=body.reason))

        await self._ingest.post(Post(execution_id, make))
        return Controlled(execution_id=execution_id, status="PAUSED")

    async def resume(self, execution_id: str, body: Control, by: str = "user") -> Controlled:
        """Go on after a pause."""

        def make(state: State) -> Iterator[Stamped]:
            status = status_of(state)
            if status == "RUNNING":
                return
            if status != "PAUSED":
                raise Conflict(f"the execution is {status}", code="not_paused")
            yield Stamped(ev.ExecutionResumed(by=by, reason=body.reason))

        await self._ingest.post(Post(execution_id, make))
        return Controlled(execution_id=execution_id, status="RUNNING")


def _must_be_open(state: State) -> None:
    if state.terminal is not None:
        raise Conflict(f"the execution is {state.terminal}", code="already_terminal")


def _terminal(status: str, body: Finalize, by: str) -> ev.Event:
    if status == "COMPLETED":
        return ev.PlaybookCompleted(result=body.result, by=by)
    if status == "CANCELLED":
        return ev.PlaybookCancelled(by=by, reason=body.reason)
    given: dict[str, Any] = {
        "kind": "internal",
        "code": "finalized",
        "message": body.reason or "ended by hand",
        **(body.error or {}),
    }
    try:
        error = msgspec.convert(given, ev.Error)
    except msgspec.ValidationError as fault:
        raise Unacceptable(f"`error`: {fault}") from None
    return ev.PlaybookFailed(error=error, result=body.result, by=by)


def _ended(execution_id: str, status: str, counted: _Counted, *, cascades: bool) -> Controlled:
    return Controlled(
        execution_id=execution_id,
        status=status,
        message=f"execution {execution_id} is {status}",
        commands_cancelled=counted.commands,
        cancelled_children=counted.children if cascades else 0,
    )
