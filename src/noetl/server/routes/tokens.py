"""Tokens of persons and services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from noetl.api.identity import NewToken, TokenMade, TokenPage
from noetl.edge.declared import CURSOR, LIMIT, Declared, Parameter
from noetl.edge.reading import boolean, json, number, read
from noetl.server.access.entry import caller_of
from noetl.server.auditing.audit import audited
from noetl.server.routes.exchange import route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from noetl.server.plane import Plane

SELF: Final = "token:self"
MADE: Final = 201
GONE: Final = 204
MOST: Final = 200
OF_ACCOUNT: Final = Parameter(
    "account_id", "Of another account, for those with `user:admin`.", "id"
)
UNKEPT: Final = {"Cache-Control": "no-store"}
"""Nobody on the way keeps an answer that shows the text of a token."""


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    tokens, one = "/api/tokens", "/api/tokens/{token_id}"
    return [
        route(
            plane,
            "GET",
            tokens,
            _list_tokens,
            SELF,
            Declared(
                about="List one's own tokens, or those of another account.",
                answer=TokenPage,
                query=(
                    OF_ACCOUNT,
                    Parameter("include_revoked", "Those too that were revoked.", "flag"),
                    LIMIT,
                    CURSOR,
                ),
                codes=("not_found",),
            ),
        ),
        route(
            plane,
            "POST",
            tokens,
            _add_token,
            SELF,
            Declared(
                about="Make a token; its text is in this answer, and nowhere else.",
                body=NewToken,
                answer=TokenMade,
                status=MADE,
                audit="auth.token.created",
                codes=("not_found", "pool_invalid", "quota_exceeded"),
            ),
        ),
        route(
            plane,
            "DELETE",
            one,
            _revoke_token,
            SELF,
            Declared(
                about="Revoke a token.",
                status=GONE,
                audit="auth.token.revoked",
                codes=("not_found",),
            ),
        ),
        route(
            plane,
            "POST",
            f"{one}/rotate",
            _rotate_token,
            SELF,
            Declared(
                about="Give a token another text; the one before ends.",
                answer=TokenMade,
                audit="auth.token.rotated",
                codes=("not_found",),
            ),
        ),
    ]


async def _list_tokens(plane: Plane, request: Request) -> Response:
    return json(
        await plane.desk.tokens.page(
            caller_of(request),
            request.query_params.get("account_id"),
            limit=number(request, "limit", 50, MOST, 1),
            cursor=request.query_params.get("cursor"),
            with_revoked=boolean(request, "include_revoked"),
        )
    )


async def _add_token(plane: Plane, request: Request) -> Response:
    body = await read(request, NewToken)
    audited(request, body.name)
    made = await plane.desk.tokens.add(caller_of(request), body)
    audited(request, made.token_id, name=made.name, of=made.account, roles=made.roles)
    return json(made, MADE, UNKEPT)


async def _revoke_token(plane: Plane, request: Request) -> Response:
    token_id = request.path_params["token_id"]
    audited(request, token_id)
    gone = await plane.desk.tokens.revoke(caller_of(request), token_id)
    audited(request, gone.token_id, name=gone.name, of=gone.account)
    return Response(status_code=GONE)


async def _rotate_token(plane: Plane, request: Request) -> Response:
    token_id = request.path_params["token_id"]
    audited(request, token_id)
    made = await plane.desk.tokens.rotate(caller_of(request), token_id)
    audited(request, made.token_id, name=made.name, of=made.account)
    return json(made, headers=UNKEPT)
