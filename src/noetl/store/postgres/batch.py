"""The changes of one commit as the parameters of its statement.

A table is one document: encoding one text costs less than filling an array for every column, and
the process that decides has less time to spare than the one that stores.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from noetl.clock import rfc3339
from noetl.engine.events import TERMINAL, ExecutionPaused, ExecutionResumed
from noetl.store.postgres.documents import stored, written
from noetl.store.postgres.rows import (
    binary,
    command_document,
    event_document,
    head_document,
    needed,
    outgoing_document,
    start_document,
    timer_document,
)
from noetl.store.postgres.values import id_of, moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noetl.store.base import Change

PUBLISHERS_GRACE: Final = timedelta(seconds=10)
"""How long the committing process has a message for itself before any other may take it."""
_TURNS: Final = (ExecutionPaused, ExecutionResumed)
_NOTHING: Final = "[]"


class Batch:
    """Changes of distinct runs, in the order of their ids."""

    def __init__(
        self,
        changes: Sequence[Change],
        delivered: list[int],
        *,
        starts: bool = False,
        rest: bool = False,
    ) -> None:
        self._changes = changes
        self._delivered = delivered
        self._turned = [change for change in changes if _is_turned(change)]
        self.has_starts = starts or any(change.expected_seq == 0 for change in changes)
        self.has_two_keys = any(change.replay is not None for change in changes)
        self.has_rest = (
            rest
            or bool(self._turned)
            or any(
                change.timers
                or change.timers_gone
                or change.callbacks
                or change.execution.completed_at is not None
                for change in changes
            )
        )

    def values(self) -> list[object]:
        """The parameters, in the order of the statement."""
        changes = self._changes
        values: list[object] = [
            [needed(change.execution_id) for change in changes],
            [change.expected_seq for change in changes],
            [written(head_document(change)) for change in changes],
        ]
        if self.has_starts:
            values += self._starts()
        values += [
            written([event_document(item) for change in changes for item in change.events]),
            _rows([command_document(row, change) for change in changes for row in change.commands]),
            _rows(list(self._outgoing())),
            self._delivered,
        ]
        if self.has_rest:
            values += self._rest()
        return values

    def _starts(self) -> list[object]:
        starts = [change for change in self._changes if change.expected_seq == 0]
        keys = []
        times = []
        for change in starts:
            for scope, key, until in keys_of(change):
                keys.append(
                    {
                        "scope": scope,
                        "dedup_key": key,
                        "execution_id": change.execution_id,
                        "body_digest": binary(change.dedup_digest.encode()),
                        "expires_at": until,
                    }
                )
                times.append(change.execution.updated_at)
        now = moment(min(times, default=None))
        return [_rows(keys), now, _rows([start_document(change) for change in starts])]

    def _outgoing(self) -> Iterator[dict[str, Any]]:
        for change in self._changes:
            if change.outgoing:
                due = due_of(change.execution.updated_at)
                for item in change.outgoing:
                    yield outgoing_document(item, due)

    def _rest(self) -> list[object]:
        going = [change for change in self._changes if change.execution.completed_at is None]
        ended = [change for change in self._changes if change.execution.completed_at is not None]
        gone = [
            (needed(change.execution_id), stored(key)) for change in going for key in _gone(change)
        ]
        return [
            _rows(
                [
                    timer_document(timer, is_paused=change.execution.status == "PAUSED")
                    for change in going
                    for timer in change.timers
                ]
            ),
            [execution_id for execution_id, _ in gone],
            [key for _, key in gone],
            [needed(change.execution_id) for change in ended],
            [moment(change.execution.completed_at) for change in ended],
            [_told_to(change) for change in ended],
            [needed(change.execution_id) for change in self._turned],
            [change.execution.status == "PAUSED" for change in self._turned],
            _rows(self._callbacks()),
        ]

    def _callbacks(self) -> list[dict[str, Any]]:
        found = {}
        for change in self._changes:
            for digest, command_id in change.callbacks.items():
                found[digest] = {
                    "key_sha256": digest,
                    "execution_id": change.execution_id,
                    "command_id": command_id,
                }
        return list(found.values())


def keys_of(change: Change) -> list[tuple[str, str, str]]:
    """The keys under which a run begins: scope, key, and the end of the window."""
    return [key for key in (change.dedup, change.replay) if key is not None]


def _told_to(change: Change) -> int | None:
    """Who may wait for the end of a run, when this is the change that ends it."""
    is_end = any(isinstance(event.event, TERMINAL) for event in change.events)
    return id_of(change.execution.parent_execution_id) if is_end else None


def due_of(committed_at: str) -> str:
    """When a message of a commit may be delivered by anybody."""
    time = moment(committed_at)
    return committed_at if time is None else rfc3339(time + PUBLISHERS_GRACE)


def _rows(rows: list[dict[str, Any]]) -> str:
    return written(rows) if rows else _NOTHING


def _is_turned(change: Change) -> bool:
    """Whether the run was paused or resumed; an end closes what it has anyway."""
    return change.execution.completed_at is None and any(
        isinstance(event.event, _TURNS) for event in change.events
    )


def _gone(change: Change) -> list[str]:
    """Timers that are no more; one that was set again is there."""
    kept = {timer.timer_key for timer in change.timers}
    return [key for key in change.timers_gone if key not in kept]
