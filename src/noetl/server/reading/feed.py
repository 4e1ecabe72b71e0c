"""Lists as they change: what was committed here or elsewhere, told to everybody who follows lists.

Nothing happens while nobody listens. Commits of this server come as rows, without a look at the
store. Those of other servers are named by the bus, or found by a look at the newest event ids; then
their rows are read, many at once. Pools, documents and the system are looked at now and then.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from noetl import __version__
from noetl.bus import subjects
from noetl.bus.base import BusGone
from noetl.errors import NoetlError
from noetl.server.library.documents import item_of as document_of
from noetl.server.reading.elsewhere import RARELY, last_seq
from noetl.server.reading.told import Told, id_at, of_run
from noetl.server.signals import sleep_until
from noetl.server.vitals import DATABASE
from noetl.store.base import CatalogListing, Listing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from noetl.server.fleet.workers import Workers
    from noetl.server.parts import ServerParts
    from noetl.server.reading.stream import Streams
    from noetl.server.reading.told import Follower
    from noetl.server.signals import Signals
    from noetl.server.subscriptions.desk import SubscriptionDesk
    from noetl.server.vitals import Vitals
    from noetl.store.base import Change, ExecutionRow

TOPICS: Final = ("executions", "subscriptions", "pools", "catalog", "system")
PACE_S: Final = 0.05
"""How long rows wait for company before they are offered."""
LOOK_S: Final = 2.0
"""How often commits of other servers are looked for without a bus; with one, five times rarer."""
SLACK_S: Final = 3.0
"""A commit may become visible so long after its newest id was made."""
OTHERS_S: Final = 2.0
MOST_CHANGED: Final = 1_000
"""Runs that one look finds; when there are more, followers are told to read their lists again."""
MOST_DOCUMENTS: Final = 5_000
"""Documents of a tenant that are compared; changes of later paths are not told."""
_DOCUMENTS: Final = 200
_MOST_HEARD: Final = 20_000
_AHEAD: Final = timedelta(seconds=60)
_EXECUTION: Final = 4
_TOKENS: Final = 6


class Feed:
    """Everybody who follows lists on this server."""

    def __init__(
        self,
        parts: ServerParts,
        streams: Streams,
        signals: Signals,
        workers: Workers,
        subscriptions: SubscriptionDesk,
    ) -> None:
        self._subscriptions = subscriptions
        self._news = asyncio.Event()
        """A subscription was written to here."""
        self.clock = parts.clock
        self.ids = parts.ids
        self.vitals: Vitals | None = None
        self._parts = parts
        self._store = parts.store
        self._streams = streams
        self._signals = signals
        self._workers = workers
        self._listeners: dict[Follower, None] = {}
        self._wanted = asyncio.Event()
        self._unwanted = asyncio.Event()
        self._fresh: dict[str, ExecutionRow] = {}
        self._wake = asyncio.Event()
        self._named: set[str] = set()
        self._is_named = asyncio.Event()
        self._heard: OrderedDict[str, int] = OrderedDict()
        """How far runs were told."""

    # ------------------------------------------------------------------------ who listens

    def open(self, listener: Follower) -> None:
        """Let somebody follow, if there is room for one more stream; give it back with `close`."""
        self._streams.admit(listener)
        self._listeners[listener] = None
        self._signals.hearer = self._committed
        self._signals.listeners.add(self._news)
        self._unwanted.clear()
        self._wanted.set()

    def close(self, listener: Follower) -> None:
        """Somebody has gone."""
        self._listeners.pop(listener, None)
        if not self._listeners:
            self._signals.hearer = None
            self._signals.listeners.discard(self._news)
            self._fresh.clear()
            self._named.clear()
            self._heard.clear()
            self._wanted.clear()
            self._unwanted.set()

    def _committed(self, changes: Iterable[Change]) -> None:
        """A commit of this server; the work is done by `_offer`, not by the commit."""
        for change in changes:
            self._fresh[change.execution_id] = change.execution
        self._wake.set()

    # ------------------------------------------------------------------------ the loop

    async def run(self) -> None:
        """Work while anybody listens."""
        while True:
            await self._wanted.wait()
            jobs = [self._offer(), self._look(), self._others()]
            if self._parts.publishes:
                jobs.append(self._listen())
            tasks = [asyncio.ensure_future(job) for job in (*jobs, self._unwanted.wait())]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            for task in done:
                task.result()

    async def _offer(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(PACE_S)
            self._wake.clear()
            fresh, self._fresh = self._fresh, {}
            for row in fresh.values():
                self._tell(row)

    def _tell(self, row: ExecutionRow) -> None:
        """Offer a run to everybody, unless they know more of it already."""
        if self._heard.get(row.execution_id, 0) >= row.last_seq:
            return
        self._heard[row.execution_id] = row.last_seq
        self._heard.move_to_end(row.execution_id)
        if len(self._heard) > _MOST_HEARD:
            self._heard.popitem(last=False)
        told = of_run(row)
        for listener in list(self._listeners):
            listener.offer(told)

    # ------------------------------------------------------------------------ other servers

    async def _listen(self) -> None:
        """Note which runs the bus names; a bus that is away is replaced by the look."""
        while True:
            try:
                async with self._parts.bus.listen(subjects.EVENTS) as words:
                    async for word in words:
                        self._name(word.subject, word.payload)
            except BusGone:
                pass
            await asyncio.sleep(LOOK_S)

    def _name(self, subject: str, payload: bytes) -> None:
        tokens = subject.split(".")
        seq = last_seq(payload)
        if len(tokens) != _TOKENS or seq is None:
            return
        execution_id = tokens[_EXECUTION]
        mine = self._fresh.get(execution_id)
        known = self._heard.get(execution_id, 0) if mine is None else mine.last_seq
        if known < seq:
            self._named.add(execution_id)
            self._is_named.set()

    async def _look(self) -> None:
        """Read the rows of runs that others have written to."""
        if self._parts.is_alone:
            await self._unwanted.wait()
        wait_s = LOOK_S * RARELY if self._parts.publishes else LOOK_S
        since, next_at = self.clock.now(), self.clock.monotonic() + wait_s
        while True:
            await sleep_until(self._is_named, next_at - self.clock.monotonic())
            await asyncio.sleep(PACE_S)
            named, self._named = self._named, set()
            if self.clock.monotonic() >= next_at:
                now, next_at = self.clock.now(), self.clock.monotonic() + wait_s
                named.update(await self._changed(since))
                since = now
            try:
                for row in await self._rows(named):
                    self._tell(row)
            except NoetlError as fault:
                if not fault.retryable:
                    raise
                self._named |= named

    async def _changed(self, since: datetime) -> list[str]:
        first = since - timedelta(seconds=SLACK_S)
        found = await self.changed(first)
        if len(found) == MOST_CHANGED:
            for listener in self._listeners:
                listener.reset()
        return found

    async def changed(self, since: datetime) -> list[str]:
        """Runs that have changed since a moment, as far as there are not too many."""
        last = id_at(self.clock.now() + _AHEAD)
        return await self._store.reading.changed(id_at(since), last, MOST_CHANGED)

    async def rows_since(self, since: datetime) -> list[ExecutionRow] | None:
        """The runs that have changed since a moment; none when there are too many."""
        found = await self.changed(since - timedelta(seconds=SLACK_S))
        return None if len(found) == MOST_CHANGED else await self._rows(set(found))

    async def _rows(self, execution_ids: set[str]) -> list[ExecutionRow]:
        if not execution_ids:
            return []
        listing = Listing(execution_ids=tuple(execution_ids), limit=len(execution_ids))
        return await self._store.executions.listed(listing)

    # ------------------------------------------------------------------------ other lists

    async def _others(self) -> None:
        while True:
            try:
                await self._told_others()
            except NoetlError as fault:
                if not fault.retryable:
                    raise
            await sleep_until(self._news, OTHERS_S)
            await asyncio.sleep(PACE_S)

    async def _told_others(self) -> None:
        wanted = {topic for listener in self._listeners for topic in listener.topics}
        found: list[Told] = []
        if "pools" in wanted:
            pools = (await self._workers.pools()).pools
            found += [Told("pools", pool.pool, pool) for pool in pools]
        if "subscriptions" in wanted:
            found += [
                Told("subscriptions", row.subscription_id, shown, None, row.tenant_id, row.path)
                for row, shown in await self._subscriptions.showing.every()
            ]
        if "system" in wanted:
            found.append(Told("system", "server", await self._health()))
        for listener in list(self._listeners):
            for told in found:
                listener.offer(told)
        if "catalog" in wanted:
            await self._documents()

    async def _health(self) -> dict[str, Any]:
        vitals = self.vitals
        failing = () if vitals is None else await vitals.failing()
        is_down, has_bus = DATABASE in failing, vitals is None or vitals.is_bus_up
        return {
            "status": "unhealthy" if is_down else "ok" if has_bus and not failing else "degraded",
            "database": "down" if is_down else "ok",
            "nats": "ok" if has_bus else "down",
            "version": __version__,
        }

    async def _documents(self) -> None:
        """Offer what the paths of each tenant mean; a listener tells what has changed."""
        listening = [one for one in self._listeners if "catalog" in one.topics]
        for tenant_id in {listener.tenant_id for listener in listening}:
            after, count = None, 0
            while count < MOST_DOCUMENTS:
                listing = CatalogListing(
                    limit=_DOCUMENTS, after=after, include_archived=True, with_content=False
                )
                page = await self._store.catalog.listed(tenant_id, listing)
                for entry in page:
                    told = Told(
                        "catalog", entry.path, document_of(entry), None, tenant_id, entry.path
                    )
                    for listener in listening:
                        listener.offer(told)
                count += len(page)
                if len(page) < _DOCUMENTS:
                    break
                after = (page[-1].path, page[-1].version)
        for listener in listening:
            listener.knows_all("catalog")
