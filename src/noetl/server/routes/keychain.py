"""Values that the keychain keeps for documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast, get_args

from noetl.api.credentials import (
    KeychainKept,
    KeychainPage,
    KeychainPut,
    KeychainRemoved,
    KeychainShown,
    Scope,
)
from noetl.edge.declared import CURSOR, LIMIT, Declared, Parameter
from noetl.edge.errors import Unacceptable
from noetl.edge.reading import boolean, json, number, read
from noetl.ids import parse
from noetl.server.access.entry import caller_of, must_hold
from noetl.server.auditing.audit import audited
from noetl.server.routes.exchange import route
from noetl.server.wallet.keychain.values import Spot

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_SCOPES: Final = get_args(Scope)
_WHERE: Final = (
    Parameter("scope_type", "Who shares it (`global`).", words=_SCOPES),
    Parameter("execution_id", "Of which run it is, unless it is global.", "id"),
)
_UNKNOWN: Final = ("unknown_path", "unknown_execution")


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    one, every = "/api/keychain/{catalog_id}/{name:path}", "/api/keychain/catalog/{catalog_id}"
    reads, writes = "keychain:read", "keychain:write"
    return [
        route(plane, "GET", every, _page, reads, Declared(
            about="Lists what is kept for a document, without what is in it.",
            answer=KeychainPage, query=(LIMIT, CURSOR), audit="secret.keychain.list",
            codes=("unknown_path",))),
        route(plane, "GET", one, _get, reads, Declared(
            about="Tells whether a value is kept, and until when.", answer=KeychainShown,
            audit="secret.keychain.read", codes=(*_UNKNOWN, "kek_unavailable", "record_damaged"),
            query=(*_WHERE, Parameter(
                "include_data", "The value too; asks for `credential:reveal`.", "flag")))),
        route(plane, "POST", one, _put, writes, Declared(
            about="Keeps a value of a keychain entry until it expires.", body=KeychainPut,
            answer=KeychainKept, audit="secret.keychain.put",
            codes=(*_UNKNOWN, "kek_unavailable", "bad_time"))),
        route(plane, "DELETE", one, _delete, writes, Declared(
            about="Forgets a value of a keychain entry.", answer=KeychainRemoved, query=_WHERE,
            audit="secret.keychain.delete", codes=_UNKNOWN)),
    ]  # fmt: skip


async def _page(plane: Plane, request: Request) -> Response:
    catalog_id = parse(request.path_params["catalog_id"])
    audited(request, catalog_id)
    limit, cursor = number(request, "limit", 50, 200, 1), request.query_params.get("cursor")
    return json(await plane.secrets.keychain.page(caller_of(request), catalog_id, limit, cursor))


async def _get(plane: Plane, request: Request) -> Response:
    spot, caller = _asked(request), caller_of(request)
    reveals = boolean(request, "include_data")
    audited(request, spot.name, catalog_id=spot.catalog_id, include_data=reveals or None)
    if reveals:
        must_hold(caller, "credential:reveal")
    found = await plane.secrets.keychain.shown(caller, spot, reveals=reveals)
    if reveals and not plane.parts.is_open:
        await plane.audits.did(request, "secret.reveal")
    return json(found, headers={"Cache-Control": "no-store"})


async def _put(plane: Plane, request: Request) -> Response:
    body = await read(request, KeychainPut)
    run = None if body.execution_id is None else parse(body.execution_id)
    spot = _spot(request, body.scope_type, run)
    audited(request, spot.name, catalog_id=spot.catalog_id, execution_id=run)
    return json(await plane.secrets.keychain.put(caller_of(request), spot, body))


async def _delete(plane: Plane, request: Request) -> Response:
    spot = _asked(request)
    audited(request, spot.name, catalog_id=spot.catalog_id, execution_id=spot.execution_id)
    return json(await plane.secrets.keychain.delete(caller_of(request), spot))


def _asked(request: Request) -> Spot:
    """Where a value lies, by the path and the query."""
    asked = request.query_params
    word = asked.get("scope_type", "global")
    if word not in _SCOPES:
        raise Unacceptable(f"`scope_type` is one of {', '.join(_SCOPES)}")
    run = parse(asked["execution_id"]) if "execution_id" in asked else None
    return _spot(request, cast("Scope", word), run)


def _spot(request: Request, scope: Scope, run: str | None) -> Spot:
    if (scope == "global") != (run is None):
        said = "is not of one run" if scope == "global" else "needs `execution_id`"
        raise Unacceptable(f"a {scope} value {said}")
    return Spot(
        catalog_id=parse(request.path_params["catalog_id"]),
        name=request.path_params["name"],
        scope=scope,
        execution_id=run,
    )
