"""Values over the inline limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.results import INLINE_BYTES, PutResult, ResultPage, ResultsDeleted, Stored
from noetl.blobs.refs import PREVIEW_BYTES
from noetl.edge.declared import ANY_TYPE, CURSOR, LIMIT, PARTS, Declared, Parameter
from noetl.edge.errors import BadReference, Unacceptable
from noetl.edge.reading import JSON, body_of, json, number, parts_of, read
from noetl.server.access.caller import caller_of
from noetl.server.access.owning import owned
from noetl.server.auditing.audit import audited
from noetl.server.routes.exchange import MOST_RESULT_BYTES, route
from noetl.server.routes.ranges import answer_with
from noetl.server.values.stored import Wish

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.dsl.views import Reference
    from noetl.server.plane import Plane
    from noetl.store.stored import ResultRow

_SCOPES: Final = ("step", "execution", "workflow", "permanent")
_STORES: Final = ("auto", "row", "object")
_PACKINGS: Final = ("none", "gzip", "zstd")
_CONTRACT: Final = frozenset({"kv", "db", "object"})
_REF: Final = Parameter("ref", "The reference, `noetl://…`.", is_required=True)
_PUT = Declared(
    about="Keep a value of a run: in an object with its name, or as it is with `?name=`.",
    body=PutResult,
    takes=ANY_TYPE,
    answer=Stored,
    status=201,
    query=(
        Parameter("name", "The name of a raw body."),
        Parameter("step", "The step that a raw body is of, and its name when it has no other."),
        Parameter("scope", "With whose end a raw body is deleted.", words=_SCOPES),
        Parameter("ttl", "Seconds after which a raw body is expired.", "number", least=1),
        Parameter("preview", "How many bytes of it are shown with its reference.", "number"),
        Parameter("store", "Where a raw body lies, whatever its size.", words=_STORES),
        Parameter("compression", "How an object is packed.", words=_PACKINGS),
        Parameter("id", "The last part of a raw body's reference; its digest without one."),
    ),
    codes=(
        "unknown_execution",
        "bad_ref",
        "body_too_large",
        "bad_media_type",
        "no_object_store",
    ),
)
_RESOLVE = Declared(
    about="The bytes of a reference; a manifest's parts come as one stream.",
    media_type=ANY_TYPE,
    also=PARTS,
    query=(_REF,),
    codes=("bad_ref", "result_gone", "unknown_execution", "expired"),
)
_LIST = Declared(
    about="What is known of the stored values of a run.",
    answer=ResultPage,
    query=(LIMIT, CURSOR),
    codes=("unknown_execution", "bad_cursor"),
)
_DELETE = Declared(
    about="Delete one stored value of a run, those of a name, or all.",
    answer=ResultsDeleted,
    query=(
        Parameter("ref", "The one value to delete."),
        Parameter("name", "Delete the values of this name."),
    ),
    audit="result.delete",
    codes=("unknown_execution", "bad_ref", "result_gone"),
)
_encode: Final = msgspec.json.Encoder().encode


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    return [
        route(plane, "GET", "/api/result/resolve", _get, "result:read", _RESOLVE),
        route(plane, "GET", "/api/result", _get, "result:read", _RESOLVE),
        route(plane, "PUT", "/api/result/{execution_id}", _put, "result:write", _PUT),
        route(plane, "DELETE", "/api/result/{execution_id}", _delete, "result:write", _DELETE),
        route(plane, "GET", "/api/result/{execution_id}/list", _listed, "result:read", _LIST),
    ]


async def _put(plane: Plane, request: Request) -> Response:
    """A raw body under a name of the query, or a value with its name in an object."""
    execution_id = await owned(plane, request, "result:write")
    wish = _wish(request)
    caller, values = caller_of(request), plane.values
    if wish is None:
        body = await read(request, PutResult, MOST_RESULT_BYTES)
        wish = Wish(
            name=body.name,
            media_type=body.content_type,
            scope=body.scope,
            source_step=body.source_step or None,
            ttl_s=body.ttl,
        )
        made, row = await values.put(caller, execution_id, wish, _encode(body.data))
    elif "json" in wish.media_type.lower() and not wish.id:  # its facts are told with the reference
        data = await body_of(request, MOST_RESULT_BYTES)
        made, row = await values.put(caller, execution_id, wish, data)
    else:
        parts = parts_of(request, values.most_bytes(wish), is_long=True)
        made, row = await values.put_parts(execution_id, wish, parts)
    return json(_stored(plane, made, row), 201)


def _wish(request: Request) -> Wish | None:
    """How a raw body is to be kept; none when the body is an object that says so itself."""
    asked = request.query_params
    step, name = asked.get("step"), asked.get("name") or asked.get("step")
    scope = _word(request, "scope", _SCOPES, "execution")
    if name is None:
        return None
    ttl = number(request, "ttl", 0, (1 << 53) - 1)
    return Wish(
        name=name,
        media_type=request.headers.get("content-type", JSON),
        scope=scope,
        source_step=step,
        ttl_s=ttl if "ttl" in asked else None,
        id=asked.get("id", ""),
        preview_bytes=number(request, "preview", PREVIEW_BYTES, INLINE_BYTES),
        tier=_word(request, "store", _STORES, "auto"),
        packing=_word(request, "compression", _PACKINGS, "none"),
    )


def _word(request: Request, name: str, words: tuple[str, ...], default: str) -> Any:  # noqa: ANN401 - one of the words, which the types spell out
    word = request.query_params.get(name, default)
    if word not in words:
        raise Unacceptable(f"`{name}` is none of {', '.join(words)}")
    return word


def _stored(plane: Plane, made: Reference, row: ResultRow) -> Stored:
    return Stored(
        reference=msgspec.to_builtins(made),
        ref=made.ref,
        store=made.store if made.store in _CONTRACT else plane.values.store_of(row.size),
        scope=row.scope,
        size=row.size,
        sha256=row.sha256,
        expires_at=row.expires_at,
    )


async def _get(plane: Plane, request: Request) -> Response:
    ref = request.query_params.get("ref")
    if not ref:
        raise BadReference("name `ref`")
    return await answer_with(request, await plane.values.resolved(caller_of(request), ref))


async def _listed(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, "result:read")
    await plane.owners.of(execution_id)
    limit = number(request, "limit", 50, 200, 1)
    cursor = request.query_params.get("cursor")
    return json(await plane.inventory.page(execution_id, limit, cursor))


async def _delete(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, "result:write")
    await plane.owners.of(execution_id)
    asked = request.query_params
    audited(request, execution_id, **dict(asked))
    deleted = await plane.inventory.delete(execution_id, asked.get("ref"), asked.get("name"))
    return json(deleted)
