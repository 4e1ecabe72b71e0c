"""Requests, for whoever asks for them instead of waiting to be told."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import StreamingResponse

from noetl.api.gateway import (
    Accepted,
    CancelRequest,
    RequestCancelled,
    RequestDocument,
    RequestPage,
    Wish,
)
from noetl.edge.declared import ANY_TYPE, Parameter
from noetl.edge.reading import json, number, read
from noetl.gateway.declaring import SESSION, Declared, person_of, route
from noetl.gateway.rpc import MOST_BYTES

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from noetl.gateway.gate import Gate

MOST_WAIT_S: Final = 30
_ACCEPTED: Final = 202
_LISTED: Final = 50
_MOST_LISTED: Final = 200


def routes(gate: Gate) -> list[BaseRoute]:
    """Every route of this file."""
    of = partial(route, gate)
    one = "/api/requests/{request_id}"
    listed = Declared(
        about="Lists the newest requests of the caller.",
        answer=RequestPage,
        query=(Parameter("limit", "How many at most.", "number", least=1, most=_MOST_LISTED),),
        codes=("upstream_unavailable",),
    )
    made = Declared(
        about="Runs a playbook; its end is told, and can be asked for.",
        body=Wish,
        answer=Accepted,
        status=_ACCEPTED,
        codes=(
            "unknown_path", "client_not_yours", "dedup_conflict", "rate_limited",
            "upstream_unavailable",
        ),
    )  # fmt: skip
    told = Declared(
        about="Tells a request, when it has ended or after a while.",
        answer=RequestDocument,
        query=(
            Parameter("wait", "Seconds to wait for its end.", "number", least=0, most=MOST_WAIT_S),
        ),
        codes=("unknown_request", "upstream_unreachable"),
    )
    whole = Declared(
        about="Tells the whole result of a request.",
        media_type=ANY_TYPE,
        codes=("unknown_request", "not_found", "upstream_unreachable"),
    )
    cancel = Declared(
        about="Ends the run of a request.",
        body=CancelRequest,
        answer=RequestCancelled,
        codes=("unknown_request", "already_terminal", "upstream_unreachable"),
    )
    return [
        of("GET", "/api/requests", _listed, SESSION, listed),
        of("POST", "/api/requests", _made, SESSION, made),
        of("GET", one, _document, SESSION, told),
        of("GET", f"{one}/result", _result, SESSION, whole),
        of("POST", f"{one}/cancel", _cancel, SESSION, cancel),
    ]


async def _listed(gate: Gate, request: Request) -> Response:
    limit = number(request, "limit", _LISTED, _MOST_LISTED, 1)
    found = await gate.requests.listed(person_of(request), limit)
    return json(RequestPage(items=tuple(found)))


async def _made(gate: Gate, request: Request) -> Response:
    wish, key = await read(request, Wish, MOST_BYTES), request.headers.get("idempotency-key")
    if key is not None and wish.idempotency_key is None:
        wish = msgspec.structs.replace(wish, idempotency_key=key)
    person = person_of(request)
    gate.limits.take("execute", person.user_id)
    accepted = await gate.requests.start(person, wish)
    there = {"Location": f"/api/requests/{accepted.request_id}"}
    return json(accepted, _ACCEPTED, there)


async def _document(gate: Gate, request: Request) -> Response:
    wait_s = number(request, "wait", 0, MOST_WAIT_S)
    name = request.path_params["request_id"]
    return json(await gate.requests.document(person_of(request), name, float(wait_s)))


async def _result(gate: Gate, request: Request) -> Response:
    body, media_type = await gate.requests.result(
        person_of(request), request.path_params["request_id"]
    )
    return StreamingResponse(body, media_type=media_type, headers={"Cache-Control": "no-store"})


async def _cancel(gate: Gate, request: Request) -> Response:
    body = await read(request, CancelRequest)
    execution_id, status = await gate.requests.cancel(
        person_of(request),
        request_id=request.path_params["request_id"],
        cascade=body.cascade,
        reason=body.reason,
    )
    return json(RequestCancelled(execution_id=execution_id, status=status))
