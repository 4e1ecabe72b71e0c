"""Signing in and out, and who a caller is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from noetl.api.identity import (
    Allowed,
    Login,
    PlaybookAccess,
    Refreshed,
    SessionLook,
    SessionPage,
    SessionRevoked,
    SessionToken,
    SignedIn,
    Validated,
    WhoAmI,
)
from noetl.edge.declared import Declared
from noetl.edge.errors import RateLimited
from noetl.edge.reading import json, read
from noetl.server.access.entry import caller_of
from noetl.server.access.permissions import ANYBODY
from noetl.server.auditing.audit import audited, audited_as, audited_for
from noetl.server.routes.exchange import route
from noetl.server.routes.tokens import GONE, OF_ACCOUNT, SELF, UNKEPT

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from noetl.server.plane import Plane

GATEWAY: Final = "auth:session"
_FAILED: Final = "auth.login.failed"


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    end = Declared(
        about="End a session.", body=SessionToken, answer=SessionRevoked, audit="auth.logout"
    )
    return [
        route(
            plane,
            "POST",
            "/api/auth/login",
            _login,
            GATEWAY,
            Declared(
                about="Begin a session, by a password or for one whom the gateway has checked.",
                body=Login,
                answer=SignedIn,
                audit=_FAILED,
                codes=("bad_credentials", "rate_limited", "in_use", "not_found"),
            ),
        ),
        route(
            plane,
            "POST",
            "/api/auth/session/refresh",
            _refresh,
            GATEWAY,
            Declared(
                about="Give a session another token; the one before lasts a minute longer.",
                body=SessionToken,
                answer=Refreshed,
                audit="auth.session.refreshed",
            ),
        ),
        route(plane, "POST", "/api/auth/session/revoke", _end, GATEWAY, end),
        route(plane, "POST", "/api/auth/logout", _end, GATEWAY, end),
        route(
            plane,
            "POST",
            "/api/auth/session/validate",
            _validate,
            GATEWAY,
            Declared(
                about="Tell whether a session or a token lasts, and whose it is.",
                body=SessionToken,
                answer=Validated,
            ),
        ),
        route(
            plane,
            "POST",
            "/api/auth/session/look",
            _look,
            GATEWAY,
            Declared(
                about="Tell whether a session lasts by its id, and note a use of it if it is one.",
                body=SessionLook,
                answer=Validated,
            ),
        ),
        route(
            plane,
            "POST",
            "/api/auth/check-playbook-access",
            _check,
            GATEWAY,
            Declared(
                about="Tell whether a session opens a playbook.",
                body=PlaybookAccess,
                answer=Allowed,
            ),
        ),
        route(
            plane,
            "GET",
            "/api/auth/whoami",
            _who,
            ANYBODY,
            Declared(about="Tell the caller who it is, and what it may do.", answer=WhoAmI),
        ),
        route(
            plane,
            "GET",
            "/api/auth/sessions",
            _list,
            SELF,
            Declared(
                about="List one's own sessions, or those of another account.",
                answer=SessionPage,
                query=(OF_ACCOUNT,),
                codes=("not_found",),
            ),
        ),
        route(
            plane,
            "DELETE",
            "/api/auth/sessions/{session_id}",
            _revoke,
            SELF,
            Declared(
                about="End a session by its id.",
                status=GONE,
                audit="auth.session.revoked",
                codes=("not_found",),
            ),
        ),
    ]


async def _login(plane: Plane, request: Request) -> Response:
    body = await read(request, Login)
    address = body.client_ip or ""
    audited_for(request, address=address)
    if body.identity is not None:
        audited(request, f"{body.identity.issuer}|{body.identity.subject}", tenant=body.tenant)
    try:
        made = await plane.desk.sign_in.login(
            body, lambda subject: audited(request, subject, tenant=body.tenant)
        )
    except RateLimited:
        audited_as(request, "auth.login.locked")
        raise
    user = made.user
    audited_as(request, "auth.login.succeeded")
    audited_for(request, actor=user.subject, tenant=user.tenant, address=address)
    audited(request, user.subject, session_id=made.session_id, tenant=user.tenant)
    return json(made, headers=UNKEPT)


async def _refresh(plane: Plane, request: Request) -> Response:
    body = await read(request, SessionToken)
    made = await plane.desk.sessions.refresh(body.session_token)
    user, address = made.user, body.client_ip or ""
    audited_for(request, actor=user.subject, tenant=user.tenant, address=address)
    audited(request, made.session_id)
    return json(made, headers=UNKEPT)


async def _end(plane: Plane, request: Request) -> Response:
    body = await read(request, SessionToken)
    ended, row = await plane.desk.sessions.end(body.session_token)
    if row is not None:
        address = body.client_ip or ""
        audited_for(request, actor=row.account, tenant=row.tenant_id, address=address)
    audited(request, ended.session_id or "", revoked=ended.revoked)
    return json(ended)


async def _validate(plane: Plane, request: Request) -> Response:
    body = await read(request, SessionToken)
    return json(await plane.desk.sessions.validate(body.session_token))


async def _look(plane: Plane, request: Request) -> Response:
    return json(await plane.desk.sessions.look(await read(request, SessionLook)))


async def _check(plane: Plane, request: Request) -> Response:
    return json(await plane.desk.sessions.allowed(await read(request, PlaybookAccess)))


async def _who(plane: Plane, request: Request) -> Response:
    return json(await plane.desk.accounts.who(caller_of(request)))


async def _list(plane: Plane, request: Request) -> Response:
    account_id = request.query_params.get("account_id")
    return json(await plane.desk.sessions.page(caller_of(request), account_id))


async def _revoke(plane: Plane, request: Request) -> Response:
    session_id = request.path_params["session_id"]
    audited(request, session_id)
    gone = await plane.desk.sessions.revoke(caller_of(request), session_id)
    audited(request, gone.session_id, of=gone.account)
    return Response(status_code=GONE)
