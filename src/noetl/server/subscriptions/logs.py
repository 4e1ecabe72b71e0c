"""The logs of subscriptions: appended to by many at once, in one order, each event once.

What comes while an append is under way is written together by the next one. A writer believes
what it knows of a row; whoever loses a race looks again.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.clock import rfc3339
from noetl.edge.errors import RaceLost
from noetl.engine import subscriptions as names
from noetl.engine.events import OF_SUBSCRIPTIONS, Recorded
from noetl.errors import NoetlError
from noetl.server.subscriptions.errors import UnknownSubscription
from noetl.server.subscriptions.lifecycle import after
from noetl.store.subscriptions import Appended, LetterRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from noetl.clock import Clock
    from noetl.engine.events import Event
    from noetl.ids import Ids
    from noetl.server.signals import Signals
    from noetl.store.base import Store
    from noetl.store.subscriptions import SubscriptionRow

MOST_KEPT: Final = 5_000
MOST_TRIES: Final = 50
MOST_JOBS: Final = 256
"""How many requests one append takes together."""
_PAUSE_S: Final = 0.01


@dataclass(slots=True, eq=False)
class Told:
    """An event to append; `seq` is where it stands then, or stood already."""

    event: Event
    event_id: str | None = None
    event_time: str | None = None
    seq: int = 0
    is_new: bool = True
    minted: str = ""


@dataclass(slots=True, eq=False)
class Entry:
    """What one request appends: made anew for every row that it is tried on."""

    events: list[Told] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    """What changes of the row beside that."""
    results: dict[str, str] = field(default_factory=dict)
    """Where the messages of dead letters lie, by the references of the letters."""


@dataclass(slots=True, eq=False)
class _Job:
    make: Callable[[SubscriptionRow], Entry]
    done: asyncio.Future[None]
    entry: Entry = field(default_factory=Entry)
    error: BaseException | None = None

    def answer(self) -> None:
        """Let the request go on, or fail."""
        if self.done.done():
            return
        if self.error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(self.error)


class SubscriptionLogs:
    """Appends to logs of subscriptions, and knows their rows."""

    def __init__(self, store: Store, clock: Clock, ids: Ids, signals: Signals) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._signals = signals
        self._waiting: dict[str, list[_Job]] = {}
        self._writers: dict[str, asyncio.Task[None]] = {}
        """Who writes to a log now: one at a time."""
        self._rows: OrderedDict[str, SubscriptionRow] = OrderedDict()
        """Rows as this server saw them last; another one may have written since."""

    def keep(self, row: SubscriptionRow) -> None:
        """Remember a row that was seen."""
        known = self._rows.get(row.subscription_id)
        if known is None or known.last_seq <= row.last_seq:
            self._rows[row.subscription_id] = row
        self._rows.move_to_end(row.subscription_id)
        if len(self._rows) > MOST_KEPT:
            self._rows.popitem(last=False)

    async def named(self, subscription_id: str) -> SubscriptionRow | None:
        """Whose subscription it is and of which path, which never change; its state may be old."""
        found = self._rows.get(subscription_id)
        return found or await self.row(subscription_id)

    async def row(self, subscription_id: str) -> SubscriptionRow | None:
        """A subscription as the store has it."""
        found = await self._store.subscriptions.get(subscription_id)
        if found is not None:
            self.keep(found)
        return found

    async def append(self, subscription_id: str, make: Callable[[SubscriptionRow], Entry]) -> Entry:
        """Append what a request makes of the row; its refusal is raised.

        The writing is nobody's own: a request that is given up takes no other one with it.
        """
        job = _Job(make, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(subscription_id, []).append(job)
        if subscription_id not in self._writers:
            writer = asyncio.create_task(self._written(subscription_id), name="subscription log")
            self._writers[subscription_id] = writer
        await job.done
        return job.entry

    async def tell(
        self, subscription_id: str, events: Iterable[tuple[str, dict[str, Any]]]
    ) -> None:
        """Append events by their names and facts."""
        given = list(events)
        await self.append(
            subscription_id,
            lambda _row: Entry(
                [Told(OF_SUBSCRIPTIONS[name](facts=facts)) for name, facts in given]
            ),
        )

    async def _written(self, subscription_id: str) -> None:
        """Write what waits, until nothing does."""
        try:
            while waiting := self._waiting.get(subscription_id):
                jobs = [job for job in waiting[:MOST_JOBS] if not job.done.done()]
                del waiting[:MOST_JOBS]
                try:
                    await self._write(subscription_id, jobs)
                except Exception as fault:  # noqa: BLE001 - it is raised by each of them
                    for job in jobs:
                        job.error = job.error or fault
                for job in jobs:
                    job.answer()
        finally:
            del self._writers[subscription_id]
            for job in self._waiting.pop(subscription_id, ()):
                job.done.cancel()

    async def _write(self, subscription_id: str, jobs: Sequence[_Job]) -> None:
        row = self._rows.get(subscription_id)
        known: dict[str, int] = {}
        for number in range(MOST_TRIES):
            if row is None or number:
                row = await self.row(subscription_id)
                if row is None:
                    raise UnknownSubscription(f"there is no subscription {subscription_id}")
                known = await self._known(subscription_id, jobs)
            change = self._change(row, jobs, known)
            if change is None:
                return
            if await self._store.subscriptions.append(change):
                self.keep(change.row)
                self._signals.told(subscription_id, change.events)
                return
            await asyncio.sleep(_PAUSE_S * random.random())  # noqa: S311 - no secret: writers step aside
        raise RaceLost(f"too many write to subscription {subscription_id}", hint="try again")

    async def _known(self, subscription_id: str, jobs: Sequence[_Job]) -> dict[str, int]:
        given = [told.event_id for job in jobs for told in job.entry.events if told.event_id]
        return await self._store.subscriptions.known(subscription_id, given) if given else {}

    def _change(
        self, row: SubscriptionRow, jobs: Sequence[_Job], known: dict[str, int]
    ) -> Appended | None:
        """All that the requests write; none when they write nothing."""
        before, events = row, list[Recorded]()
        letters: dict[str, LetterRow | None] = {}
        seen = dict(known)
        has_fields = False
        now = rfc3339(self._clock.now())
        for job in jobs:
            job.error = None
            try:
                job.entry = job.make(row)
            except NoetlError as refusal:
                job.error = refusal
                continue
            new = self._recorded(row, job.entry, seen, now)
            events += new
            if new:
                row = after(row, new)
            if job.entry.fields:
                row = msgspec.structs.replace(row, **job.entry.fields)
                has_fields = True
            for item in new:
                _letter(letters, item, job.entry.results)
        if not events and not has_fields:
            return None
        return Appended(
            row=row,
            expected_seq=before.last_seq,
            events=tuple(events),
            letters=tuple(letter for letter in letters.values() if letter is not None),
            letters_gone=tuple(ref for ref, letter in letters.items() if letter is None),
        )

    def _recorded(
        self, row: SubscriptionRow, entry: Entry, seen: dict[str, int], now: str
    ) -> list[Recorded]:
        made: list[Recorded] = []
        seq, previous = row.last_seq, row.last_event_id
        for told in entry.events:
            event_id = told.event_id or self._ids.new()
            told.minted = event_id
            if event_id in seen:
                told.seq, told.is_new = seen[event_id], False
                continue
            seq += 1
            told.seq, told.is_new = seq, True
            seen[event_id] = seq
            made.append(
                Recorded(
                    execution_id=row.subscription_id,
                    seq=seq,
                    event_id=event_id,
                    prev_event_id=previous,
                    created_at=now,
                    event=told.event,  # type: ignore[arg-type]  # the union is closed
                    event_time=told.event_time,
                )
            )
            previous = event_id
        return made


def _letter(letters: dict[str, LetterRow | None], item: Recorded, results: dict[str, str]) -> None:
    """What an event says of a dead letter: there is one, or it is gone."""
    name = str(item.event.__struct_config__.tag)
    facts: dict[str, Any] = getattr(item.event, "facts", {})
    ref = facts.get("ref") or facts.get("spool_ref")
    if not isinstance(ref, str) or not ref:
        return
    if name == names.DEAD_LETTERED:
        attempts = facts.get("attempts")
        letters[ref] = LetterRow(
            ref=ref,
            message_id=str(facts["message_id"]) if facts.get("message_id") else None,
            reason=str(facts.get("reason", "")),
            attempts=attempts if isinstance(attempts, int) else 0,
            at=item.created_at,
            result_ref=results.get(ref),
        )
    elif name in {names.REDRIVEN, names.DISCARDED}:
        letters[ref] = None
