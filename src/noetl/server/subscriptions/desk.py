"""Subscriptions as callers see them: registered, steered, and looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from noetl.clock import rfc3339
from noetl.engine import events as ev
from noetl.engine.events import OF_SUBSCRIPTIONS, Recorded
from noetl.engine.subscriptions import REGISTERED
from noetl.server.access.caller import LOCAL
from noetl.server.access.listening import CONTROL, READ, must_listen
from noetl.server.subscriptions.documents import (
    KIND,
    TICK,
    is_scheduled,
    listener_of,
    timetable_of,
)
from noetl.server.subscriptions.errors import NotASubscription, UnknownSubscription
from noetl.server.subscriptions.hinting import Hints
from noetl.server.subscriptions.lifecycle import BadTransition, step_of
from noetl.server.subscriptions.logs import Entry, Told
from noetl.server.subscriptions.showing import Showing
from noetl.server.subscriptions.telling import must_tell
from noetl.server.ticks import next_run_at
from noetl.store.subscriptions import ListenerTaken, SubscriptionRow

if TYPE_CHECKING:
    from noetl.api.subscriptions import Subscription, SubscriptionStats
    from noetl.dsl.subscription.document import SubscriptionSpec
    from noetl.server.access.caller import Caller
    from noetl.server.parts import ServerParts
    from noetl.server.subscriptions.documents import Specs
    from noetl.server.subscriptions.logs import SubscriptionLogs
    from noetl.server.subscriptions.ticking import Ticking
    from noetl.store.base import CatalogEntry


class SubscriptionDesk:
    """What callers do with subscriptions."""

    def __init__(
        self, parts: ServerParts, logs: SubscriptionLogs, specs: Specs, ticking: Ticking
    ) -> None:
        self._store = parts.store
        self._clock = parts.clock
        self._ids = parts.ids
        self._ticking = ticking
        self.logs = logs
        self.specs = specs
        self.showing = Showing(parts.store, parts.clock, specs)
        self.hints = Hints(parts.bus, parts.store.subscriptions, specs)

    # ------------------------------------------------------------------------ who may

    async def found(self, caller: Caller, permission: str, subscription_id: str) -> SubscriptionRow:
        """One that is there for the caller, and with which he may do this."""
        row = await self.logs.row(subscription_id)
        if row is None or (caller.is_bound and row.tenant_id != caller.tenant_id):
            raise UnknownSubscription(f"there is no subscription {subscription_id}")
        must_listen(caller, permission, row.path)
        return row

    async def told_by(self, caller: Caller, subscription_id: str) -> SubscriptionRow:
        """One whose messages the caller takes in."""
        row = await self.logs.named(subscription_id)
        if row is None:
            raise UnknownSubscription(f"there is no subscription {subscription_id}")
        await must_tell(caller, row, self.specs)
        return row

    # ------------------------------------------------------------------------ coming

    async def register(self, caller: Caller, path: str, reason: str = "") -> Subscription:
        """Make a document of the catalog a subscription; a known one is told as it is."""
        entry = await self._store.catalog.resolve(caller.tenant_id, path)
        if entry is None:
            known = await self._store.subscriptions.find(caller.tenant_id, path)
            if known is None:
                raise UnknownSubscription(f"the catalog has no {path}", hint="register it first")
            must_listen(caller, CONTROL, path)
            return await self.showing.told(known)
        if entry.kind != KIND:
            raise NotASubscription(f"{path} is of kind {entry.kind}")
        must_listen(caller, CONTROL, path)
        return await self.showing.told(await self.adopt(entry, caller, reason))

    async def must_be_free(self, tenant_id: str, path: str, spec: SubscriptionSpec) -> None:
        """Refuse a document whose listener is that of another subscription."""
        listener = listener_of(spec)
        held = None if listener is None else await self._store.subscriptions.listening(listener)
        if held is not None and (held.tenant_id, held.path) != (tenant_id, path):
            raise ListenerTaken(
                f"another subscription listens at `{listener}`", hint="choose another gateway_path"
            )

    async def adopt(
        self, entry: CatalogEntry, caller: Caller = LOCAL, reason: str = ""
    ) -> SubscriptionRow:
        """Go by a version of the document; the subscription comes into being with the first."""
        _, spec = self.specs.read(entry)
        row = await self._store.subscriptions.find(entry.tenant_id, entry.path)
        if row is None:
            made = self._new(entry, spec, caller.account, reason)
            row = await self._store.subscriptions.register(*made)
            if row == made[0]:
                self.logs.keep(row)
                await self.hints.changed(row.listener)
                return row
        if row.catalog_id == entry.catalog_id:
            return row
        fields = {
            "catalog_id": entry.catalog_id,
            "version": entry.version,
            "listener": listener_of(spec),
        }

        def make(now: SubscriptionRow) -> Entry:
            adopted = msgspec.structs.replace(now, **fields)
            more = self._timed(adopted, spec, is_on=now.state == "ACTIVE")
            return Entry(more.events, fields | more.fields)

        await self.logs.append(row.subscription_id, make)
        self._ticking.changed.set()
        adopted = await self.logs.row(row.subscription_id) or row
        await self.hints.changed(row.listener, adopted.listener)
        return adopted

    def _new(
        self, entry: CatalogEntry, spec: SubscriptionSpec, actor: str, reason: str
    ) -> tuple[SubscriptionRow, Recorded]:
        now, subscription_id = rfc3339(self._clock.now()), self._ids.new()
        event = Recorded(
            execution_id=subscription_id,
            seq=1,
            event_id=self._ids.new(),
            prev_event_id=None,
            created_at=now,
            event=OF_SUBSCRIPTIONS[REGISTERED](
                facts={"path": entry.path, "version": entry.version},
                about={"actor": actor, "reason": reason},
            ),
        )
        row = SubscriptionRow(
            subscription_id=subscription_id,
            tenant_id=entry.tenant_id,
            path=entry.path,
            catalog_id=entry.catalog_id,
            version=entry.version,
            state="REGISTERED",
            listener=listener_of(spec),
            last_event_type=REGISTERED,
            last_event_id=event.event_id,
            last_seq=1,
            updated_at=now,
            summary={"actor": actor, "reason": reason, "since": now, "counts": {REGISTERED: 1}},
        )
        return row, event

    # ------------------------------------------------------------------------ steering

    async def act(
        self, caller: Caller, subscription_id: str, action: str, reason: str = ""
    ) -> Subscription:
        """Activate, pause, resume, drain or deactivate one; a repeat appends nothing."""
        step = step_of(action)
        row = await self.found(caller, CONTROL, subscription_id)
        _, spec = await self.specs.of(row)
        about = {"actor": caller.account, "reason": reason}

        def make(now: SubscriptionRow) -> Entry:
            if now.state not in step.allowed:
                raise BadTransition(action, now.state)
            if now.state == step.state:
                return Entry()
            event = Told(OF_SUBSCRIPTIONS[step.event](about=about))
            timed = self._timed(now, spec, is_on=step.state == "ACTIVE")
            return Entry([event, *timed.events], timed.fields)

        await self.logs.append(subscription_id, make)
        self._ticking.changed.set()
        await self.hints.changed(row.listener)
        return await self.showing.told(await self.logs.row(subscription_id) or row)

    def _timed(self, row: SubscriptionRow, spec: SubscriptionSpec, *, is_on: bool) -> Entry:
        """The timer of the next tick: set, set anew, or gone."""
        due_at = None
        if is_on and is_scheduled(spec):
            due_at = next_run_at(timetable_of(row, spec), self._clock.now())
        if due_at is not None:
            timer = ev.TimerSet(timer_key=TICK, kind=TICK, due_at=due_at)
            return Entry([Told(timer)], {"next_tick_at": due_at})
        if row.next_tick_at is None:
            return Entry()
        return Entry([Told(ev.TimerCancelled(timer_key=TICK))], {"next_tick_at": None})

    # ------------------------------------------------------------------------ looking

    async def get(self, caller: Caller, subscription_id: str) -> Subscription:
        """One, with its document."""
        return await self.showing.told(await self.found(caller, READ, subscription_id))

    async def stats(self, caller: Caller, subscription_id: str) -> SubscriptionStats:
        """Figures of one."""
        return await self.showing.stats(await self.found(caller, READ, subscription_id))
