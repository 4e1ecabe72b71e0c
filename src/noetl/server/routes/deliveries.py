"""What senders delivered: listed, told by gateways, replayed, and tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.ingress import (
    DeliveriesReplayed,
    ReplayDeliveries,
    ReplayDelivery,
    Replayed,
    Sent,
    TestDelivery,
)
from noetl.api.subscriptions import Deliveries, DeliveriesKept, Delivery, PutDeliveries
from noetl.edge.declared import CURSOR, LIMIT, Declared, Parameter
from noetl.edge.reading import json, moment, number, read
from noetl.ids import parse
from noetl.server.access.entry import caller_of
from noetl.server.access.listening import CONTROL, READ
from noetl.server.auditing.audit import audited
from noetl.server.routes.exchange import MOST_BATCH_BYTES, route
from noetl.store.subscriptions import DeliveryListing

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_TELL: Final = "event:write"
_UNKNOWN: Final = "unknown_subscription"
_FILTERS: Final = (
    LIMIT,
    CURSOR,
    Parameter("outcome", "Only those that ended so."),
    Parameter("reason", "Only those with this reason."),
    Parameter("message_id", "Only those of this message."),
    Parameter("since", "At or after.", "time"),
    Parameter("until", "Before.", "time"),
)


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    every = "/api/subscriptions/{subscription_id}/deliveries"
    one = f"{every}/{{delivery_id}}"
    return [
        route(plane, "GET", every, _page, READ, Declared(
            about="Lists what senders delivered, newest first.", answer=Deliveries,
            query=_FILTERS, codes=(_UNKNOWN, "bad_cursor"))),
        route(plane, "POST", every, _put, _TELL, Declared(
            about="Keeps what senders delivered; for gateways.", body=PutDeliveries,
            answer=DeliveriesKept,
            codes=(_UNKNOWN, "batch_size_invalid", "field_not_allowed"))),
        route(plane, "POST", f"{every}/replay", _replay_some, CONTROL, Declared(
            about="Runs deliveries once more, oldest first.", body=ReplayDeliveries,
            answer=DeliveriesReplayed, audit="subscription.replay", codes=(_UNKNOWN,))),
        route(plane, "POST", f"{every}/test", _test, CONTROL, Declared(
            about="Signs a delivery as its sender would, and sends it through a gateway.",
            body=TestDelivery, answer=Sent, audit="subscription.test",
            codes=(_UNKNOWN, "cannot_sign", "no_gateway"))),
        route(plane, "GET", one, _one, READ, Declared(
            about="Shows one delivery.", answer=Delivery, codes=(_UNKNOWN, "not_found"))),
        route(plane, "POST", f"{one}/replay", _replay, CONTROL, Declared(
            about="Runs a delivery once more; a rejected one is judged again, but for its time.",
            body=ReplayDelivery, answer=Replayed, audit="subscription.replay",
            codes=(_UNKNOWN, "not_found", "no_gateway"))),
    ]  # fmt: skip


async def _page(plane: Plane, request: Request) -> Response:
    asked = request.query_params
    listing = DeliveryListing(
        limit=number(request, "limit", 50, 200, 1),
        outcome=asked.get("outcome"),
        reason=asked.get("reason"),
        message_id=asked.get("message_id"),
        since=moment(request, "since"),
        until=moment(request, "until"),
    )
    caller, cursor = caller_of(request), asked.get("cursor")
    return json(await plane.pushed.deliveries.page(caller, _id(request), listing, cursor))


async def _put(plane: Plane, request: Request) -> Response:
    body = await read(request, PutDeliveries, MOST_BATCH_BYTES)
    return json(await plane.pushed.deliveries.put(caller_of(request), _id(request), body))


async def _one(plane: Plane, request: Request) -> Response:
    return json(
        await plane.pushed.deliveries.one(caller_of(request), _id(request), _delivery(request))
    )


async def _replay(plane: Plane, request: Request) -> Response:
    body = await read(request, ReplayDelivery)
    caller, delivery_id = caller_of(request), _delivery(request)
    told = {"delivery_id": delivery_id, "reason": body.reason or None}
    audited(request, _id(request), **told)
    done = await plane.pushed.replaying.one(caller, _id(request), delivery_id)
    audited(request, _id(request), **told, status=done.status, execution_id=done.execution_id)
    return json(done)


async def _replay_some(plane: Plane, request: Request) -> Response:
    body = await read(request, ReplayDeliveries)
    audited(request, _id(request), reason=body.reason or None)
    done = await plane.pushed.replaying.some(caller_of(request), _id(request), body)
    counts: dict[str, int] = {}
    for item in done.items:
        counts[item.status] = counts.get(item.status, 0) + 1
    audited(request, _id(request), reason=body.reason or None, **counts)
    return json(done)


async def _test(plane: Plane, request: Request) -> Response:
    body = await read(request, TestDelivery)
    audited(request, _id(request), bytes=len(body.body))
    sent = await plane.pushed.sending.tried(caller_of(request), _id(request), body)
    audited(request, _id(request), bytes=len(body.body), status=sent.status, code=sent.code)
    return json(sent)


def _id(request: Request) -> str:
    return parse(request.path_params["subscription_id"])


def _delivery(request: Request) -> str:
    return parse(request.path_params["delivery_id"])
