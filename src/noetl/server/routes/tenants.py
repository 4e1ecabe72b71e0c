"""Tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.identity import NewTenant, Tenant, TenantPage
from noetl.edge.declared import CURSOR, LIMIT, Declared
from noetl.edge.reading import json, number, read
from noetl.server.access.entry import caller_of
from noetl.server.auditing.audit import audited
from noetl.server.routes.exchange import route
from noetl.server.routes.tokens import MADE, MOST

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

ADMIN: Final = "user:admin"


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    tenants = "/api/tenants"
    return [
        route(
            plane,
            "GET",
            tenants,
            _list_tenants,
            ADMIN,
            Declared(
                about="List tenants, for admins of the platform.",
                answer=TenantPage,
                query=(LIMIT, CURSOR),
            ),
        ),
        route(
            plane,
            "POST",
            tenants,
            _add_tenant,
            ADMIN,
            Declared(
                about="Make a tenant and its first admin, for admins of the platform.",
                body=NewTenant,
                answer=Tenant,
                status=MADE,
                audit="tenant.created",
                codes=("in_use",),
            ),
        ),
    ]


async def _list_tenants(plane: Plane, request: Request) -> Response:
    limit, cursor = number(request, "limit", 50, MOST, 1), request.query_params.get("cursor")
    return json(await plane.desk.tenants.page(caller_of(request), limit=limit, cursor=cursor))


async def _add_tenant(plane: Plane, request: Request) -> Response:
    body = await read(request, NewTenant)
    audited(request, body.tenant_id)
    return json(await plane.desk.tenants.add(caller_of(request), body), MADE)
