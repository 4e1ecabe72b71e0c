"""Subscriptions: their lives, and what became of their messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.subscriptions import (
    DeadLetter,
    DeadLetters,
    LettersRequested,
    LettersWanted,
    Outcomes,
    PutDeadLetter,
    RegisterSubscription,
    Subscription,
    SubscriptionAction,
    Subscriptions,
    SubscriptionStats,
)
from noetl.edge.declared import CURSOR, LIMIT, Declared, Parameter
from noetl.edge.errors import Unacceptable
from noetl.edge.reading import boolean, json, number, read
from noetl.ids import parse
from noetl.server.access.entry import caller_of
from noetl.server.access.listening import CONTROL, READ
from noetl.server.auditing.audit import audited
from noetl.server.routes.exchange import MOST_RESULT_BYTES, route
from noetl.server.subscriptions.ending import MOST_OUTCOMES, MOST_WAIT_MS
from noetl.server.subscriptions.lifecycle import STATES, STEPS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_STATES: Final = tuple(sorted(set(STATES.values())))
_TELL: Final = "event:write"
_UNKNOWN: Final = "unknown_subscription"
_OUTCOMES: Final = (
    Parameter("cursor", "Behind this one; `now`: what is yet to come."),
    Parameter("wait_ms", "How long to wait for the first.", "number", least=0, most=MOST_WAIT_MS),
    Parameter("limit", "How many at most.", "number", least=1, most=MOST_OUTCOMES),
)


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    every, one = "/api/subscriptions", "/api/subscriptions/{subscription_id}"
    letters = f"{one}/dead-letters"
    return [
        route(plane, "GET", every, _list, READ, Declared(
            about="Lists subscriptions, by path.", answer=Subscriptions, query=(
                Parameter("state", "Only those in this state.", words=_STATES),
                Parameter("path", "Only the one of this path."),
            ), codes=("bad_status",))),
        route(plane, "POST", f"{every}/register", _register, CONTROL, Declared(
            about="Makes a document of the catalog a subscription.", body=RegisterSubscription,
            answer=Subscription, audit="subscription.register",
            codes=(_UNKNOWN, "not_a_subscription", "listener_taken", "reserved_namespace"))),
        route(plane, "GET", one, _one, READ, Declared(
            about="Shows one subscription with its document.", answer=Subscription,
            codes=(_UNKNOWN,))),
        route(plane, "GET", f"{one}/stats", _stats, READ, Declared(
            about="Tells figures of one subscription.", answer=SubscriptionStats,
            codes=(_UNKNOWN,))),
        route(plane, "GET", f"{one}/outcomes", _outcomes, READ, Declared(
            about="Tells how runs of messages ended, in an order that never changes.",
            answer=Outcomes, query=_OUTCOMES, codes=(_UNKNOWN, "bad_cursor"))),
        route(plane, "GET", letters, _letters, READ, Declared(
            about="Lists messages that are not tried any more, oldest first.", answer=DeadLetters,
            query=(LIMIT, CURSOR, Parameter("include_item", "With the messages themselves, as far "
                                            "as the server keeps them.", "flag")),
            codes=(_UNKNOWN, "bad_cursor"))),
        route(plane, "POST", letters, _put_letter, _TELL, Declared(
            about="Keeps a message that a runtime can neither dispatch nor spool.",
            body=PutDeadLetter, answer=DeadLetter,
            codes=(_UNKNOWN, "not_found", "field_not_allowed"))),
        route(plane, "POST", f"{letters}/redrive", _redrive, CONTROL, Declared(
            about="Asks for dead letters to be tried again.", body=LettersWanted,
            answer=LettersRequested, audit="subscription.redrive",
            codes=(_UNKNOWN, "not_found"))),
        route(plane, "POST", f"{letters}/discard", _discard, CONTROL, Declared(
            about="Asks for dead letters to be dropped.", body=LettersWanted,
            answer=LettersRequested, audit="subscription.discard",
            codes=(_UNKNOWN, "not_found"))),
        route(plane, "POST", f"{one}/{{action}}", _act, CONTROL, Declared(
            about=f"Steers a subscription: {', '.join(STEPS)}.", body=SubscriptionAction,
            answer=Subscription, audit="subscription.steer",
            codes=(_UNKNOWN, "bad_transition"))),
    ]  # fmt: skip


async def _list(plane: Plane, request: Request) -> Response:
    asked = request.query_params
    state = asked.get("state")
    if state is not None and state not in _STATES:
        raise Unacceptable(f"`{state}` is not a state", code="bad_status", hint=", ".join(_STATES))
    caller = caller_of(request)
    return json(await plane.subscriptions.showing.listed(caller, state, asked.get("path")))


async def _register(plane: Plane, request: Request) -> Response:
    body = await read(request, RegisterSubscription)
    audited(request, body.path, reason=body.reason or None)
    return json(await plane.subscriptions.register(caller_of(request), body.path, body.reason))


async def _one(plane: Plane, request: Request) -> Response:
    return json(await plane.subscriptions.get(caller_of(request), _id(request)))


async def _stats(plane: Plane, request: Request) -> Response:
    return json(await plane.subscriptions.stats(caller_of(request), _id(request)))


async def _act(plane: Plane, request: Request) -> Response:
    body = await read(request, SubscriptionAction)
    action: str = request.path_params["action"]
    audited(request, _id(request), action=action, reason=body.reason or None)
    caller = caller_of(request)
    return json(await plane.subscriptions.act(caller, _id(request), action, body.reason))


async def _outcomes(plane: Plane, request: Request) -> Response:
    wait_ms = number(request, "wait_ms", 0, MOST_WAIT_MS)
    limit = number(request, "limit", MOST_OUTCOMES, MOST_OUTCOMES, 1)
    cursor = request.query_params.get("cursor", "")
    found = plane.endings.after(caller_of(request), _id(request), cursor, wait_ms, limit)
    return json(await found)


async def _letters(plane: Plane, request: Request) -> Response:
    found = plane.letters.page(
        caller_of(request),
        _id(request),
        number(request, "limit", 50, 200, 1),
        request.query_params.get("cursor"),
        with_items=boolean(request, "include_item"),
    )
    return json(await found)


async def _put_letter(plane: Plane, request: Request) -> Response:
    body = await read(request, PutDeadLetter, MOST_RESULT_BYTES)
    return json(await plane.letters.put(caller_of(request), _id(request), body))


async def _redrive(plane: Plane, request: Request) -> Response:
    body = await read(request, LettersWanted)
    audited(request, _id(request), count=len(body.refs) or None, all=body.all or None)
    return json(await plane.letters.redrive(caller_of(request), _id(request), body))


async def _discard(plane: Plane, request: Request) -> Response:
    body = await read(request, LettersWanted)
    audited(request, _id(request), count=len(body.refs) or None, all=body.all or None)
    return json(await plane.letters.discard(caller_of(request), _id(request), body))


def _id(request: Request) -> str:
    return parse(request.path_params["subscription_id"])
