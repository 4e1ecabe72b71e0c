"""The API document, and a page that shows it; both are made from the route table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.edge.declared import UNCHANGED, Declared
from noetl.edge.reading import JSON
from noetl.server.access.permissions import PUBLIC
from noetl.server.routes.etags import tagged_bytes
from noetl.server.routes.exchange import route
from noetl.server.routes.openapi.document import server_document
from noetl.server.routes.openapi.page import POLICY, page_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

HTML: Final = "text/html"
_encode: Final = msgspec.json.Encoder().encode
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def routes(plane: Plane, known: Callable[[], Sequence[Route]]) -> list[Route]:
    """Every route of this file; `known` are those of the whole server."""
    made: dict[str, bytes] = {}  # both are the same for as long as the process lives

    def written() -> dict[str, bytes]:
        if not made:
            every: Any = known()  # the door takes only ours
            told = server_document(every, plane.parts.public_url)
            made[HTML] = page_of(told).encode()
            made[JSON] = _encode(told)
        return made

    async def document(plane: Plane, request: Request) -> Response:
        del plane
        body = written()[JSON]
        return tagged_bytes(request, body, body)

    async def page(plane: Plane, request: Request) -> Response:
        del plane
        body = written()[HTML]
        response = tagged_bytes(request, body, body, HTML)
        response.headers.update(_HEADERS)
        return response

    permission = "runtime:read" if plane.parts.env == "production" else PUBLIC
    return [
        route(plane, "GET", "/api/openapi.json", document, permission, Declared(
            about="Tells every route of this server, as OpenAPI 3.1.", answer=dict[str, Any],
            also=UNCHANGED)),
        route(plane, "GET", "/api/docs", page, permission, Declared(
            about="Shows every route of this server on a page.", media_type=HTML,
            also=UNCHANGED)),
    ]  # fmt: skip
