"""Delivers what commits left to say to other runs: to children, to parents, to runs that wait.

A server delivers the messages of its own commits from memory; what a server left behind is found
by the sweep of the leader. Every delivery may happen twice: a start is deduplicated by its key, a
return has the id of the child's end, a cancel and an admission look at the state first.
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from noetl.api.executions import Control
from noetl.edge.errors import Forbidden, UnknownExecution
from noetl.edge.moments import from_now
from noetl.engine import events as ev
from noetl.errors import NoetlError
from noetl.server.access.caller import SYSTEM_POOL
from noetl.server.access.grants import space_of
from noetl.server.ingest.posts import Post, Stamped
from noetl.server.ingest.wanted import Wanted
from noetl.server.signals import sleep_until
from noetl.telemetry.failpoint import armed, failpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from noetl.engine.state import State
    from noetl.server.plane import Plane
    from noetl.store.base import ExecutionRow, Outgoing

EVERY_S: Final = 10.0
FLUSH_S: Final = 1.0
IDLE_S: Final = 30.0
AGAIN_S: Final = 1.0
_PAGE: Final = 1_000
_MOST_PAGE: Final = 64_000
_WINDOW_S: Final = 2_592_000
KINDS: Final = ("start_child", "return", "cancel_child", "admit")


async def run(plane: Plane) -> None:
    """Deliver when a commit says so; without a commit, forget what was delivered.

    What cannot be said yet is tried again every second.
    """
    signals, clock = plane.signals, plane.parts.clock
    later: list[Outgoing] = []
    again_at = 0.0
    while True:
        later += await deliver(plane)
        if not await sleep_until(signals.outbox, FLUSH_S if later or signals.has_done else IDLE_S):
            await flush(plane)
        if later and clock.monotonic() >= again_at:
            signals.undelivered.extend(later)
            later.clear()
            again_at = clock.monotonic() + AGAIN_S


async def deliver(plane: Plane) -> list[Outgoing]:
    """Deliver what own commits left to say, oldest first; what cannot be said yet is returned."""
    signals = plane.signals
    taken: list[Outgoing] = []
    done: set[str] = set()
    unsettled: list[Outgoing] = []
    try:
        while signals.undelivered:
            taken = list(signals.undelivered)
            signals.undelivered.clear()
            await _all(plane, taken, done)
            unsettled += [item for item in taken if item.outgoing_id not in done]
            taken = []
    except BaseException:
        left = unsettled + [item for item in taken if item.outgoing_id not in done]
        signals.undelivered.extendleft(reversed(left))
        raise
    finally:
        signals.delivered(done)
    return unsettled


async def flush(plane: Plane) -> None:
    """Remove what was delivered from the store, when no commit has done it."""
    done = plane.signals.taken_done()
    if not done:
        return
    try:
        await plane.parts.store.outbox.delivered(done)
    except BaseException:
        plane.signals.delivered(done)
        raise


async def sweep(plane: Plane, older_s: float = EVERY_S) -> None:
    """Deliver what was committed a while ago and is still there: its server may be gone."""
    outbox, before = plane.parts.store.outbox, from_now(plane.parts.clock, -older_s)
    limit = _PAGE
    while True:
        page = await outbox.waiting(limit, before=before, kinds=KINDS)
        done: set[str] = set()
        try:
            await _all(plane, page, done)
        finally:
            if done:
                await outbox.delivered(sorted(done))
        if len(page) < limit or (not done and limit >= _MOST_PAGE):
            return
        if not done:  # what cannot be delivered yet must not hide the rest
            limit *= 4


async def _all(plane: Plane, waiting: list[Outgoing], done: set[str]) -> None:
    """Deliver messages; those that need not come again are noted, also when others fail."""
    faults: list[BaseException] = []
    if armed and waiting:
        await failpoint("server.deliver")
    for kind, items in groupby(waiting, key=lambda item: item.kind):
        batch = list(items)
        if kind == "admit":
            ended = await _admit(plane, batch)
        else:
            work = (_DELIVER[kind](plane, item) for item in batch)
            ended = await asyncio.gather(*work, return_exceptions=True)
        for item, outcome in zip(batch, ended, strict=True):
            if isinstance(outcome, BaseException):
                faults.append(outcome)
            elif outcome:
                done.add(item.outgoing_id)
    if faults:
        raise faults[0]


async def _admit(plane: Plane, batch: list[Outgoing]) -> list[bool | BaseException]:
    """Let waiting runs begin; keys that are named twice are looked at once."""
    keys = list(dict.fromkeys(item.payload["key"] for item in batch))
    ended = await asyncio.gather(*map(plane.admissions.admit, keys), return_exceptions=True)
    outcome = {key: fault or True for key, fault in zip(keys, ended, strict=True)}
    return [outcome[item.payload["key"]] for item in batch]


async def _state(plane: Plane, execution_id: str) -> State:
    """The committed state of a run: a message is judged by nothing older than itself."""
    return await plane.details.state(await plane.details.row(execution_id))


# ---------------------------------------------------------------------------- children


async def _start_child(plane: Plane, item: Outgoing) -> bool:
    asked = item.payload
    parent_id, child_key = item.execution_id, asked["child_key"]
    row = await plane.details.row(parent_id)
    parent = await plane.details.state(row)
    is_awaited = asked.get("is_awaited", True)
    if child_key not in parent.children or (parent.terminal is not None and is_awaited):
        return True
    try:
        wanted = await _wanted(plane, parent, asked)
        await _must_be_open(plane, row, wanted)
        await _with_secrets(plane, parent, wanted, asked)
        started = await plane.runs.start(wanted)
    except NoetlError as refusal:
        if refusal.retryable:
            raise
        plane.metrics.execute_outcomes.inc("child", "error")
        error = ev.Error(kind="config", code=refusal.code, message=refusal.message)
        failed = ev.ExecutionReturned(
            child_key=child_key, child_execution_id=None, outcome="FAILED", error=error
        )
        return await _return(plane, parent_id, failed, None)
    plane.metrics.execute_outcomes.inc("child", started.status)
    if not is_awaited:
        begun = ev.ExecutionReturned(
            child_key=child_key, child_execution_id=started.execution_id, outcome="STARTED"
        )
        return await _return(plane, parent_id, begun, None)
    if started.status == "duplicate":
        return await _shared(plane, parent_id, child_key, started.execution_id)
    return True


async def _shared(plane: Plane, parent_id: str, child_key: str, execution_id: str) -> bool:
    """A run that was started under the same dedup key by another request tells both its end."""
    row = await plane.details.row(execution_id)
    if row.parent_key == child_key:
        return True
    if row.completed_at is None:
        return False
    return await _return(plane, parent_id, await _outcome(plane, execution_id, child_key), None)


async def _wanted(plane: Plane, parent: State, asked: dict[str, Any]) -> Wanted:
    payload = dict(asked.get("workload") or {})
    for path, reference in (asked.get("refs") or {}).items():
        payload[path] = await plane.large.of_map(reference)
    child_key = asked["child_key"]
    return Wanted(
        path=asked.get("path"),
        catalog_id=asked.get("catalog_id"),
        version=asked.get("version"),
        payload=payload,
        pool=asked.get("pool") or parent.pool,
        priority=parent.priority,
        parent_execution_id=parent.execution_id,
        parent_key=child_key,
        depth=parent.depth + 1,
        trace=parent.trace,
        dedup=(f"parent:{parent.execution_id}", asked.get("dedup_key") or child_key, _WINDOW_S),
        trigger={
            "kind": "playbook",
            "step": asked.get("step"),
            "return_step": asked.get("return_step"),
        },
    )


async def _with_secrets(plane: Plane, parent: State, wanted: Wanted, asked: dict[str, Any]) -> None:
    """Hand on the secret inputs of the parent that its step names."""
    if wanted.entry is not None:
        child = plane.programs.of(wanted.entry)
        await plane.runs.inputs.handed_on(wanted, child, parent, asked)


async def _must_be_open(plane: Plane, row: ExecutionRow, wanted: Wanted) -> None:
    """Keep runs of others from what is the platform's own; a child is of its parent's tenant."""
    wanted.tenant_id = tenant_id = row.tenant_id
    wanted.entry = entry = await plane.runs.resolve(
        tenant_id, wanted.path, wanted.catalog_id, wanted.version
    )
    if space_of(row.path, tenant_id):
        return
    if space_of(entry.path, tenant_id):
        raise Forbidden(f"{entry.path} is reserved for the platform", code="reserved_namespace")
    if wanted.pool == SYSTEM_POOL and row.pool != SYSTEM_POOL:
        raise Forbidden("the pool `system` is the platform's own", code="reserved_pool")


async def _returned(plane: Plane, item: Outgoing) -> bool:
    """Tell a parent how its child ended."""
    told = item.payload
    returned = await _outcome(plane, item.execution_id, told["child_key"])
    return await _return(
        plane, told["parent_execution_id"], returned, told["event_id"], is_end=True
    )


async def _outcome(plane: Plane, execution_id: str, child_key: str) -> ev.ExecutionReturned:
    """How a run ended, with its result or that of the step which the parent named."""
    state = await _state(plane, execution_id)
    first = (await plane.parts.store.log.read(execution_id, 0, 1))[0].event
    step = first.trigger.get("return_step") if isinstance(first, ev.PlaybookStarted) else None
    result, reference = state.result, state.reference
    if step is not None:
        own = state.steps.get(step)
        of_step = own.result if own is not None else None
        result = of_step.data if of_step is not None else None
        reference = of_step.reference if of_step is not None else None
    return ev.ExecutionReturned(
        child_key=child_key,
        child_execution_id=execution_id,
        outcome=state.terminal or "FAILED",  # type: ignore[arg-type]  # a terminal status
        result=result,
        reference=reference,
        error=state.failure if state.terminal == "FAILED" else None,
    )


async def _return(
    plane: Plane,
    parent_id: str,
    returned: ev.ExecutionReturned,
    event_id: str | None,
    *,
    is_end: bool = False,
) -> bool:
    """Tell a parent of its child; the end of one that it does not wait for is not its concern.

    That end may come before the parent was told of the start.
    """

    def make(state: State) -> Iterator[Stamped]:
        child = state.children.get(returned.child_key)
        if child is None or state.terminal is not None or (is_end and not child.is_awaited):
            return
        yield Stamped(returned, event_id, unless_stored=event_id is not None)

    await _post(plane, parent_id, make)
    return True


async def _cancel_child(plane: Plane, item: Outgoing) -> bool:
    child_key = item.payload["child_key"]
    for row in await plane.parts.store.executions.children(item.execution_id):
        if row.parent_key == child_key and row.completed_at is None:
            await _cancel(plane, row)
    return True


async def _cancel(plane: Plane, row: ExecutionRow) -> None:
    try:
        await plane.controls.cancel(row.execution_id, Control(reason="parent ended"), "parent")
    except NoetlError as refusal:
        if refusal.code != "already_terminal":
            raise


async def _post(
    plane: Plane, execution_id: str, make: Callable[[State], Iterator[Stamped]]
) -> None:
    try:
        await plane.ingest.post(Post(execution_id, make))
    except UnknownExecution:
        return  # a run that is no longer kept needs no message


_DELIVER: Final[dict[str, Callable[[Plane, Outgoing], Awaitable[bool]]]] = {
    "start_child": _start_child,
    "return": _returned,
    "cancel_child": _cancel_child,
}
