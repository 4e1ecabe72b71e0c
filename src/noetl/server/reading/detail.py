"""Runs as readers see them: the read model, and the state behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.executions import Execution
from noetl.edge.errors import NotFound, UnknownExecution
from noetl.server.reading.listing import counts, duration_ms, split_result
from noetl.server.signals import sleep_until

if TYPE_CHECKING:
    from noetl.dsl.views import Reference
    from noetl.engine.state import State, StepState
    from noetl.server.ingest.cache import Cache
    from noetl.server.ingest.large import Large
    from noetl.server.signals import Signals
    from noetl.store.base import ExecutionRow, Store

COMMIT_S: Final = 1.0


class Details:
    """Reads runs."""

    def __init__(self, store: Store, cache: Cache, large: Large, signals: Signals) -> None:
        self._signals = signals
        self._store = store
        self._cache = cache
        self._large = large

    async def execution(self, execution_id: str, *, with_state: bool = True) -> Execution:
        """One run: its row and, when it is wanted, what only the state tells."""
        row = await self.row(execution_id)
        state = await self.state(row) if with_state else None
        result, reference = split_result(row.result)
        if state is not None:
            result, reference = state.result, _plain(state.reference)
        return Execution(
            execution_id=row.execution_id,
            status=row.status,
            catalog_id=row.catalog_id,
            path=row.path,
            version=row.version,
            pool=row.pool,
            started_at=row.started_at,
            updated_at=row.updated_at,
            completed_at=row.completed_at,
            duration_ms=duration_ms(row),
            parent_execution_id=row.parent_execution_id,
            current_steps=row.current_steps,
            progress=row.progress,
            steps=counts(row),
            event_count=row.last_seq,
            pending_commands=row.pending_commands,
            priority=row.priority,
            workload=row.workload,
            ctx={} if state is None else _plain(state.ctx),
            result=result,
            reference=reference,
            error=row.error,
            failed_steps=() if state is None else tuple(state.failed_steps),
            step_states={} if state is None else _steps(state),
            last_seq=row.last_seq,
            rerun_of=row.rerun_of,
            forked_from=row.forked_from,
            labels=row.labels,
            trace=row.trace,
            created_by=row.created_by,
            tenant_id=row.tenant_id,
        )

    async def row(self, execution_id: str) -> ExecutionRow:
        """The read model of a run."""
        row = await self._store.executions.get(execution_id)
        if row is None:
            raise UnknownExecution(f"there is no execution {execution_id}")
        return row

    async def state(self, row: ExecutionRow) -> State:
        """The committed state of a run; the cached one may be ahead of its commit, or behind."""
        entry = self._cache.peek(row.execution_id)
        if entry is not None and entry.state.seq > row.last_seq:
            row = await self._after_commit(row)
            entry = self._cache.peek(row.execution_id)
        if entry is not None and entry.state.seq == row.last_seq:
            return entry.state
        return (await self._cache.read(row.execution_id)).state

    async def _after_commit(self, row: ExecutionRow) -> ExecutionRow:
        """Wait for the commit that is under way: cheaper than reading the log."""
        watcher = self._signals.watch(row.execution_id)
        try:
            await sleep_until(watcher, COMMIT_S)
        finally:
            self._signals.unwatch(row.execution_id, watcher)
        return await self.row(row.execution_id)

    async def step_result(self, execution_id: str, step: str) -> Any:  # noqa: ANN401 - a user's value
        """What a step returned, fetched when it lies apart."""
        state = await self.state(await self.row(execution_id))
        found = state.steps.get(step)
        result = found.result if found is not None else None
        if result is None:
            raise NotFound(f"the run has no result of `{step}`")
        if result.reference is not None:
            return await self._large.value(result.reference)
        return _plain(result.data)


def _steps(state: State) -> dict[str, Any]:
    return {name: _step(state.steps[name]) for name in state.program.steps if name in state.steps}


def _step(step: StepState) -> dict[str, Any]:
    told: dict[str, Any] = {"status": step.status, "visit": step.visit}
    if step.is_live:
        told["status"] = "RUNNING"
    if step.result is not None and not step.is_live:
        told["result"] = _plain(step.result.data)
        if step.result.error is not None:
            told["error"] = dict(step.result.error)
        if step.result.reference is not None:
            told["reference"] = _plain(step.result.reference)
    return told


def _plain(value: object | Reference) -> Any:  # noqa: ANN401 - JSON of the author's own
    return msgspec.to_builtins(value, str_keys=True)
