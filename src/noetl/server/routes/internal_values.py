"""What the platform's own processes leave here: container ends, objects, results of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.callbacks import (
    Collect,
    Collected,
    ContainerCallback,
    ContainerTaken,
    ObjectKept,
    RequestResultKept,
    SinkMarked,
    SinkState,
)
from noetl.edge.declared import ANY_TYPE, PARTS, Declared, Parameter
from noetl.edge.errors import Unacceptable
from noetl.edge.reading import json, parts_of, read
from noetl.ids import parse
from noetl.server.auditing.audit import audited
from noetl.server.routes.exchange import MOST_RESULT_BYTES, route
from noetl.server.routes.ranges import answer_with
from noetl.server.values.spooled import Spooled
from noetl.server.values.stored import Resolved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.blobs.base import Stat
    from noetl.server.plane import Plane
    from noetl.server.values.stored import Bytes

    _Answer: TypeAlias = Callable[[Plane, Request], Awaitable[Response]]

MOST_RUNS: Final = 1_000
_UNKNOWN_TYPE: Final = "application/octet-stream"
_PREFIX: Final = "/api/internal"
_CONTAINER = Declared(
    about="A container job of a step has ended.",
    body=ContainerCallback,
    answer=ContainerTaken,
    status=202,
    codes=("invalid_id", "bad_time", "validation_failed"),
)
_PUT_OBJECT = Declared(
    about="Keep bytes under a key, once.",
    takes=ANY_TYPE,
    answer=ObjectKept,
    status=201,
    also={200: ObjectKept},
    codes=("digest_mismatch", "body_too_large", "validation_failed"),
)
_GET_OBJECT = Declared(
    about="The bytes of a key.",
    media_type=ANY_TYPE,
    also=PARTS,
    codes=("not_found", "validation_failed"),
)
_PUT_REQUEST = Declared(
    about="Keep the result of a client's request; the first one counts.",
    takes=ANY_TYPE,
    answer=RequestResultKept,
    services=("gateway",),
    query=(Parameter("execution_id", "The run that gave it.", "id"),),
    codes=("digest_mismatch", "body_too_large", "validation_failed"),
)
_GET_REQUEST = Declared(
    about="The result of a client's request.",
    services=("gateway",),
    media_type=ANY_TYPE,
    also=PARTS,
    codes=("not_found", "validation_failed"),
)
_COLLECT = Declared(
    about="Remove objects of runs that there are not.",
    body=Collect,
    answer=Collected,
    audit="result.collect",
)
_SINK = {
    "mark": ("Say that runs hold data which no sink has taken; retention keeps them.", True),
    "confirm": ("Say that a sink has taken the data of runs.", False),
    "release": ("Let go of runs whose data no sink will take.", False),
}


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""

    def internal(method: str, path: str, answer: _Answer, declared: Declared) -> Route:
        return route(plane, method, f"{_PREFIX}/{path}", answer, "internal", declared)

    return [
        internal("POST", "container-callback/{execution_id}/{step:path}", _container, _CONTAINER),
        internal("PUT", "objects/{key:path}", _put_object, _PUT_OBJECT),
        internal("GET", "objects/{key:path}", _get_object, _GET_OBJECT),
        internal("PUT", "requests/{request_id}/result", _put_request, _PUT_REQUEST),
        internal("GET", "requests/{request_id}/result", _get_request, _GET_REQUEST),
        internal("POST", "result-tier/gc", _collect, _COLLECT),
        *(internal("POST", f"sink-state/{word}", _marking(word), _sink(word)) for word in _SINK),
    ]


async def _container(plane: Plane, request: Request) -> Response:
    execution_id = parse(request.path_params["execution_id"])
    body = await read(request, ContainerCallback)
    step, spans = request.path_params["step"], plane.spans
    began = 0.0 if spans is None else spans.tracer.monotonic()
    taken = await plane.containers.take(execution_id, step, body)
    if spans is not None:
        about = {"step": step, "state": body.state, "outcome": taken.status}
        spans.note("container.callback", execution_id, began, about)
    return json(taken, 202)


async def _put_object(plane: Plane, request: Request) -> Response:
    media_type = request.headers.get("content-type", _UNKNOWN_TYPE)
    async with Spooled() as spooled:
        await spooled.take(parts_of(request, MOST_RESULT_BYTES))
        key = request.path_params["key"]
        kept, is_new = await plane.deposits.put_object(key, spooled, media_type)
    return json(kept, 201 if is_new else 200, {"ETag": f'"{kept.sha256}"'})


async def _get_object(plane: Plane, request: Request) -> Response:
    return await _found(request, *await plane.deposits.object(request.path_params["key"]))


async def _put_request(plane: Plane, request: Request) -> Response:
    given = request.query_params.get("execution_id")
    async with Spooled() as spooled:
        await spooled.take(parts_of(request, MOST_RESULT_BYTES))
        kept = await plane.deposits.put_result(
            request.path_params["request_id"],
            spooled,
            request.headers.get("content-type", "application/json"),
            None if given is None else parse(given),
        )
    return json(kept, headers={"ETag": f'"{kept.sha256}"'})


async def _get_request(plane: Plane, request: Request) -> Response:
    return await _found(request, *await plane.deposits.result(request.path_params["request_id"]))


async def _found(request: Request, stat: Stat, read_from: Bytes) -> Response:
    found = Resolved(
        sha256=stat.sha256, media_type=stat.media_type, size=stat.size, bytes=read_from
    )
    return await answer_with(request, found)


async def _collect(plane: Plane, request: Request) -> Response:
    body = await read(request, Collect)
    collected = await plane.inventory.collect(body)
    audited(request, "results", dry_run=body.dry_run, removed=collected.removed)
    return json(collected)


def _sink(word: str) -> Declared:
    about, _ = _SINK[word]
    return Declared(
        about=about, body=SinkState, answer=SinkMarked, audit=f"sink.{word}", codes=("invalid_id",)
    )


def _marking(word: str) -> _Answer:
    async def mark(plane: Plane, request: Request) -> Response:
        body = await read(request, SinkState)
        given = [*body.execution_ids, *([] if body.execution_id is None else [body.execution_id])]
        if not 1 <= len(given) <= MOST_RUNS:
            raise Unacceptable(f"name 1..{MOST_RUNS} runs")
        _, is_unexported = _SINK[word]
        runs = [parse(one) for one in given]
        known = await plane.parts.store.exports.mark(runs, is_unexported=is_unexported)
        audited(request, ",".join(known[:100]), count=len(known))
        return json(SinkMarked(execution_ids=tuple(known), unexported=is_unexported))

    return mark
