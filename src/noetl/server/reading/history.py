"""The log as readers see it: pages of rows, filtered, in either order, without the payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.executions import Events
from noetl.edge.errors import NotFound, Unacceptable, UnknownExecution
from noetl.engine.rows import to_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from noetl.edge.cursor import Cursors
    from noetl.engine.events import Recorded
    from noetl.server.ingest.large import Large
    from noetl.store.base import Store

    Sight = Callable[[str], Awaitable[bool]]
    """Whether a reader sees a run."""

PAGE: Final = 1_000
MOST_SCANNED: Final = 20_000
"""How many rows one page looks at; a filter that fits few of them is continued by its cursor."""
_PAYLOADS: Final = ("context", "result")
_FORCED: Final = ("playbook.completed", "playbook.failed")
"""Ends that the engine decides; one that somebody is named for was made by hand."""
_REPORTS: Final = frozenset({
    "call.done", "call.error", "command.started", "command.parked", "step.progress",
})  # fmt: skip


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which events a reader wants."""

    after_seq: int | None = None
    since_event_id: str | None = None
    types: tuple[str, ...] = ()
    step: str | None = None
    is_descending: bool = False
    is_lean: bool = False
    limit: int = 100
    cursor: str | None = None

    def filters(self, execution_id: str) -> dict[str, Any]:
        """What a cursor is bound to."""
        return {
            "of": execution_id,
            "types": self.types,
            "step": self.step,
            "descending": self.is_descending,
        }


class History:
    """Reads logs."""

    def __init__(self, store: Store, large: Large, cursors: Cursors) -> None:
        self._store = store
        self._large = large
        self._cursors = cursors

    async def page(self, execution_id: str, query: Query) -> Events:
        """A page of the log of a run, or of a subscription."""
        run = await self._store.executions.get(execution_id)
        row = run or await self._store.subscriptions.get(execution_id)
        if row is None:
            raise UnknownExecution(f"there is no execution {execution_id}")
        low, high = await self._bounds(execution_id, query, row.last_seq)
        found: list[Recorded] = []
        scanned = 0
        while low < high and len(found) < query.limit and scanned < MOST_SCANNED:
            size = min(high - low, PAGE if query.types or query.step else query.limit - len(found))
            start = high - size if query.is_descending else low
            page = await self._store.log.read(execution_id, start, size)
            if query.is_descending:
                page.reverse()
            for item in page:
                if query.is_descending:
                    high = item.seq - 1
                else:
                    low = item.seq
                if _is_wanted(item, query):
                    found.append(item)
                    if len(found) == query.limit:
                        break
            scanned += size
        place = high if query.is_descending else low
        return Events(
            items=tuple(told(item, is_lean=query.is_lean) for item in found),
            last_seq=row.last_seq,
            next_cursor=self._cursors.encode(query.filters(execution_id), place)
            if low < high
            else None,
        )

    async def _bounds(self, execution_id: str, query: Query, last_seq: int) -> tuple[int, int]:
        """The rows to look at lie behind the first and up to the second."""
        low = 0
        if query.after_seq is not None and query.since_event_id is not None:
            raise Unacceptable("`after_seq` and `since_event_id` exclude each other")
        if query.after_seq is not None:
            low = query.after_seq
        elif query.since_event_id is not None:
            low = await self.seq_of(execution_id, query.since_event_id)
        if query.cursor is None:
            return low, last_seq
        place = self._cursors.decode(query.cursor, query.filters(execution_id))
        return (low, int(place)) if query.is_descending else (int(place), last_seq)

    async def seq_of(self, execution_id: str, event_id: str) -> int:
        """Where an event stands in the log of its run."""
        found = await self._store.log.find(execution_id, event_id)
        if found is None:
            raise Unacceptable(f"execution {execution_id} has no event {event_id}")
        return found.seq

    async def event(self, event_id: str, sees: Sight) -> dict[str, Any]:
        """One event, if the reader sees its run."""
        return told(await self._located(event_id, sees))

    async def event_result(self, event_id: str, sees: Sight) -> Any:  # noqa: ANN401 - a user's value
        """The result of an event, fetched when it lies apart."""
        event = (await self._located(event_id, sees)).event
        reference = getattr(event, "reference", None)
        if reference is not None:
            return await self._large.value(reference)
        if not hasattr(event, "result"):
            raise NotFound(f"the event {event_id} has no result")
        return event.result

    async def _located(self, event_id: str, sees: Sight) -> Recorded:
        found = await self._store.log.located(event_id)
        if found is None or not await sees(found.execution_id):
            raise NotFound(f"there is no event {event_id}")
        return found


def told(recorded: Recorded, *, is_lean: bool = False) -> dict[str, Any]:
    """The row of an event as readers see it; a lean one has no payloads."""
    row = to_row(recorded)
    name = row["event_type"]
    if name == "command.issued":
        row["command_id"] = recorded.event_id
    elif name in _REPORTS:
        row["command_id"] = recorded.parent_event_id
    elif name in _FORCED and getattr(recorded.event, "by", None):
        row["meta"] = {**row.get("meta", {}), "forced": True}
    index = row.get("meta", {}).get("index")
    if index is not None:
        row["iteration"] = index
    if is_lean:
        for payload in _PAYLOADS:
            row.pop(payload, None)
    return row


def wanted_types(names: Iterable[str]) -> tuple[str, ...]:
    """Types of a query; `command.*` is a family."""
    return tuple(sorted({name for given in names for name in given.split(",") if name}))


def _is_wanted(item: Recorded, query: Query) -> bool:
    if query.step is not None and getattr(item.event, "step", "playbook") != query.step:
        return False
    if not query.types:
        return True
    name = str(item.event.__struct_config__.tag)
    return any(
        name == wanted or (wanted.endswith(".*") and name.startswith(wanted[:-1]))
        for wanted in query.types
    )
