"""Signing in and out, and what a session or a ticket opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse, Response

from noetl.api.identity import Login, PlaybookAccess
from noetl.api.sign_in import (
    AccessAnswer,
    AccessWanted,
    SessionAnswer,
    SessionWanted,
    SignIn,
    SignInAnswer,
    TicketAnswer,
    TicketWanted,
)
from noetl.edge.errors import Forbidden, Unacceptable
from noetl.edge.reading import json, read
from noetl.gateway.cookies import SESSION, Jar
from noetl.gateway.declaring import PUBLIC, Declared, route
from noetl.gateway.errors import AuthHookInvalid, InvalidSession
from noetl.gateway.sessions import TOKEN, digest, is_hooked
from noetl.gateway.signing import (
    MOST_BYTES,
    UNKEPT,
    answer_of,
    asked,
    shown,
    signing_in,
    user_of,
    whence,
)
from noetl.gateway.tickets import LOGIN, LOGIN_TTL_S, TTL_S

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from noetl.gateway.gate import Gate
    from noetl.gateway.person import Person

GONE: Final = 204
_NO_TOKEN: Final = "a token of the API is no session"  # noqa: S105 - a sentence
_OF_PLAYBOOK: Final = "only its playbook makes the session longer"
_LOGIN: Final = (
    "bad_credentials", "rate_limited", "issuer_not_allowed", "bad_signature", "bad_claims",
    "auth_unavailable", "auth_backend_busy", "auth_hook_invalid",
)  # fmt: skip
_OF_SESSION: Final = ("missing_token", "invalid_session", "csrf_rejected", "auth_unavailable")


def routes(gate: Gate) -> list[BaseRoute]:
    """Every route of this file."""
    return [
        route(gate, "POST", "/api/auth/login", _login, PUBLIC, Declared(
            about="Begin a session, by a password or by the token of an issuer.",
            body=SignIn, answer=SignInAnswer, codes=_LOGIN)),
        route(gate, "POST", "/api/auth/validate", _validate, PUBLIC, Declared(
            about="Tell whether a session lasts, and whose it is.",
            body=SessionWanted, answer=SessionAnswer, codes=("auth_unavailable",))),
        route(gate, "POST", "/api/auth/check-access", _check, PUBLIC, Declared(
            about="Tell whether a session opens a playbook.",
            body=AccessWanted, answer=AccessAnswer, codes=("auth_unavailable",))),
        route(gate, "POST", "/api/auth/logout", _logout, PUBLIC, Declared(
            about="End the caller's session and close its streams.",
            status=GONE, codes=_OF_SESSION)),
        route(gate, "POST", "/api/auth/refresh", _refresh, PUBLIC, Declared(
            about="Give the caller's session another token; the one before lasts a minute longer.",
            answer=SignInAnswer, codes=_OF_SESSION)),
        route(gate, "POST", "/api/auth/ticket", _ticket, PUBLIC, Declared(
            about="Give a ticket that opens one stream, once.",
            body=TicketWanted, answer=TicketAnswer, codes=_OF_SESSION)),
    ]  # fmt: skip


# ----------------------------------------------------------------------------- signing in


async def _login(gate: Gate, request: Request) -> Response:
    body = await read(request, SignIn, MOST_BYTES)
    return await signing_in(gate, request, _let_in(gate, request, body))


async def by_ticket(gate: Gate, request: Request) -> Response:
    """Begin a session by a ticket in the address, and go on without it.

    Who only looks whether the page is there uses nothing up.
    """
    if request.method == "HEAD":
        return Response(headers=UNKEPT)
    gate.limits.take("login_address", gate.peers.address(request))

    async def let_in() -> SignInAnswer:
        account_id, tenant = await gate.tickets.redeem_login(request.query_params["ticket"])
        wish = Login(account_id=account_id, tenant=tenant, **whence(gate, request))
        return answer_of(await asked(gate.upstream.service().login(wish)))

    shown = await signing_in(gate, request, let_in())
    cookie = shown.headers["set-cookie"]
    return RedirectResponse("/", 302, headers={**UNKEPT, "Set-Cookie": cookie})


async def _let_in(gate: Gate, request: Request, body: SignIn) -> SignInAnswer:
    gate.limits.take("login_address", gate.peers.address(request))
    name = body.email if body.email is not None else body.username
    if body.auth0_token is None:
        if name is None or body.password is None:
            raise Unacceptable("name `email` and `password`, or `auth0_token`")
        gate.limits.take("login_account", digest(f"{body.tenant}/{name.strip().lower()}"))
    elif name is not None or body.password is not None:
        raise Unacceptable("name `email` and `password`, or `auth0_token`, not both")
    if gate.hooks.is_on and not body.local:
        return await _by_hook(gate, request, body)
    hours, told_of = body.session_duration_hours, whence(gate, request, body)
    if body.auth0_token is None:
        wish = Login(
            username=name,
            password=body.password,
            tenant=body.tenant,
            session_duration_hours=hours,
            **told_of,
        )
    else:
        provider, identity = await gate.sign_ins.identified(body.auth0_token, body.auth0_domain)
        wish = Login(
            identity=identity, tenant=provider.tenant, session_duration_hours=hours, **told_of
        )
    return answer_of(await asked(gate.upstream.service().login(wish)))


async def _by_hook(gate: Gate, request: Request, body: SignIn) -> SignInAnswer:
    given = {
        "email": body.email if body.email is not None else body.username,
        "password": body.password,
        "auth0_token": body.auth0_token,
        "auth0_refresh_token": body.auth0_refresh_token,
        "auth0_domain": body.auth0_domain,
        "session_duration_hours": body.session_duration_hours,
        "tenant": body.tenant,
        **whence(gate, request, body),
    }
    known = {key: value for key, value in given.items() if value is not None}
    made = await gate.hooks.login(known, body.tenant)
    if not made.session_token.isascii() or not set(made.session_token) <= _OF_COOKIES:
        raise AuthHookInvalid("the playbook has given a session that no cookie can hold")
    await gate.sessions.begun(made.session_token)
    return SignInAnswer(
        session_token=made.session_token,
        user=user_of(made.user),
        expires_at=made.expires_at,
        message=f"signed in as {made.user.email}",
    )


# ------------------------------------------------------------------------------- sessions


async def _validate(gate: Gate, request: Request) -> Response:
    body = await read(request, SessionWanted, MOST_BYTES)
    _limit(gate, request)
    try:
        person = await gate.sessions.of(body.session_token)
    except InvalidSession as fault:
        return json(SessionAnswer(valid=False, message=fault.message), headers=UNKEPT)
    made = SessionAnswer(
        valid=True,
        user=user_of(person),
        expires_at=person.expires_at,
        message=f"the session of {person.subject}",
    )
    return json(made, headers=UNKEPT)


def _limit(gate: Gate, request: Request) -> None:
    """Not too often from one address; our own processes ask for everybody."""
    if not gate.access.is_service(request):
        gate.limits.take("call", gate.peers.address(request))


async def _check(gate: Gate, request: Request) -> Response:
    body = await read(request, AccessWanted, MOST_BYTES)
    _limit(gate, request)
    try:
        person = await gate.sessions.of(body.session_token)
    except InvalidSession as fault:
        return json(_access(body, None, is_allowed=False, message=fault.message))
    if gate.hooks.is_on:
        is_allowed, why = await _hooked_access(gate, person, body), "as the playbook says"
    else:
        is_allowed, why = await _server_access(gate, body)
    gate.metrics.authz.inc("allowed" if is_allowed else "denied")
    return json(_access(body, person, is_allowed=is_allowed, message=why))


async def _server_access(gate: Gate, body: AccessWanted) -> tuple[bool, str]:
    wish = PlaybookAccess(
        session_token=body.session_token,
        playbook_path=body.playbook_path,
        action=body.permission_type,
    )
    found = await asked(gate.upstream.service().check_playbook_access(wish))
    return found.allowed, found.reason


async def _hooked_access(gate: Gate, person: Person, body: AccessWanted) -> bool:
    action = "modify" if body.permission_type == "edit" else body.permission_type
    given = {
        "user": {"id": person.user_id, "email": person.email, "roles": list(person.roles)},
        "session_token": body.session_token,
        "playbook_path": body.playbook_path,
        "resource": body.playbook_path,
        "permission_type": action,
        "tenant": person.tenant,
    }
    return await gate.hooks.allows(given, person.tenant)


def _access(
    body: AccessWanted, person: Person | None, *, is_allowed: bool, message: str
) -> AccessAnswer:
    return AccessAnswer(
        allowed=is_allowed,
        user=None if person is None else user_of(person),
        playbook_path=body.playbook_path,
        permission_type=body.permission_type,
        message=message,
    )


async def _logout(gate: Gate, request: Request) -> Response:
    jar = Jar.of(request, gate.settings.public_url)
    gone = Response(status_code=GONE, headers={**UNKEPT, "Set-Cookie": jar.dropped(SESSION)})
    try:
        person = await gate.access.person(request)
    except InvalidSession:
        return gone  # it has ended already; the browser may forget it
    if person.token.startswith(TOKEN):
        raise Forbidden(_NO_TOKEN, hint="revoke it with DELETE /api/tokens/{id}")
    if person.token:
        await asked(gate.upstream.service().end_session(person.token, gate.peers.address(request)))
        if is_hooked(person.session_id):
            await gate.sessions.end_hooked(person)
        else:
            await gate.sessions.ended(person.session_id, digest(person.token))
    return gone


async def _refresh(gate: Gate, request: Request) -> Response:
    person = await gate.access.person(request)
    gate.limits.take("call", person.session_id or person.user_id)
    if not person.token or person.token.startswith(TOKEN):
        raise Forbidden(_NO_TOKEN, hint="rotate it with POST /api/tokens/{id}/rotate")
    if is_hooked(person.session_id):
        raise Forbidden(_OF_PLAYBOOK, hint="sign in again before it ends")
    made = await asked(
        gate.upstream.service().refresh_session(person.token, gate.peers.address(request))
    )
    await gate.sessions.renewed(person.session_id, digest(person.token))
    return shown(gate, request, answer_of(made))


async def _ticket(gate: Gate, request: Request) -> Response:
    person = await gate.access.person(request)
    gate.limits.take("call", person.session_id or person.user_id)
    body = await read(request, TicketWanted, MOST_BYTES)
    ticket = await gate.tickets.issue(person, body.purpose)
    life_s = LOGIN_TTL_S if body.purpose == LOGIN else TTL_S
    return json(TicketAnswer(ticket=ticket, expires_in=life_s), headers=UNKEPT)


_OF_COOKIES: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/="
)
