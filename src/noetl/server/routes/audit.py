"""Reading the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.audit import AuditPage, AuditVerified
from noetl.edge.declared import CURSOR, LIMIT, Declared, Parameter
from noetl.edge.reading import json, moment, number
from noetl.server.access.entry import caller_of
from noetl.server.routes.exchange import route
from noetl.store.audit import AuditListing

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_LISTED: Final = 50
_MOST_LISTED: Final = 200


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    listed = Declared(
        about="Lists what was done and refused, newest first.",
        answer=AuditPage,
        query=(
            Parameter("actor", "The account."),
            Parameter("action", "What was done; ending in `*`, a prefix."),
            Parameter("resource", "To what; ending in `*`, a prefix."),
            Parameter("outcome", "`ok`, or the code of a problem."),
            Parameter("from", "At or after.", "time"),
            Parameter("to", "Before.", "time"),
            LIMIT,
            CURSOR,
        ),
    )
    verified = Declared(
        about="Follows the chain of all rows, and names the first one that does not fit.",
        answer=AuditVerified,
    )
    return [
        route(plane, "GET", "/api/audit", _list, "audit:read", listed),
        route(plane, "GET", "/api/audit/verify", _verify, "audit:read", verified),
    ]


async def _list(plane: Plane, request: Request) -> Response:
    asked = request.query_params
    listing = AuditListing(
        tenant_id=caller_of(request).tenant_id,
        limit=number(request, "limit", _LISTED, _MOST_LISTED, 1),
        actor=asked.get("actor"),
        action=asked.get("action"),
        resource=asked.get("resource"),
        outcome=asked.get("outcome"),
        since=moment(request, "from"),
        until=moment(request, "to"),
    )
    return json(await plane.chain.page(listing, asked.get("cursor")))


async def _verify(plane: Plane, request: Request) -> Response:  # noqa: ARG001 - as every route
    return json(await plane.chain.verify())
