"""What is counted and logged of every commit: runs that begin and end, commands, time."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Final

from noetl.server.metrics import FINISHED

if TYPE_CHECKING:
    from collections.abc import Collection

    from noetl.server.metrics import ServerMetrics
    from noetl.store.base import Change, ExecutionRow

_ENDED: Final = frozenset(FINISHED)
_DEFECT: Final = "engine.error"
_LATE: Final = "command.late"
_log: Final = logging.getLogger("noetl.server")


class Notes:
    """Tells the metrics and the log of a commit, once it is done."""

    def __init__(self, metrics: ServerMetrics) -> None:
        self.metrics = metrics

    def commit(self, changes: Collection[Change]) -> None:
        """Count what was written."""
        metrics = self.metrics
        metrics.ingest_batch_events.observe(sum(len(change.events) for change in changes))
        for change in changes:
            if change.execution.last_event_type == _DEFECT:
                metrics.engine_errors.inc()
            if change.expected_seq == 0:
                _log.info("an execution begins", extra=_about(change.execution))
            for row in change.commands:
                if row.status in _ENDED:
                    metrics.commands_processed.inc(row.pool or "", row.status)
            if change.execution.completed_at is not None and change.execution.status in _ENDED:
                self._end(change)

    def _end(self, change: Change) -> None:
        row = change.execution
        if row.last_event_type == _LATE:
            return  # it had ended before
        seconds = _seconds(row)
        self.metrics.finished(row.status, seconds)
        _log.info(
            "an execution has ended",
            extra={**_about(row), "status": row.status, "duration_ms": round(seconds * 1000, 3)},
        )


def _about(row: ExecutionRow) -> dict[str, str]:
    return {"execution_id": row.execution_id, "path": row.path}


def _seconds(row: ExecutionRow) -> float:
    if row.completed_at is None:
        return 0.0
    passed = datetime.fromisoformat(row.completed_at) - datetime.fromisoformat(row.started_at)
    return max(0.0, passed.total_seconds())
