"""What gateways ask of the listeners whose deliveries they take."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from noetl.api.ingress import IngressListener, IngressListeners
from noetl.edge.declared import UNCHANGED, Declared, Parameter
from noetl.edge.errors import Unacceptable
from noetl.edge.reading import json
from noetl.edge.tags import is_known
from noetl.server.auditing.audit import audited
from noetl.server.routes.exchange import internal_route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from noetl.server.plane import Plane

_FRESH: Final = "private, max-age=30"
_GATEWAY: Final = ("gateway",)
_SOURCES: Final = ("kek_unavailable", "record_damaged", "residency_denied", "secret_missing",
                   "secret_refused", "secret_unavailable")  # fmt: skip


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    of = partial(internal_route, plane)
    return [
        of("GET", "ingress", _waiting, Declared(
            about="Names the listeners for which deliveries may wait in a spool.",
            answer=IngressListeners, services=_GATEWAY)),
        of("GET", "ingress/{listener}", _one, Declared(
            about="Tells a gateway of a listener, with its secrets sealed for that gateway alone.",
            answer=IngressListener, also=UNCHANGED, services=_GATEWAY, audit="secret.seal", query=(
                Parameter("process", "The name of the gateway.", is_required=True),
            ), codes=("unknown_listener", "worker_key_missing", *_SOURCES))),
    ]  # fmt: skip


async def _waiting(plane: Plane, request: Request) -> Response:
    del request
    return json(await plane.secrets.listeners.waiting())


async def _one(plane: Plane, request: Request) -> Response:
    listener: str = request.path_params["listener"]
    process = request.query_params.get("process")
    if not process:
        raise Unacceptable(
            "`process` is needed", errors=({"pointer": "/process", "code": "validation_failed"},)
        )
    audited(request, listener, kind="ingress", worker_id=process)
    found = await plane.secrets.listeners.one(listener, process)
    headers = {"ETag": f'"{found.tag}"', "Cache-Control": _FRESH}
    if is_known(request.headers.get("if-none-match", ""), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return json(found.told(), headers=headers)
