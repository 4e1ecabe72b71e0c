"""Runs in lists, and how far they are: the read model alone, no event is read."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.events import LogPage
from noetl.api.executions import CancellationCheck, ExecutionItem, ExecutionPage, Status
from noetl.edge.errors import UnknownExecution

if TYPE_CHECKING:
    from noetl.edge.cursor import Cursors
    from noetl.store.base import ExecutionRow, Line, Listing, Store

MOST_SCANNED: Final = 10_000
_PAGE: Final = 1_000


class LinesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines of a run a reader wants."""

    step: str | None = None
    command_id: str | None = None
    stream: str | None = None
    level: str | None = None
    since: str | None = None
    q: str | None = None
    limit: int = 1_000
    cursor: str | None = None

    def filters(self, execution_id: str) -> dict[str, Any]:
        """What a cursor is bound to."""
        told = msgspec.structs.asdict(self)
        del told["cursor"], told["limit"]
        return {"of": execution_id, **told}

    def fits(self, line: Line) -> bool:
        """Whether a line passes the filters that the store does not know."""
        return (
            self.command_id in {None, line.command_id}
            and self.stream in {None, line.stream}
            and self.level in {None, line.level}
            and (self.since is None or line.ts >= self.since)
            and (self.q is None or self.q in line.text)
        )


class Lists:
    """Reads many runs at once, or little of one."""

    def __init__(self, store: Store, cursors: Cursors) -> None:
        self._store = store
        self._cursors = cursors

    async def page(self, listing: Listing, cursor: str | None = None) -> ExecutionPage:
        """A page of runs in the order of their ids."""
        filters = msgspec.to_builtins(listing)
        for name in ("limit", "after", "offset"):
            del filters[name]
        filters["of"] = "executions"
        changed: dict[str, Any] = {"limit": listing.limit + 1}
        if cursor is not None:
            changed |= {"after": str(self._cursors.decode(cursor, filters)), "offset": 0}
        rows = await self._store.executions.listed(msgspec.structs.replace(listing, **changed))
        page = rows[: listing.limit]
        has_more = len(rows) > listing.limit
        return ExecutionPage(
            items=tuple(map(item_of, page)),
            next_cursor=self._cursors.encode(filters, page[-1].execution_id) if has_more else None,
        )

    async def status(self, execution_id: str) -> Status:
        """How far a run is."""
        row = await self._row(execution_id)
        return Status(
            execution_id=row.execution_id,
            status=row.status,
            current_step=row.current_steps[0] if row.current_steps else None,
            current_steps=row.current_steps,
            progress=row.progress,
            is_cancelled=row.status == "CANCELLED",
            is_terminal=row.completed_at is not None,
            error=row.error,
            last_seq=row.last_seq,
        )

    async def cancellation(self, execution_id: str) -> CancellationCheck:
        """Whether a run was cancelled."""
        row = await self._row(execution_id)
        return CancellationCheck(
            execution_id=row.execution_id,
            is_cancelled=row.status == "CANCELLED",
            status=row.status,
        )

    async def lines(self, execution_id: str, query: LinesQuery) -> LogPage:
        """A page of the lines that the steps of a run wrote."""
        await self._row(execution_id)
        after = None
        if query.cursor is not None:
            ts, command_id, attempt, n = self._cursors.decode(
                query.cursor, query.filters(execution_id)
            )
            after = (str(ts), str(command_id), int(attempt), int(n))
        found: list[Line] = []
        scanned = 0
        has_more = True
        while has_more and len(found) < query.limit and scanned < MOST_SCANNED:
            page = await self._store.output.read(
                execution_id, step=query.step, after=after, limit=_PAGE
            )
            has_more = len(page) == _PAGE
            scanned += len(page)
            for place, line in enumerate(page):
                after = (line.ts, line.command_id, line.attempt, line.n)
                if query.fits(line):
                    found.append(line)
                    if len(found) == query.limit:
                        has_more = has_more or place + 1 < len(page)
                        break
        return LogPage(
            items=[msgspec.to_builtins(line) for line in found],
            next_cursor=self._cursors.encode(query.filters(execution_id), after)
            if has_more
            else None,
        )

    async def _row(self, execution_id: str) -> ExecutionRow:
        row = await self._store.executions.get(execution_id)
        if row is None:
            raise UnknownExecution(f"there is no execution {execution_id}")
        return row


def item_of(row: ExecutionRow) -> ExecutionItem:
    """A run in a list."""
    return ExecutionItem(
        execution_id=row.execution_id,
        catalog_id=row.catalog_id,
        path=row.path,
        version=row.version,
        status=row.status,
        started_at=row.started_at,
        completed_at=row.completed_at,
        duration_ms=duration_ms(row),
        parent_execution_id=row.parent_execution_id,
        current_steps=row.current_steps,
        steps=counts(row),
        event_count=row.last_seq,
        pending_commands=row.pending_commands,
        pool=row.pool,
        priority=row.priority,
        labels=row.labels,
        error=row.error,
    )


def counts(row: ExecutionRow) -> dict[str, int]:
    """How many steps there are, and how far."""
    return {
        word: row.progress.get(f"{word}_steps", 0)
        for word in ("total", "completed", "running", "failed", "skipped")
    }


def duration_ms(row: ExecutionRow) -> int:
    """How long a run took, or has taken up to its last event."""
    end = datetime.fromisoformat(row.completed_at or row.updated_at)
    return round((end - datetime.fromisoformat(row.started_at)).total_seconds() * 1000)


def split_result(result: Any) -> tuple[Any, dict[str, Any] | None]:  # noqa: ANN401 - a user's value
    """The result of a row: inline, or the reference to where it lies."""
    if isinstance(result, dict) and result.keys() == {"reference"}:
        reference = result["reference"]
        if isinstance(reference, dict) and "ref" in reference and "store" in reference:
            return None, reference
    return result, None
