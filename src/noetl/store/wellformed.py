"""What every change and every process must be, whatever store it is given to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.engine.events import TERMINAL
from noetl.errors import NoetlError
from noetl.store.errors import OtherPool

if TYPE_CHECKING:
    from noetl.store.base import Change, RuntimeRow


class MalformedChange(NoetlError):
    """A change whose events do not follow its own expectation: a defect of the writer."""

    code = "malformed_change"


def check(change: Change) -> None:
    """Refuse a change whose events are not dense, not distinct, end twice or name another run."""
    ids = set()
    terminal = 0
    seq = change.expected_seq
    is_dense = True
    for event in change.events:
        seq += 1
        is_dense = is_dense and event.seq == seq
        ids.add(event.event_id)
        terminal += isinstance(event.event, TERMINAL)
        if event.execution_id != change.execution_id:
            raise MalformedChange(f"execution {change.execution_id}: the change names another run")
    if not is_dense or len(ids) != len(change.events) or terminal > 1:
        raise MalformedChange(
            f"execution {change.execution_id}: the events after seq {change.expected_seq} "
            f"are not dense, not distinct or end twice"
        )
    if change.execution.execution_id != change.execution_id:
        raise MalformedChange(f"execution {change.execution_id}: the change names another run")


def must_be_free(before: RuntimeRow | None, row: RuntimeRow, silent_since: str) -> None:
    """Refuse a process the name of one that is alive in another pool."""
    if before is not None and before.pool != row.pool and before.heartbeat >= silent_since:
        raise OtherPool(
            f"the process {row.name!r} is alive, and not of the pool {row.pool!r}",
            hint="give it another name",
        )
