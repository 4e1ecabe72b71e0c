"""Who the caller is, his sessions and his tokens: passed on to the server for him."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.api.identity import NewToken, SessionPage, TokenMade, TokenPage, WhoAmI
from noetl.gateway.declaring import SESSION, Declared, person_of, route
from noetl.gateway.routes.proxy import proxy_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from noetl.gateway.gate import Gate

OK: Final = 200
MADE: Final = 201
GONE: Final = 204
_API: Final = "/api/"


def routes(gate: Gate) -> list[BaseRoute]:
    """Every route of this file."""
    sessions, tokens, token = "/api/auth/sessions", "/api/tokens", "/api/tokens/{token_id}"
    return [
        passed_on(gate, "GET", "/api/auth/whoami", "Tell who the caller is.", WhoAmI),
        passed_on(gate, "GET", sessions, "List the caller's sessions.", SessionPage),
        passed_on(gate, "DELETE", f"{sessions}/{{session_id}}", "End a session.", None, None, GONE),
        passed_on(gate, "GET", tokens, "List the caller's tokens.", TokenPage),
        passed_on(gate, "POST", tokens, "Make a token.", TokenMade, NewToken, MADE),
        passed_on(gate, "DELETE", token, "Revoke a token.", None, None, GONE),
        passed_on(gate, "POST", f"{token}/rotate", "Give a token another text.", TokenMade),
    ]


def passed_on(  # noqa: PLR0913, PLR0917 - a route is all of this
    gate: Gate,
    method: str,
    path: str,
    about: str,
    answer: Any = None,  # noqa: ANN401 - the model of the answer, a type
    body: Any = None,  # noqa: ANN401 - the model of the body, a type
    status: int = OK,
) -> BaseRoute:
    """A route of the server under its own name; the server decides whether the caller may."""
    proxy = proxy_of(gate)

    async def passed(_: Gate, request: Request) -> Response:
        return await proxy.answer(person_of(request), request, _API)

    declared = Declared(
        about=about,
        answer=answer,
        body=body,
        status=status,
        takes_any_query=True,
        codes=("upstream_timeout", "upstream_unreachable"),
    )
    return route(gate, method, path, passed, SESSION, declared)
