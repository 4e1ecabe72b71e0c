"""JSON-RPC over HTTP: one call per request."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from noetl.edge.reading import JSON, body_of, json
from noetl.gateway import frames
from noetl.gateway.declaring import SESSION, Declared, person_of, route
from noetl.gateway.errors import rpc_of
from noetl.gateway.rpc import MOST_BYTES, BadCall, parsed, status_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from noetl.api.gateway import Failure
    from noetl.gateway.gate import Gate

ACCEPTED: Final = 202


def routes(gate: Gate) -> list[BaseRoute]:
    """Every route of this file."""
    return [route(gate, "POST", "/rpc", _rpc, SESSION, _RPC)]


async def answered(gate: Gate, request: Request, message: Any) -> Response:  # noqa: ANN401 - JSON
    """The answer of a message that came over HTTP."""
    key = request.headers.get("idempotency-key")
    if key is not None and isinstance(message, dict) and message.get("method") == _EXECUTE:
        params = message.get("params")
        if isinstance(params, dict):
            message = {**message, "params": {"idempotencyKey": key, **params}}
    answer = await gate.calls.call(person_of(request), message)
    if answer is None:
        return Response(status_code=ACCEPTED)
    return json(answer, status_of(answer), _come_back(answer.get("error")))


async def _rpc(gate: Gate, request: Request) -> Response:
    try:
        message = parsed(await body_of(request, MOST_BYTES))
    except BadCall as refusal:
        return json(frames.refusal(None, refusal.failure))
    return await answered(gate, request, message)


def _refused(response: Response, error: BaseException) -> Response:
    """A refusal before the call: the same status and headers, with an error of JSON-RPC."""
    body = frames.line(frames.refusal(None, rpc_of(error)))
    kept = {
        name: value
        for name, value in response.headers.items()
        if name not in {"content-length", "content-type"}
    }
    return Response(body, status_code=response.status_code, headers=kept, media_type=JSON)


def _come_back(failure: Failure | None) -> dict[str, str]:
    after = (failure.data or {}).get("retryAfter") if failure is not None else None
    return {} if after is None else {"Retry-After": str(max(1, ceil(after)))}


_EXECUTE: Final = "playbook/execute"
_RPC: Final = Declared(
    about="Takes one call of JSON-RPC.",
    body=dict[str, Any],
    answer=dict[str, Any],
    also={ACCEPTED: None},
    refused=_refused,
)
