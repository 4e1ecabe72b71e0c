"""Deliveries: what senders sent, told by gateways, kept for a week and looked at by people."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.ingress import KeepRejected
from noetl.api.models import decoder_of
from noetl.api.subscriptions import Deliveries as Page
from noetl.api.subscriptions import DeliveriesKept, Delivery
from noetl.edge.errors import NotFound, Unacceptable
from noetl.edge.moments import moment_of
from noetl.ids import parse
from noetl.server.access.caller import LOCAL
from noetl.server.access.listening import READ
from noetl.server.values.stored import Wish
from noetl.store.subscriptions import DeliveryListing, DeliveryRow

if TYPE_CHECKING:
    from noetl.api.subscriptions import PutDeliveries, PutDelivery
    from noetl.edge.cursor import Cursors
    from noetl.server.access.caller import Caller
    from noetl.server.subscriptions.desk import SubscriptionDesk
    from noetl.server.values.stored import Values
    from noetl.store.subscriptions import Deliveries, SubscriptionRow

MOST_AT_ONCE: Final = 1_000
MOST_KEPT_BYTES: Final = 64 * 1024
KEPT_S: Final = 86_400
"""How long what was rejected can be looked at."""
REJECTED: Final = "rejected"
FILTERS: Final = ("outcome", "reason", "message_id", "since", "until")
_encode: Final = msgspec.json.Encoder().encode


class DeliveryDesk:
    """What gateways tell of deliveries, and what callers ask."""

    def __init__(
        self, desk: SubscriptionDesk, deliveries: Deliveries, values: Values, cursors: Cursors
    ) -> None:
        self._desk = desk
        self._deliveries = deliveries
        self._values = values
        self._cursors = cursors

    # ------------------------------------------------------------------------ told

    async def put(
        self, caller: Caller, subscription_id: str, body: PutDeliveries
    ) -> DeliveriesKept:
        """Keep some that a gateway has taken; those that are known already are ignored."""
        if len(body.items) > MOST_AT_ONCE:
            raise Unacceptable(
                f"{len(body.items)} deliveries in one call",
                code="batch_size_invalid",
                hint=f"at most {MOST_AT_ONCE}",
            )
        row = await self._desk.told_by(caller, subscription_id)
        rows = [await self._row(row, item) for item in body.items]
        return DeliveriesKept(count=await self._deliveries.add(row.subscription_id, rows))

    async def _row(self, row: SubscriptionRow, item: PutDelivery) -> DeliveryRow:
        fields = {name: getattr(item, name) for name in Delivery.__struct_fields__}
        fields |= {
            "delivery_id": parse(item.delivery_id),
            "at": moment_of(item.at, "at"),
            "execution_id": item.execution_id and parse(item.execution_id),
            "replay_of": item.replay_of and parse(item.replay_of),
        }
        if item.rejected is not None and await self._keeps(row):
            fields["body_ref"] = await self._kept(row, fields["delivery_id"], item.rejected)
        return DeliveryRow(**fields)

    async def _keeps(self, row: SubscriptionRow) -> bool:
        _, spec = await self._desk.specs.of(row)
        return spec.ingress is not None and spec.ingress.keep_rejected

    async def _kept(self, row: SubscriptionRow, delivery_id: str, body: KeepRejected) -> str:
        """Keep what was rejected for a day; its reference."""
        try:
            size = len(b64decode(body.body, validate=True))
        except ValueError:
            raise _unfit("/items/rejected/body", "is no base64") from None
        if size > MOST_KEPT_BYTES:
            raise _unfit("/items/rejected/body", f"has more than {MOST_KEPT_BYTES} bytes")
        name = f"{REJECTED}/{delivery_id}"  # of its own: equal ones end at different times
        wish = Wish(name=name, scope="permanent", ttl_s=KEPT_S, preview_bytes=0)
        kept, _ = await self._values.put(LOCAL, row.subscription_id, wish, _encode(body))
        return kept.ref

    async def rejected(self, row: DeliveryRow) -> KeepRejected | None:
        """What was rejected, if it was kept; an error when it is gone."""
        if row.body_ref is None:
            return None
        resolved = await self._values.resolved(LOCAL, row.body_ref)
        data = b"".join([part async for part in resolved.bytes(0, None)])
        return decoder_of(KeepRejected).decode(data)

    # ------------------------------------------------------------------------ asked

    async def page(
        self, caller: Caller, subscription_id: str, listing: DeliveryListing, cursor: str | None
    ) -> Page:
        """A page, newest first."""
        row = await self._desk.found(caller, READ, subscription_id)
        bound = {
            "deliveries": row.subscription_id,
            **{name: getattr(listing, name) for name in FILTERS},
        }
        after = None if cursor is None else tuple(self._cursors.decode(cursor, bound))
        limit = listing.limit
        asked = msgspec.structs.replace(listing, limit=limit + 1, after=after)
        found = await self._deliveries.page(row.subscription_id, asked)
        page = found[:limit]
        last = page[-1] if len(found) > limit else None
        return Page(
            items=tuple(shown(item) for item in page),
            next_cursor=None
            if last is None
            else self._cursors.encode(bound, (last.at, last.delivery_id)),
        )

    async def one(self, caller: Caller, subscription_id: str, delivery_id: str) -> Delivery:
        """One of them."""
        row = await self._desk.found(caller, READ, subscription_id)
        return shown(await self.found(row.subscription_id, delivery_id))

    async def found(self, subscription_id: str, delivery_id: str) -> DeliveryRow:
        """One that is there."""
        found = await self._deliveries.get(subscription_id, parse(delivery_id))
        if found is None:
            raise NotFound(
                f"there is no delivery {delivery_id[:80]}", hint="they are kept for a week"
            )
        return found


def shown(row: DeliveryRow) -> Delivery:
    """A delivery as callers see it."""
    return msgspec.convert(msgspec.to_builtins(row), Delivery)


def _unfit(pointer: str, message: str) -> Unacceptable:
    errors = ({"pointer": pointer, "code": "validation_failed"},)
    return Unacceptable(f"{pointer}: {message}", errors=errors)
