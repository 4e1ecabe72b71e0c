"""GraphQL: one operation per request, subscriptions on a WebSocket, and a page to try it.

The kit behind it takes a while to load, so it is loaded beside everything else, soon after the
start or when somebody asks for the first time.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from noetl.edge.errors import NotFound
from noetl.edge.reading import JSON
from noetl.gateway import frames
from noetl.gateway.declaring import SESSION, Declared, route, socket_route
from noetl.gateway.errors import graphql_code_of, rpc_of
from noetl.gateway.routes.proxy import proxy_of
from noetl.gateway.routes.rpc import answered

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.websockets import WebSocket

    from noetl.gateway.gate import Gate
    from noetl.gateway.graphql.endpoint import GraphQL

PATH: Final = "/graphql"
LOADED_AFTER_S: Final = 2.0
"""A gateway that starts has something else to do first."""
_FOLDER: Final = Path(__file__).parents[1] / "graphql"
_UNKEPT: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_OWN: Final = frozenset({"content-length", "content-type"})


class Kit:
    """The GraphQL of a gateway, when it is loaded."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._loading: asyncio.Future[GraphQL] | None = None

    async def get(self) -> GraphQL:
        """The GraphQL of the gateway; whoever comes while it is loaded waits."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._loaded())
        try:
            return await asyncio.shield(self._loading)
        except Exception:
            self._loading = None
            raise

    async def _loaded(self) -> GraphQL:
        await asyncio.to_thread(_load)
        from noetl.gateway.graphql.endpoint import GraphQL  # noqa: PLC0415 - it is loaded now

        return GraphQL(self._gate, proxy_of(self._gate), answered)


async def loading() -> None:
    """The loop that loads it once, before somebody asks."""
    await asyncio.sleep(LOADED_AFTER_S)
    await asyncio.to_thread(_load)
    await asyncio.Event().wait()


def _load() -> None:
    from noetl.gateway.graphql.operations import shared_schema  # noqa: PLC0415 - see above

    shared_schema()


def routes(gate: Gate) -> list[BaseRoute]:
    """Every route of this file."""
    kit = Kit(gate)

    async def asked(_: Gate, request: Request) -> Response:
        return await (await kit.get()).answer(request)

    async def followed(_: Gate, socket: WebSocket) -> None:
        await (await kit.get()).converse(socket)

    return [
        route(gate, "POST", PATH, asked, SESSION, _ASKED),
        route(gate, "GET", PATH, _page, SESSION, _PAGE),
        route(gate, "GET", f"{PATH}/page.js", _script, SESSION, _SCRIPT),
        socket_route(gate, PATH, followed, SESSION, _FOLLOWED),
    ]


async def _page(gate: Gate, request: Request) -> Response:
    return _file(gate, request, "page.html", "text/html; charset=utf-8")


async def _script(gate: Gate, request: Request) -> Response:
    return _file(gate, request, "page.js", "text/javascript")


def _file(gate: Gate, request: Request, name: str, media_type: str) -> Response:
    if not gate.settings.shows_schema:
        raise NotFound(f"there is no {request.url.path}")
    return Response((_FOLDER / name).read_bytes(), 200, _UNKEPT, media_type)


def _refused(response: Response, error: BaseException) -> Response:
    """A refusal before the body was read: callers of either kind find theirs in it."""
    failure = rpc_of(error)
    extensions = {
        "code": graphql_code_of(error),
        "rpcCode": failure.code,
        "requestId": msgspec.json.decode(bytes(response.body)).get("request_id"),
    }
    told = {"message": failure.message, "extensions": extensions}
    body = {**frames.refusal(None, failure), "errors": [told]}
    kept = {name: value for name, value in response.headers.items() if name not in _OWN}
    return Response(frames.line(body), response.status_code, kept, JSON)


_ASKED: Final = Declared(
    about="Answers one GraphQL operation, or one call of JSON-RPC.",
    body=dict[str, Any],
    answer=dict[str, Any],
    also={202: None, 400: dict[str, Any]},
    refused=_refused,
)
_PAGE: Final = Declared(
    about="A page to try GraphQL, where the schema is shown.",
    media_type="text/html",
    codes=("not_found",),
)
_SCRIPT: Final = Declared(
    about="The script of that page.", media_type="text/javascript", codes=("not_found",)
)
_FOLLOWED: Final = Declared(
    about="Opens a WebSocket for GraphQL operations (`graphql-transport-ws`).",
    purpose="graphql",
    is_stream=True,
    takes_any_query=True,
    codes=("bad_subprotocol", "origin_refused"),
)
