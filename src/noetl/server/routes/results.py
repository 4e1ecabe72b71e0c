"""Values over the inline limit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response

from noetl.api.results import PutResult, Stored
from noetl.ids import parse
from noetl.server.errors import BadReference
from noetl.server.routes.exchange import (
    JSON,
    MOST_RESULT_BYTES,
    body_of,
    json,
    known,
    read,
    route,
)

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from noetl.dsl.views import Reference
    from noetl.server.plane import Plane

_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_encode: Final = msgspec.json.Encoder().encode


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    return [
        route(plane, "PUT", "/api/result/{execution_id}", _put, "result:write"),
        route(plane, "GET", "/api/result/resolve", _get, "result:read"),
        route(plane, "GET", "/api/result", _get, "result:read"),
    ]


async def _put(plane: Plane, request: Request) -> Response:
    """A raw body under `?step=`, or a value with its name in an object."""
    known(request, "step")
    execution_id = parse(request.path_params["execution_id"])
    await plane.details.row(execution_id)
    step = request.query_params.get("step")
    if step is None:
        body = await read(request, PutResult, MOST_RESULT_BYTES)
        made = await plane.large.stored(
            execution_id, body.name, _encode(body.data), body.content_type
        )
        return json(_stored(made, body.scope), 201)
    data = await body_of(request, MOST_RESULT_BYTES)
    media_type = request.headers.get("content-type", JSON)
    return json(_stored(await plane.large.stored(execution_id, step, data, media_type)), 201)


def _stored(made: Reference, scope: str = "execution") -> Stored:
    return Stored(
        reference=msgspec.to_builtins(made),
        ref=made.ref,
        store=made.store,
        scope=scope,
        size=made.size or 0,
        sha256=made.sha256,
    )


async def _get(plane: Plane, request: Request) -> Response:
    known(request, "ref")
    ref = request.query_params.get("ref")
    if not ref:
        raise BadReference("name `ref`")
    stat = await plane.large.stat(ref)
    tag = f'"{stat.sha256}"'
    headers = {"ETag": tag, "Accept-Ranges": "bytes"}
    if request.headers.get("if-none-match") in {tag, "*"}:
        return Response(status_code=304, headers=headers)
    data = await plane.large.read(ref)
    part = _part(request.headers.get("range"), len(data))
    if part is None:
        return Response(data, media_type=stat.media_type, headers=headers)
    first, last = part
    if first > last:
        headers["Content-Range"] = f"bytes */{len(data)}"
        return Response(status_code=416, headers=headers)
    headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
    return Response(
        data[first : last + 1], status_code=206, media_type=stat.media_type, headers=headers
    )


def _part(asked: str | None, size: int) -> tuple[int, int] | None:
    """First and last byte of a range; none when the whole is wanted."""
    found = None if asked is None else _RANGE.fullmatch(asked)
    if found is None or found[0] == "bytes=-":
        return None
    if not found[1]:
        return max(0, size - int(found[2])), size - 1
    last = int(found[2]) if found[2] else size - 1
    return int(found[1]), min(last, size - 1)
