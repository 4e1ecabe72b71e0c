"""Steering a run from outside: cancel, pause, resume, finalize, try a step again.

The same request twice is one. A request under an `Idempotency-Key` writes its event under an id
that follows from the key: a repeat finds it in the log, on any server, and is answered alike.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.executions import Controlled
from noetl.api.reading import Retried
from noetl.edge.errors import Conflict, NotFound, Unacceptable
from noetl.engine import events as ev
from noetl.engine.status import status_of
from noetl.engine.upcast import status_word
from noetl.server.access.keys import event_id_of
from noetl.server.ingest.posts import Post, Stamped
from noetl.server.runs.positions import end_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.api.executions import Control, Finalize
    from noetl.engine.events import Recorded
    from noetl.engine.state import State
    from noetl.server.ingest.cache import Cache
    from noetl.server.ingest.queue import Ingest
    from noetl.store.base import Store

_ENDS: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
MOST_TOLD: Final = 10_000


@dataclass(slots=True)
class _Counted:
    commands: int = 0
    children: int = 0
    is_seen: bool = False

    def see(self, state: State) -> None:
        """What the end of the run will close."""
        self.is_seen = True
        self.commands = len(state.commands)
        self.children = sum(child.is_awaited for child in state.children.values())


class Controls:
    """Cancel, pause, resume, finalize, retry."""

    def __init__(self, ingest: Ingest, store: Store, cache: Cache) -> None:
        self._ingest = ingest
        self._store = store
        self._cache = cache
        self._told: OrderedDict[str, _Counted] = OrderedDict()
        """What the end of a run has closed, so that a repeated call is answered alike."""

    async def cancel(
        self, execution_id: str, body: Control, by: str = "user", *, key: str | None = None
    ) -> Controlled:
        """End a run at once, its open work and its waiting children with it."""
        counted = _Counted()
        event = ev.PlaybookCancelled(by=by, reason=body.reason or "user requested")
        event_id = _id(execution_id, "cancel", by, key)

        def make(state: State) -> Iterator[Stamped]:
            if state.terminal == "CANCELLED":
                return
            _must_be_open(state)
            counted.see(state)
            yield Stamped(event, event_id)

        await self._ingest.post(Post(execution_id, make, spares_children=not body.cascade))
        return await self._ended(execution_id, "CANCELLED", counted, cascades=body.cascade)

    async def finalize(
        self, execution_id: str, body: Finalize, by: str = "user", *, key: str | None = None
    ) -> Controlled:
        """End a run with a status of the caller's choice."""
        status = status_word(body.status)
        if status not in _ENDS:
            raise Unacceptable(
                f"`{body.status}` is not a status that a run can end with",
                code="bad_status",
                hint="COMPLETED, FAILED or CANCELLED",
            )
        event = _terminal(status, body, by)
        event_id = _id(execution_id, "finalize", by, key)
        counted = _Counted()

        def make(state: State) -> Iterator[Stamped]:
            if state.terminal == status:
                return
            _must_be_open(state)
            counted.see(state)
            yield Stamped(event, event_id)

        await self._ingest.post(Post(execution_id, make))
        return await self._ended(execution_id, status, counted, cascades=True)

    async def pause(
        self, execution_id: str, body: Control, by: str = "user", *, key: str | None = None
    ) -> Controlled:
        """Issue nothing new; what runs finishes and is recorded."""
        event_id = _id(execution_id, "pause", by, key)

        def make(state: State) -> Iterator[Stamped]:
            status = status_of(state)
            if status == "PAUSED":
                return
            if status != "RUNNING":
                raise Conflict(f"the execution is {status}", code="not_running")
            yield Stamped(ev.ExecutionPaused(by=by, reason=body.reason), event_id)

        if await self._found(execution_id, event_id) is None:
            await self._ingest.post(Post(execution_id, make))
        return Controlled(execution_id=execution_id, status="PAUSED")

    async def resume(
        self, execution_id: str, body: Control, by: str = "user", *, key: str | None = None
    ) -> Controlled:
        """Go on after a pause."""
        event_id = _id(execution_id, "resume", by, key)

        def make(state: State) -> Iterator[Stamped]:
            status = status_of(state)
            if status == "RUNNING":
                return
            if status != "PAUSED":
                raise Conflict(f"the execution is {status}", code="not_paused")
            yield Stamped(ev.ExecutionResumed(by=by, reason=body.reason), event_id)

        if await self._found(execution_id, event_id) is None:
            await self._ingest.post(Post(execution_id, make))
        return Controlled(execution_id=execution_id, status="RUNNING")

    async def retry(
        self, execution_id: str, step: str, by: str = "user", *, key: str | None = None
    ) -> Retried:
        """A new visit of a step that failed unhandled while other branches go on."""
        event_id = _id(execution_id, f"retry:{step}", by, key)
        found = await self._found(execution_id, event_id)
        made: list[ev.StepEntered] = []
        if found is not None and isinstance(found.event, ev.StepEntered):
            made = [found.event]
        else:
            await self._ingest.post(Post(execution_id, _retrying(step, event_id, made)))
        return Retried(execution_id=execution_id, step=step, visit=made[-1].visit, status="RUNNING")

    async def _found(self, execution_id: str, event_id: str | None) -> Recorded | None:
        """What a call under the same key has written."""
        return None if event_id is None else await self._store.log.find(execution_id, event_id)

    async def _ended(
        self, execution_id: str, status: str, counted: _Counted, *, cascades: bool
    ) -> Controlled:
        """The answer; a repeated call is told what the first one has closed."""
        if not counted.is_seen:
            counted = self._told.get(execution_id) or await self._counted(execution_id)
        self._told[execution_id] = counted
        if len(self._told) > MOST_TOLD:
            self._told.popitem(last=False)
        return Controlled(
            execution_id=execution_id,
            status=status,
            message=f"execution {execution_id} is {status}",
            commands_cancelled=counted.commands,
            cancelled_children=counted.children if cascades else 0,
        )

    async def _counted(self, execution_id: str) -> _Counted:
        """What the end of a run has closed, by its log: another server may have ended it."""
        counted = _Counted()
        row = await self._store.executions.get(execution_id)
        end = None if row is None else await end_of(self._store.log, row)
        if end is not None:
            counted.see((await self._cache.read(execution_id, end - 1)).state)
        return counted


def _retrying(step: str, event_id: str | None, made: list[ev.StepEntered]) -> Any:  # noqa: ANN401 - a maker of events
    def make(state: State) -> Iterator[Stamped]:
        made.clear()
        own = _retryable(state, step)
        event = ev.StepEntered(step=step, visit=own.visit + 1, from_=own.came_from)
        made.append(event)
        yield Stamped(event, event_id)

    return make


def _retryable(state: State, step: str) -> Any:  # noqa: ANN401 - the state of a step
    """The step, if it has failed, nothing has handled that, and the run can still take it in."""
    if step not in state.program.steps:
        raise NotFound(f"the playbook has no step `{step}`")
    own, status = state.step(step), status_of(state)
    why_not = ""
    if status != "RUNNING":
        why_not = f"the execution is {status}"
    elif own.is_live:
        why_not = f"`{step}` is under way"
    elif own.status != "FAILED" or step not in state.failed_steps:
        why_not = f"`{step}` has not failed, or its failure is handled"
    elif state.is_failing:
        why_not = "the run ends with its first failure"
    elif state.final_entered:
        why_not = "the final step has begun"
    if why_not:
        hint = f"noetl executions fork {state.execution_id} --step {step}"
        raise Conflict(why_not, code="not_retryable", hint=hint)
    return own


def _id(execution_id: str, action: str, by: str, key: str | None) -> str | None:
    return None if key is None else event_id_of(execution_id, action, by, key)


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
