"""Logs for tests, written as short lists of events."""

from datetime import UTC, datetime, timedelta

from noetl.clock import rfc3339
from noetl.engine.events import PlaybookStarted, Recorded

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def started(run="7", **more):
    return PlaybookStarted(
        execution_id=run, path="etl/orders", version=3, catalog_id="1", workload={}, **more
    )


def log(*entries, run="7"):
    """Events of one run; `(seconds, event)` is later than the one before by that much."""
    at = START
    found = []
    for number, entry in enumerate(entries, 1):
        seconds, event = entry if isinstance(entry, tuple) else (0, entry)
        at += timedelta(seconds=seconds)
        found.append(
            Recorded(
                execution_id=run,
                seq=number,
                event_id=f"{run}{number:04}",
                prev_event_id=f"{run}{number - 1:04}" if number > 1 else None,
                created_at=rfc3339(at),
                event=event,
            )
        )
    return found
