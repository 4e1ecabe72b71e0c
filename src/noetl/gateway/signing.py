"""What signing in has in common, whichever way somebody comes: asking, answering, counting."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar

from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.api.sign_in import SignedInUser, SignInAnswer
from noetl.edge.reading import json
from noetl.errors import NoetlError
from noetl.gateway.cookies import SESSION, Jar
from noetl.gateway.errors import AuthUnavailable, InvalidSession, UpstreamTimeout, told

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.requests import Request
    from starlette.responses import Response

    from noetl.api.identity import SignedIn, User
    from noetl.api.sign_in import SignIn
    from noetl.gateway.gate import Gate
    from noetl.gateway.hooks import HookUser
    from noetl.gateway.person import Person

T = TypeVar("T")

MOST_BYTES: Final = 64 * 1024
UNKEPT: Final = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
"""Nobody on the way keeps an answer that shows a session."""
_ENDED: Final = frozenset({"auth_required", "session_expired"})


class Whence(TypedDict):
    """Where somebody signs in from."""

    client_ip: str
    client_user_agent: str


async def signing_in(gate: Gate, request: Request, letting_in: Awaitable[SignInAnswer]) -> Response:
    """The answer that begins a session; how it went is counted."""
    try:
        made = await letting_in
    except NoetlError as fault:
        seen = told(fault)
        gate.metrics.login.inc(getattr(seen, "code", "other"))
        raise
    gate.metrics.login.inc("ok")
    return shown(gate, request, made)


def shown(gate: Gate, request: Request, made: SignInAnswer) -> Response:
    """A session as an answer, and as the cookie of a browser."""
    left = datetime.fromisoformat(made.expires_at) - gate.clock.now()
    jar = Jar.of(request, gate.settings.public_url)
    cookie = jar.kept(SESSION, made.session_token, max(1, int(left.total_seconds())))
    return json(made, headers={**UNKEPT, "Set-Cookie": cookie})


def whence(gate: Gate, request: Request, body: SignIn | None = None) -> Whence:
    """Where somebody signs in from; only our own processes may say so for another one."""
    address = gate.peers.address(request)
    agent = request.headers.get("user-agent", "")
    if body is not None and gate.access.is_service(request):
        address = body.client_ip or address
        agent = body.client_user_agent or agent
    return {"client_ip": address, "client_user_agent": agent}


async def asked(asking: Awaitable[T]) -> T:
    """What the server says of a session; a server that is away is never a wrong session."""
    try:
        return await asking
    except Refused as fault:
        problem = fault.problem
        if problem.status == HTTPStatus.UNAUTHORIZED and problem.code in _ENDED:
            raise InvalidSession("the session has ended", hint="sign in again") from None
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise AuthUnavailable("nobody can sign in or out now") from fault
        raise
    except (NoAnswer, UpstreamTimeout) as fault:
        raise AuthUnavailable("nobody can sign in or out now") from fault


def answer_of(made: SignedIn) -> SignInAnswer:
    """A session as the server has begun it."""
    return SignInAnswer(
        session_token=made.session_token,
        user=user_of(made.user),
        expires_at=made.expires_at,
        message=made.message,
    )


def user_of(one: User | Person | HookUser) -> SignedInUser:
    """Somebody as answers show him."""
    return SignedInUser(
        user_id=one.user_id,
        email=one.email,
        display_name=one.display_name,
        roles=tuple(one.roles),
    )
