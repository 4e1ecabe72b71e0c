"""Deliveries once more: a new run with the same workload, or another judgement of a gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.ingress import DeliveriesReplayed, Replayed
from noetl.clock import rfc3339
from noetl.edge.errors import Unacceptable, UnknownExecution
from noetl.edge.moments import moment_of
from noetl.engine import events as ev
from noetl.engine.subscriptions import ACCEPTED
from noetl.errors import NoetlError
from noetl.server.access.caller import LOCAL, free_pool, must
from noetl.server.access.listening import CONTROL
from noetl.server.ingest.wanted import Wanted
from noetl.server.pushed.deliveries import REJECTED
from noetl.store.subscriptions import DeliveryListing, DeliveryRow

if TYPE_CHECKING:
    from noetl.api.executions import Started
    from noetl.api.ingress import DeliveryFilter, ReplayDeliveries, Sent
    from noetl.server.access.caller import Caller
    from noetl.server.access.quota import Quotas
    from noetl.server.parts import ServerParts
    from noetl.server.pushed.deliveries import DeliveryDesk
    from noetl.server.pushed.sending import Sending
    from noetl.server.runs.execute import Runs
    from noetl.server.subscriptions.desk import SubscriptionDesk
    from noetl.store.base import CatalogEntry
    from noetl.store.subscriptions import SubscriptionRow

MOST_AT_ONCE: Final = 1_000
STARTED: Final = "started"
REFUSED: Final = "refused"
NOT_REPLAYABLE: Final = "not_replayable"
_WINDOW_S: Final = 86_400
_GOOD: Final = 300
_SERVER_FAULT: Final = 500
_ACCEPTED: Final = "accepted"
_TAKEN: Final = 202


class Replaying:
    """Repeats deliveries."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts it is made from
        self,
        parts: ServerParts,
        desk: SubscriptionDesk,
        deliveries: DeliveryDesk,
        runs: Runs,
        sending: Sending,
        quotas: Quotas,
    ) -> None:
        self._store = parts.store
        self._clock = parts.clock
        self._ids = parts.ids
        self._desk = desk
        self._deliveries = deliveries
        self._runs = runs
        self._sending = sending
        self._quotas = quotas

    async def one(self, caller: Caller, subscription_id: str, delivery_id: str) -> Replayed:
        """Repeat one of them."""
        row = await self._desk.found(caller, CONTROL, subscription_id)
        delivery = await self._deliveries.found(row.subscription_id, delivery_id)
        try:
            return await self._replayed(caller, row, delivery)
        except NoetlError as refusal:
            if refusal.status >= _SERVER_FAULT:
                raise
            return _not(delivery, REFUSED, refusal.code)

    async def some(
        self, caller: Caller, subscription_id: str, body: ReplayDeliveries
    ) -> DeliveriesReplayed:
        """Repeat those of a filter, oldest first; one that is refused holds up no other."""
        row = await self._desk.found(caller, CONTROL, subscription_id)
        if not 1 <= body.limit <= MOST_AT_ONCE:
            raise Unacceptable(
                f"`limit` is not in 1..{MOST_AT_ONCE}",
                errors=({"pointer": "/limit", "code": "validation_failed"},),
            )
        listing = _listing(body.filter, body.limit)
        items = []
        for delivery in await self._store.deliveries.page(row.subscription_id, listing):
            try:
                items.append(await self._replayed(caller, row, delivery))
            except NoetlError as refusal:
                items.append(_not(delivery, REFUSED, refusal.code))
        return DeliveriesReplayed(items=tuple(items))

    async def _replayed(
        self, caller: Caller, row: SubscriptionRow, delivery: DeliveryRow
    ) -> Replayed:
        if delivery.outcome == REJECTED:
            return await self._judged(row, delivery)
        if delivery.execution_id is None:  # it still waits, or nothing came of it
            return _not(delivery, NOT_REPLAYABLE, "not_retryable")
        try:
            start = await self._start_of(delivery.execution_id)
        except UnknownExecution as gone:
            return _not(delivery, NOT_REPLAYABLE, gone.code)
        started = await self._run(caller, row, delivery, start)
        return Replayed(
            delivery_id=delivery.delivery_id,
            status=started.status,
            execution_id=started.execution_id,
        )

    # ------------------------------------------------------------------------ runs

    async def _run(
        self,
        caller: Caller,
        row: SubscriptionRow,
        delivery: DeliveryRow,
        start: ev.PlaybookStarted,
    ) -> Started:
        """A new run, as a new delivery of the same message would have it."""
        entry = await self._entry(row, start)
        must(caller, "execution:run", entry.path)
        free_pool(caller, start.pool)
        self._quotas.pace(caller)
        new_id, replay_of = self._ids.new(), delivery.delivery_id
        told = {"delivery_id": new_id, "replay_of": replay_of}
        about = {"id": row.subscription_id, "path": row.path, **(start.subscription or {}), **told}
        facts = {"message_id": about.get("message_id"), "listener": row.listener, **told}
        wanted = Wanted(
            entry=entry,
            catalog_id=entry.catalog_id,
            workload=start.workload,
            secrets_of=start.execution_id,
            pool=start.pool,
            priority=start.priority,
            parent_execution_id=row.subscription_id,
            dedup=(row.subscription_id, f"replay:{replay_of}:{new_id}", _WINDOW_S),
            labels=start.labels,
            trigger={"kind": "subscription", "name": row.path, "replay_of": replay_of},
            replay_of=replay_of,
            created_by=caller.account,
            tenant_id=row.tenant_id,
            is_metered=caller is not LOCAL,
            subscription=about,
            told=((ACCEPTED, facts),),
        )
        started = await self._runs.start(wanted)
        await self._noted(row, delivery, new_id, started.execution_id)
        return started

    async def _entry(self, row: SubscriptionRow, start: ev.PlaybookStarted) -> CatalogEntry:
        """What a delivery of today would run: the newest version, unless one is named."""
        _, spec = await self._desk.specs.of(row)
        named = spec.dispatch.playbook
        path = named if named.partition("@")[0] == start.path else start.path
        return await self._runs.resolve(row.tenant_id, path, None)

    async def _noted(
        self, row: SubscriptionRow, delivery: DeliveryRow, new_id: str, execution_id: str
    ) -> None:
        made = DeliveryRow(
            delivery_id=new_id,
            at=rfc3339(self._clock.now()),
            outcome=_ACCEPTED,
            status=_TAKEN,
            message_id=delivery.message_id,
            execution_id=execution_id,
            bytes=delivery.bytes,
            replay_of=delivery.delivery_id,
        )
        await self._store.deliveries.add(row.subscription_id, [made])

    async def _start_of(self, execution_id: str) -> ev.PlaybookStarted:
        first = await self._store.log.read(execution_id, 0, 1)
        event = first[0].event if first else None
        if not isinstance(event, ev.PlaybookStarted):
            raise UnknownExecution(f"there is no execution {execution_id}")
        return event

    # ------------------------------------------------------------------------ judgements

    async def _judged(self, row: SubscriptionRow, delivery: DeliveryRow) -> Replayed:
        """Have a gateway look at a rejected one once more; a token that it came with is gone."""
        _, spec = await self._desk.specs.of(row)
        verify = None if spec.ingress is None else spec.ingress.verify
        if verify is not None and verify.is_token:
            return _not(delivery, NOT_REPLAYABLE, "token_not_kept")
        try:
            kept = await self._deliveries.rejected(delivery)
        except NoetlError as gone:
            if gone.status >= _SERVER_FAULT:
                raise
            return _not(delivery, NOT_REPLAYABLE, gone.code)
        if kept is None:
            return _not(delivery, NOT_REPLAYABLE, "result_gone")
        sent = await self._sending.again(row, delivery.delivery_id, kept)
        return Replayed(
            delivery_id=delivery.delivery_id,
            status=_status(sent),
            execution_id=sent.execution_id,
            code=sent.code,
        )


def _status(sent: Sent) -> str:
    """What became of it: `started`, `duplicate`, `spooled`, or `refused`."""
    if sent.status >= _GOOD:
        return REFUSED
    return STARTED if sent.outcome in {None, _ACCEPTED} else sent.outcome


def _not(delivery: DeliveryRow, status: str, code: str) -> Replayed:
    return Replayed(delivery_id=delivery.delivery_id, status=status, code=code)


def _listing(asked: DeliveryFilter, limit: int) -> DeliveryListing:
    return DeliveryListing(
        limit=limit,
        outcome=asked.outcome,
        reason=asked.reason,
        message_id=asked.message_id,
        since=asked.since and moment_of(asked.since, "since"),
        until=asked.until and moment_of(asked.until, "until"),
        is_oldest_first=True,
    )
