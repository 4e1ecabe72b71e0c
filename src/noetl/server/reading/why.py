"""Why a run does not move: what its state waits for, and who could do something about it.

Nothing is guessed: the state names what is outstanding, rows of commands, workers and other runs
say how that stands, and every hint is a command that acts on it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from noetl.api.reading import Reason, Why
from noetl.clock import rfc3339
from noetl.engine import events as ev
from noetl.engine.why import is_stalled, loops, why
from noetl.server.reading.causes import Causes, Facts
from noetl.server.runs.positions import end_of
from noetl.store.base import Listing
from noetl.store.reading import Circuit

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.engine.state import State
    from noetl.server.fleet.workers import Workers
    from noetl.server.ingest.queue import Ingest
    from noetl.server.reading.detail import Details
    from noetl.store.base import CommandRow, ExecutionRow, Store

MOST_TOLD: Final = 20
"""Commands that are told one by one; a loop tells how many more there are."""
_MOST_CHILDREN: Final = 200
_SUMMED: Final = 3
_OPEN: Final = ("PENDING", "RUNNING", "PAUSED")
_log: Final = logging.getLogger(__name__)


class Reasons:
    """Answers why."""

    def __init__(
        self, store: Store, details: Details, workers: Workers, ingest: Ingest, clock: Clock
    ) -> None:
        self._store = store
        self._details = details
        self._workers = workers
        self._ingest = ingest
        self._clock = clock

    async def why(self, execution_id: str) -> Why:
        """What a run waits for; of one that has ended, its cause of end."""
        row = await self._details.row(execution_id)
        if row.completed_at is not None:
            found = [await self._terminal(row)]
        else:
            found = await self._live(row)
        details = [reason.detail for reason in found]
        summary = "; ".join(details[:_SUMMED])
        if len(details) > _SUMMED:
            summary += f"; and {len(details) - _SUMMED} more"
        return Why(
            execution_id=execution_id,
            status=row.status,
            summary=summary or row.status,
            reasons=tuple(found),
        )

    # ------------------------------------------------------------------------ a run that goes on

    async def _live(self, row: ExecutionRow) -> list[Reason]:
        state = await self._details.state(row)
        # The state may move while the store is asked: what it says is taken from it first.
        told = _first([item for item in why(state) if _is_of(state, item)])
        under_way, stands_still, paused_at = loops(state), is_stalled(state), state.paused_at
        key = state.concurrency_key if state.is_queued else None
        causes = Causes(row.execution_id, await self._facts(row, key, told))
        found = causes.of_run(paused_at)
        found += [causes.of_loop(item) for item in under_way]
        limits: list[Reason] = []
        for item in told:
            reason = causes.of(item)
            if reason is not None:
                is_limit = item["code"] == "timer" and item["kind"] != "start"
                (limits if is_limit else found).append(reason)
        if stands_still:
            found.append(self._stalled(row))
        return found or limits

    async def _facts(self, row: ExecutionRow, key: str | None, told: list[dict[str, Any]]) -> Facts:
        """What the store knows of the things that a run waits for."""
        named = [item for item in told if "command_id" in item]
        codes = {item["code"] for item in named}
        facts = Facts(now=rfc3339(self._clock.now()), row=row)
        facts.commands = dict(
            zip(
                (item["command_id"] for item in named),
                await asyncio.gather(*(self._command(row, item) for item in named)),
                strict=True,
            )
        )
        for pool in {str(item["pool"]) for item in named if item.get("pool") is not None}:
            facts.live[pool] = await self._workers.live(pool)
        if "running" in codes:
            workers = await self._store.runtimes.listed(kind="worker_pool")
            facts.heartbeats = {worker.name: worker.heartbeat for worker in workers}
        if "child" in codes:
            listing = Listing(
                parent_execution_id=row.execution_id, status=_OPEN, limit=_MOST_CHILDREN
            )
            children = await self._store.executions.listed(listing)
            facts.children = {child.parent_key or "": child for child in children}
        if key is not None:
            facts.holders = await self._store.executions.holders(key)
        for item in named:
            if item["code"] == "unclaimed" and item.get("pool") is not None:
                ahead = self._store.reading.ahead(item["pool"], item["command_id"])
                facts.ahead[item["command_id"]] = await ahead
        for path in dict.fromkeys((row.path, str(row.labels.get("subscription", row.path)))):
            facts.circuits += await self._store.reading.circuits(row.tenant_id, path)
        known = {circuit.path for circuit in facts.circuits}
        facts.circuits += [one for one in await self._told(row) if one.path not in known]
        return facts

    async def _told(self, row: ExecutionRow) -> list[Circuit]:
        """The breakers of the subscription of a run, as its newest events tell of them."""
        path = row.labels.get("subscription")
        if not isinstance(path, str):
            return []
        found = await self._store.subscriptions.find(row.tenant_id, path)
        circuits = {} if found is None else found.summary.get("circuit", {})
        return [Circuit(path=f"{path}.{name}", state=state) for name, state in circuits.items()]

    async def _command(
        self, row: ExecutionRow, item: dict[str, Any]
    ) -> tuple[CommandRow | None, str | None]:
        """The row of a command, and when it was issued."""
        found = await self._store.commands.get(item["command_id"])
        if found is not None and (found.started_at or (found.available_at and _is_work(found))):
            return found, None
        issued = await self._store.log.find(row.execution_id, item["command_id"])
        return found, None if issued is None else issued.created_at

    def _stalled(self, row: ExecutionRow) -> Reason:
        """Nothing is outstanding: it is decided again, and somebody should know."""
        self._ingest.nudge(row.execution_id)
        _log.warning("a run stands still", extra={"execution_id": row.execution_id})
        return Reason(
            code="stalled",
            since=row.updated_at,
            step=row.current_steps[0] if row.current_steps else None,
            detail="nothing is outstanding that could move it; it was decided again just now",
            hint=f"ask again: noetl executions why {row.execution_id}",
        )

    # ------------------------------------------------------------------------ a run that ended

    async def _terminal(self, row: ExecutionRow) -> Reason:
        run, end = row.execution_id, await self._end(row)
        detail, step = f"it is {row.status}", None
        hint = f"noetl executions get {run}"
        if row.status == "FAILED":
            error = row.error or {}
            failed = end.failed_steps if isinstance(end, ev.PlaybookFailed) else ()
            step = error.get("step") or next(iter(failed), None)
            at = f" at `{step}`" if step else ""
            detail = f"it failed{at}: {error.get('message', 'no message was given')}"
            hint = f"noetl executions fork {run} --step failed, or noetl executions rerun {run}"
        elif row.status == "CANCELLED":
            detail = "it was cancelled"
            if isinstance(end, ev.PlaybookCancelled):
                detail += f" by {end.by or 'the platform'}" + (
                    f": {end.reason}" if end.reason else ""
                )
            hint = f"noetl executions rerun {run}"
        return Reason(code="terminal", since=row.completed_at, step=step, detail=detail, hint=hint)

    async def _end(self, row: ExecutionRow) -> ev.Event | None:
        """The event that ended a run."""
        seq = await end_of(self._store.log, row)
        found = [] if seq is None else await self._store.log.read(row.execution_id, seq - 1, 1)
        return found[0].event if found else None


def _is_of(state: State, reason: dict[str, Any]) -> bool:
    """What really holds a run; nobody could claim the work of a paused one."""
    if reason["code"] == "concurrency_queue":
        return state.concurrency_key is not None
    return not (state.is_paused and reason["code"] == "unclaimed")


def _first(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All but the commands beyond the first ones."""
    beyond = [item for item in told if "command_id" in item][MOST_TOLD:]
    names = {(item["command_id"], item.get("child_key")) for item in beyond}
    return [item for item in told if (item.get("command_id"), item.get("child_key")) not in names]


def _is_work(row: CommandRow) -> bool:
    return row.status == "PENDING"
