"""Accounts and roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from starlette.responses import Response

from noetl.api.identity import (
    Account,
    AccountChange,
    AccountPage,
    NewAccount,
    NewRole,
    Role,
    RoleChange,
    RolePage,
    RolesWanted,
)
from noetl.edge.declared import CURSOR, LIMIT, Declared, Parameter
from noetl.edge.errors import Unacceptable
from noetl.edge.reading import boolean, json, number, read
from noetl.server.access.entry import caller_of
from noetl.server.auditing.audit import audited
from noetl.server.routes.exchange import route
from noetl.server.routes.tokens import GONE, MADE, MOST
from noetl.store.identity import AccountListing

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from noetl.server.plane import Plane
    from noetl.store.identity import Kind

ADMIN: Final = "user:admin"
_KINDS: Final = ("user", "service")


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    return [*_users(plane), *_roles(plane)]


# ------------------------------------------------------------------------------- users


def _users(plane: Plane) -> list[Route]:
    users, one = "/api/users", "/api/users/{account_id}"
    return [
        route(
            plane,
            "GET",
            users,
            _list_users,
            ADMIN,
            Declared(
                about="List the accounts of the caller's tenant.",
                answer=AccountPage,
                query=(
                    Parameter("q", "A part of the subject, the e-mail or the display name."),
                    Parameter("kind", "Persons or services.", words=_KINDS),
                    Parameter("active", "Those that are active, or those that are not.", "flag"),
                    Parameter("role", "Those that have a role."),
                    LIMIT,
                    CURSOR,
                ),
            ),
        ),
        route(
            plane,
            "POST",
            users,
            _add_user,
            ADMIN,
            Declared(
                about="Make an account.",
                body=NewAccount,
                answer=Account,
                status=MADE,
                audit="user.created",
                codes=("in_use",),
            ),
        ),
        route(
            plane,
            "GET",
            one,
            _get_user,
            ADMIN,
            Declared(about="Read an account.", answer=Account, codes=("not_found",)),
        ),
        route(
            plane,
            "PATCH",
            one,
            _change_user,
            ADMIN,
            Declared(
                about="Change an account; who is shut out, or has a new password, is signed out.",
                body=AccountChange,
                answer=Account,
                audit="user.changed",
                codes=("not_found", "in_use"),
            ),
        ),
        route(
            plane,
            "DELETE",
            one,
            _remove_user,
            ADMIN,
            Declared(
                about="Forget an account with its tokens and sessions.",
                status=GONE,
                audit="user.removed",
                codes=("not_found", "in_use"),
            ),
        ),
        route(
            plane,
            "PUT",
            f"{one}/roles",
            _give_roles,
            ADMIN,
            Declared(
                about="Give an account exactly these roles.",
                body=RolesWanted,
                answer=Account,
                audit="user.roles_changed",
                codes=("not_found", "in_use"),
            ),
        ),
    ]


async def _list_users(plane: Plane, request: Request) -> Response:
    query = request.query_params
    kind = query.get("kind")
    if kind is not None and kind not in _KINDS:
        raise Unacceptable("`kind` is neither `user` nor `service`")
    listing = AccountListing(
        tenant_id=caller_of(request).tenant_id,
        limit=number(request, "limit", 50, MOST, 1),
        q=query.get("q"),
        kind=cast("Kind | None", kind),
        active=boolean(request, "active") if "active" in query else None,
        role=query.get("role"),
    )
    return json(await plane.desk.accounts.page(listing, query.get("cursor")))


async def _add_user(plane: Plane, request: Request) -> Response:
    body = await read(request, NewAccount)
    audited(request, body.subject, roles=body.roles)
    made = await plane.desk.accounts.add(caller_of(request).tenant_id, body)
    audited(request, made.subject, account_id=made.account_id, roles=made.roles)
    return json(made, MADE)


async def _get_user(plane: Plane, request: Request) -> Response:
    tenant_id = caller_of(request).tenant_id
    return json(await plane.desk.accounts.get(tenant_id, request.path_params["account_id"]))


async def _change_user(plane: Plane, request: Request) -> Response:
    account_id = request.path_params["account_id"]
    audited(request, account_id)
    body = await read(request, AccountChange)
    changed = await plane.desk.accounts.change(caller_of(request).tenant_id, account_id, body)
    audited(request, changed.subject, account_id=changed.account_id, active=changed.active)
    return json(changed)


async def _remove_user(plane: Plane, request: Request) -> Response:
    account_id = request.path_params["account_id"]
    audited(request, account_id)
    gone = await plane.desk.accounts.remove(caller_of(request).tenant_id, account_id)
    audited(request, gone.subject, account_id=gone.account_id)
    return Response(status_code=GONE)


async def _give_roles(plane: Plane, request: Request) -> Response:
    account_id = request.path_params["account_id"]
    audited(request, account_id)
    body = await read(request, RolesWanted)
    changed = await plane.desk.accounts.give(caller_of(request).tenant_id, account_id, body.roles)
    audited(request, changed.subject, account_id=changed.account_id, roles=changed.roles)
    return json(changed)


# ------------------------------------------------------------------------------- roles


def _roles(plane: Plane) -> list[Route]:
    roles, one = "/api/roles", "/api/roles/{name}"
    return [
        route(
            plane,
            "GET",
            roles,
            _list_roles,
            ADMIN,
            Declared(about="List the built-in roles and those of the tenant.", answer=RolePage),
        ),
        route(
            plane,
            "POST",
            roles,
            _add_role,
            ADMIN,
            Declared(
                about="Make a role.",
                body=NewRole,
                answer=Role,
                status=MADE,
                audit="role.created",
                codes=("in_use",),
            ),
        ),
        route(
            plane,
            "PUT",
            one,
            _change_role,
            ADMIN,
            Declared(
                about="Make a role give exactly this.",
                body=RoleChange,
                answer=Role,
                audit="role.changed",
                codes=("not_found", "in_use"),
            ),
        ),
        route(
            plane,
            "DELETE",
            one,
            _remove_role,
            ADMIN,
            Declared(
                about="Forget a role that nobody has.",
                status=GONE,
                audit="role.removed",
                codes=("not_found", "in_use"),
            ),
        ),
    ]


async def _list_roles(plane: Plane, request: Request) -> Response:
    return json(await plane.desk.roles.page(caller_of(request).tenant_id))


async def _add_role(plane: Plane, request: Request) -> Response:
    body = await read(request, NewRole)
    audited(request, body.name, permissions=body.permissions, grants=len(body.grants))
    return json(await plane.desk.roles.add(caller_of(request).tenant_id, body), MADE)


async def _change_role(plane: Plane, request: Request) -> Response:
    name = request.path_params["name"]
    audited(request, name)
    body = await read(request, RoleChange)
    audited(request, name, permissions=body.permissions, grants=len(body.grants))
    return json(await plane.desk.roles.change(caller_of(request).tenant_id, name, body))


async def _remove_role(plane: Plane, request: Request) -> Response:
    name = request.path_params["name"]
    audited(request, name)
    await plane.desk.roles.remove(caller_of(request).tenant_id, name)
    return Response(status_code=GONE)
