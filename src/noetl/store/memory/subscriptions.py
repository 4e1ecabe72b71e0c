"""Subscriptions, their logs, and what became of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl.engine.events import TERMINAL, PlaybookStarted
from noetl.store.memory.executions import holder_of
from noetl.store.memory.journal import Journal
from noetl.store.subscriptions import NOT_TOLD, CircuitRow, ListenerTaken, OutcomeRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noetl.engine.events import Recorded
    from noetl.store.base import Change
    from noetl.store.memory.tables import Tables
    from noetl.store.subscriptions import (
        Appended,
        DeliveryListing,
        DeliveryRow,
        LetterRow,
        SubscriptionRow,
    )


def ended(tables: Tables, change: Change) -> None:
    """Note the end of a run whose parent is a subscription."""
    parent = change.execution.parent_execution_id
    if parent in tables.subscriptions.rows and any(
        isinstance(item.event, TERMINAL) for item in change.events
    ):
        tables.subscriptions.outcomes[parent].append(change.execution_id)


class MemorySubscriptions:
    """Subscriptions by id, and by tenant and path."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._rows = tables.subscriptions.rows

    async def register(self, row: SubscriptionRow, event: Recorded) -> SubscriptionRow:
        """Keep a new one with its first event; the known one of that tenant and path as it is."""
        found = await self.find(row.tenant_id, row.path)
        if found is not None:
            return found
        self._must_be_free(row)
        self._rows[row.subscription_id] = row
        journal = self._tables.journals[row.subscription_id] = Journal()
        journal.append([event])
        return row

    async def get(self, subscription_id: str) -> SubscriptionRow | None:
        """One by its id."""
        return self._rows.get(subscription_id)

    async def find(self, tenant_id: str, path: str) -> SubscriptionRow | None:
        """The one of a path."""
        wanted = (tenant_id, path)
        rows = self._rows.values()
        return next((row for row in rows if (row.tenant_id, row.path) == wanted), None)

    async def listening(self, listener: str) -> SubscriptionRow | None:
        """The one that listens under a name."""
        return next((row for row in self._rows.values() if row.listener == listener), None)

    async def listed(
        self, tenant_id: str | None = None, state: str | None = None
    ) -> list[SubscriptionRow]:
        """All of a tenant, or of every tenant, by path."""
        found = (
            row
            for row in self._rows.values()
            if tenant_id in {None, row.tenant_id} and state in {None, row.state}
        )
        return sorted(found, key=lambda row: (row.path, row.tenant_id))

    async def append(self, change: Appended) -> bool:
        """Write events and the row together; false when another writer was faster."""
        row = change.row
        before = self._rows.get(row.subscription_id)
        if before is None or before.last_seq != change.expected_seq:
            return False
        journal = self._tables.journals[row.subscription_id]
        if any(journal.has(event.event_id) for event in change.events):
            return False
        self._must_be_free(row)
        journal.append(change.events)
        self._rows[row.subscription_id] = row
        letters = self._tables.subscriptions.letters[row.subscription_id]
        for ref in change.letters_gone:
            letters.pop(ref, None)
        for letter in change.letters:
            kept = letters.get(letter.ref)
            if kept is not None and letter.result_ref is None:
                letter = msgspec.structs.replace(letter, result_ref=kept.result_ref)  # noqa: PLW2901 - it keeps what it has
            letters[letter.ref] = letter
        return True

    async def known(self, subscription_id: str, event_ids: Sequence[str]) -> dict[str, int]:
        """Those of these events that its log has, and where."""
        journal = self._tables.journals.get(subscription_id)
        found = (None if journal is None else journal.find(name) for name in event_ids)
        return {item.event_id: item.seq for item in found if item is not None}

    def _must_be_free(self, row: SubscriptionRow) -> None:
        for other in self._rows.values():
            is_same = other.listener is not None and other.listener == row.listener
            if is_same and other.subscription_id != row.subscription_id:
                raise ListenerTaken(
                    f"another subscription listens at `{row.listener}`",
                    hint="choose another gateway_path",
                )


class MemoryKeys:
    """Keys under which runs were started."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def held(self, keys: Sequence[tuple[str, str]], now: str) -> frozenset[tuple[str, str]]:
        """Those of these scopes and keys that have started a run within their windows."""
        return frozenset(key for key in keys if holder_of(self._tables, *key, now) is not None)


class MemoryTicks:
    """Subscriptions that are drained by the clock."""

    def __init__(self, tables: Tables) -> None:
        self._rows = tables.subscriptions.rows

    async def due(self, now: str, limit: int = 100) -> list[SubscriptionRow]:
        """Those whose time has come, oldest first."""
        found = [
            (row.next_tick_at, row.subscription_id, row)
            for row in self._rows.values()
            if row.next_tick_at is not None and row.next_tick_at <= now
        ]
        return [row for _, _, row in sorted(found, key=lambda item: item[:2])[:limit]]

    async def next_due(self) -> str | None:
        """When the next one is due."""
        times = (row.next_tick_at for row in self._rows.values())
        return min((time for time in times if time is not None), default=None)


class MemoryOutcomes:
    """Ends of runs, in the order of their commits."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def after(
        self, subscription_id: str, cursor: str, limit: int
    ) -> tuple[list[OutcomeRow], str]:
        """The ends behind a cursor, and the cursor behind them."""
        kept = self._tables.subscriptions.outcomes.get(subscription_id, [])
        first = int(cursor.partition(".")[0] or 0)
        first = first if first <= len(kept) else 0
        page = kept[first : first + limit]
        return list(self._told(page)), f"{first + len(page)}.0"

    async def newest(self, subscription_id: str) -> str:
        """The cursor behind all that has ended by now."""
        return f"{len(self._tables.subscriptions.outcomes.get(subscription_id, []))}.0"

    async def counted(self, subscription_id: str, since: str) -> dict[str, int]:
        """How many runs of its messages began since a moment, by status."""
        found: dict[str, int] = {}
        runs = self._tables.executions
        for name in runs.children.get(subscription_id, ()):
            row = runs.rows[name]
            if row.started_at >= since:
                found[row.status] = found.get(row.status, 0) + 1
        return found

    def _told(self, names: list[str]) -> Iterator[OutcomeRow]:
        for name in names:
            row = self._tables.executions.rows.get(name)
            if row is None:
                continue
            started = self._tables.journals[name].read(0, 1)[0].event
            about = started.subscription if isinstance(started, PlaybookStarted) else None
            yield OutcomeRow(
                execution_id=name, status=row.status, error=row.error, subscription=about or {}
            )


class MemoryLetters:
    """Dead letters; appends write them."""

    def __init__(self, tables: Tables) -> None:
        self._rows = tables.subscriptions.rows
        self._letters = tables.subscriptions.letters

    async def page(
        self, subscription_id: str, after: tuple[str, str] | None, limit: int
    ) -> list[LetterRow]:
        """A page, oldest first."""
        kept = self._letters.get(subscription_id, {}).values()
        found = sorted(kept, key=lambda row: (row.at, row.ref))
        return [row for row in found if after is None or (row.at, row.ref) > after][:limit]

    async def get(self, subscription_id: str, ref: str) -> LetterRow | None:
        """One letter."""
        return self._letters.get(subscription_id, {}).get(ref)

    async def counted(self, subscription_id: str, *, is_here: bool = False) -> int:
        """How many there are; or how many of them lie here."""
        letters = self._letters.get(subscription_id, {}).values()
        return sum(letter.result_ref is not None or not is_here for letter in letters)

    async def wanted(self) -> list[str]:
        """Subscriptions of which letters are wanted, and that have some that lie here."""
        return sorted(
            name
            for name, row in self._rows.items()
            if row.summary.get("requests")
            and any(letter.result_ref for letter in self._letters.get(name, {}).values())
        )


class MemoryDeliveries:
    """What senders delivered."""

    def __init__(self, tables: Tables) -> None:
        self._kept = tables.subscriptions.deliveries

    async def add(self, subscription_id: str, rows: Sequence[DeliveryRow]) -> int:
        """Keep some; how many were new."""
        kept, new = self._kept[subscription_id], 0
        for row in rows:
            known = kept.get(row.delivery_id)
            if known is not None and known.reason != NOT_TOLD:
                continue
            run = row.execution_id if known is None else known.execution_id or row.execution_id
            kept[row.delivery_id] = msgspec.structs.replace(row, execution_id=run)
            new += 1
        return new

    async def get(self, subscription_id: str, delivery_id: str) -> DeliveryRow | None:
        """One of them."""
        return self._kept.get(subscription_id, {}).get(delivery_id)

    async def page(self, subscription_id: str, listing: DeliveryListing) -> list[DeliveryRow]:
        """A page, newest first."""
        found = [
            row
            for row in self._kept.get(subscription_id, {}).values()
            if listing.outcome in {None, row.outcome}
            and listing.reason in {None, row.reason}
            and listing.message_id in {None, row.message_id}
            and (listing.since is None or row.at >= listing.since)
            and (listing.until is None or row.at < listing.until)
            and not (listing.is_oldest_first and row.replay_of)
        ]
        found.sort(key=_place, reverse=not listing.is_oldest_first)
        if listing.after is not None:
            at, name = listing.after
            found = [row for row in found if _place(row) < (at, int(name))]
        return found[: listing.limit]

    async def ran(self, subscription_id: str, rows: Sequence[DeliveryRow]) -> None:
        """Note the runs of deliveries that have waited."""
        kept = self._kept[subscription_id]
        for row in rows:
            known = kept.setdefault(row.delivery_id, row)
            if known.execution_id is None:
                run = row.execution_id
                kept[row.delivery_id] = msgspec.structs.replace(known, execution_id=run)


class MemoryCircuits:
    """Small documents by tenant and path, written by compare and set."""

    def __init__(self, tables: Tables) -> None:
        self._states = tables.circuits
        self._revisions = tables.subscriptions.revisions

    async def get(self, tenant_id: str, path: str) -> CircuitRow | None:
        """One document."""
        state = self._states.get((tenant_id, path))
        if state is None:
            return None
        return CircuitRow(
            path=path, state=state, revision=self._revisions.get((tenant_id, path), 0)
        )

    async def put(
        self, tenant_id: str, path: str, state: dict[str, Any], revision: int | None
    ) -> int | None:
        """Write a document that is still at a revision; its new one."""
        found = await self.get(tenant_id, path)
        if (None if found is None else found.revision) != revision:
            return None
        self._states[tenant_id, path] = state
        self._revisions[tenant_id, path] = made = (revision or 0) + 1
        return made

    async def remove(self, tenant_id: str, path: str, revision: int | None = None) -> bool:
        """Forget one that is still at a revision; false when it is not."""
        found = await self.get(tenant_id, path)
        if found is None or revision not in {None, found.revision}:
            return False
        del self._states[tenant_id, path]
        self._revisions.pop((tenant_id, path), None)
        return True


def _place(row: DeliveryRow) -> tuple[str, int]:
    return row.at, int(row.delivery_id)
