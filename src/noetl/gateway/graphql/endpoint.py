"""GraphQL over HTTP: one operation per request, or one call of JSON-RPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.edge.door import PATIENT
from noetl.edge.errors import BadJson, BadMediaType, TooLarge
from noetl.edge.problems import header
from noetl.edge.reading import JSON, body_of, json, request_id_of
from noetl.gateway.declaring import person_of
from noetl.gateway.graphql.faults import shown
from noetl.gateway.graphql.limits import MOST_BYTES, LimitExceeded
from noetl.gateway.graphql.operations import Operations
from noetl.gateway.graphql.socket import Sockets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.websockets import WebSocket

    from noetl.gateway.gate import Gate
    from noetl.gateway.proxy import Proxy

    Called = Callable[[Gate, Request, Any], Awaitable[Response]]
    """Answers a call of JSON-RPC."""

_BAD: Final = 400
_UNREAD: Final = {"Connection": "close"}


class GraphQL:
    """The two ways in: requests and sockets."""

    def __init__(self, gate: Gate, proxy: Proxy, called: Called) -> None:
        self._gate = gate
        self._called = called
        self.operations = Operations(gate, proxy)
        self.sockets = Sockets(gate, self.operations)

    async def answer(self, request: Request) -> Response:
        """The answer of one request."""
        request.scope[PATIENT] = True  # operations have a time limit of their own
        name = request_id_of(request)
        try:
            message = await _message(request)
        except TooLarge as fault:
            return self._refusal(LimitExceeded(fault.message), name, _BAD, _UNREAD)
        except (BadJson, BadMediaType) as fault:
            return self._refusal(fault, name, fault.status)
        if _is_call(message):
            return await self._called(self._gate, request, message)
        key = request.headers.get("idempotency-key")
        asked = self.operations.asked(person_of(request), name, key)
        status, body = await self.operations.answer(asked, message)
        return json(body, status)

    async def converse(self, socket: WebSocket) -> None:
        """Hold a connection from the upgrade to its end."""
        await self.sockets.converse(socket)

    def _refusal(
        self, fault: Exception, name: str, status: int, headers: dict[str, str] | None = None
    ) -> Response:
        errors = [shown(fault, name)]
        self.operations.count("other", errors)
        return json({"errors": errors}, status, headers)


async def _message(request: Request) -> Any:  # noqa: ANN401 - JSON
    kind = header(request, b"content-type")
    if kind is not None and "json" not in kind.lower():
        raise BadMediaType("the body is no JSON", hint=f"send {JSON}")
    data = await body_of(request, MOST_BYTES)
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadJson("the body is no JSON") from None


def _is_call(message: object) -> bool:
    """Whether a body is of JSON-RPC; a batch of calls is refused there."""
    first = message[0] if isinstance(message, list) and message else message
    return isinstance(first, dict) and "jsonrpc" in first
