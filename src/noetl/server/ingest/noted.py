"""What is counted and logged of every commit: runs that begin and end, commands, time."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from noetl.server.metrics import FINISHED
from noetl.telemetry.traces.context import trace_id_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from noetl.server.access.quota import Quotas
    from noetl.server.metrics import ServerMetrics
    from noetl.store.base import Change, ExecutionRow

_ENDED: Final = frozenset(FINISHED)
_FAILED: Final = "FAILED"
_DEFECT: Final = "engine.error"
_LATE: Final = "command.late"
_log: Final = logging.getLogger("noetl.server")


class Notes:
    """Tells the metrics and the log of a commit, once it is done."""

    def __init__(self, metrics: ServerMetrics, quotas: Quotas | None = None) -> None:
        self.metrics = metrics
        self._quotas = quotas

    def commit(self, changes: Collection[Change]) -> None:
        """Count what was written."""
        metrics = self.metrics
        metrics.ingest_batch_events.observe(sum(len(change.events) for change in changes))
        for change in changes:
            if change.execution.last_event_type == _DEFECT:
                metrics.engine_errors.inc()
            if change.expected_seq == 0 and _log.isEnabledFor(logging.DEBUG):
                _log.debug("an execution begins", extra=_about(change.execution))
            for row in change.commands:
                if row.status in _ENDED:
                    metrics.commands_processed.inc(row.pool or "", row.status)
            if change.execution.completed_at is not None and change.execution.status in _ENDED:
                self._end(change)

    def _end(self, change: Change) -> None:
        row = change.execution
        if row.last_event_type == _LATE:
            return  # it had ended before
        if self._quotas is not None:
            self._quotas.ended(row.tenant_id)
        seconds = _seconds(row)
        self.metrics.finished(row.status, seconds)
        level = logging.INFO if row.status == _FAILED else logging.DEBUG
        if not _log.isEnabledFor(level):
            return
        told = {"status": row.status, "duration_ms": round(seconds * 1000, 3)}
        if row.error is not None and "code" in row.error:
            told["code"] = row.error["code"]
        _log.log(level, "an execution has ended", extra={**_about(row), **told})


def _about(row: ExecutionRow) -> dict[str, Any]:
    """Which run a line is about, whose it is, and the trace that it belongs to."""
    told = {
        "execution_id": row.execution_id,
        "path": row.path,
        "version": row.version,
        "tenant": row.tenant_id,
        "account": row.created_by,
    }
    trace_id = trace_id_of(row.trace)
    return told if trace_id is None else {**told, "trace_id": trace_id}


def _seconds(row: ExecutionRow) -> float:
    if row.completed_at is None:
        return 0.0
    passed = datetime.fromisoformat(row.completed_at) - datetime.fromisoformat(row.started_at)
    return max(0.0, passed.total_seconds())
