"""Answers to commands that wait for one: the key is the right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api.callbacks import CallbackTaken
from noetl.edge.declared import Declared
from noetl.edge.reading import JSON, body_of, json
from noetl.server.fleet.callbacks import MOST_BYTES
from noetl.server.routes.exchange import route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_ANSWER = Declared(
    about="Resume the command that waits for this key; the body is the data of its step.",
    takes=JSON,
    answer=CallbackTaken,
    codes=("not_found", "expired", "body_too_large", "bad_json", "bad_value"),
)


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    return [route(plane, "POST", "/api/callbacks/{key}", _answer, "public", _ANSWER)]


async def _answer(plane: Plane, request: Request) -> Response:
    body = await body_of(request, MOST_BYTES)
    return json(await plane.answers.answer(request.path_params["key"], body))
