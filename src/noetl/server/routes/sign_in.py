"""What gateways ask of the sign-in providers whose clients they are."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from noetl.api.credentials import SealedAnswer
from noetl.edge.declared import Declared, Parameter
from noetl.edge.errors import Unacceptable
from noetl.edge.reading import json
from noetl.server.access.entry import caller_of
from noetl.server.auditing.audit import audited
from noetl.server.routes.exchange import internal_route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_SOURCES: Final = ("kek_unavailable", "record_damaged", "residency_denied", "secret_missing",
                   "secret_refused", "secret_unavailable")  # fmt: skip
_PROVIDER: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}")


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    of = partial(internal_route, plane)
    return [
        of("GET", "sign-in/{alias:path}", _one, Declared(
            about="Gives a gateway its secret at a sign-in provider, sealed for it alone.",
            answer=SealedAnswer, services=("gateway",), audit="secret.seal", query=(
                Parameter("process", "The name of the gateway.", is_required=True),
                Parameter("provider", "The name of the sign-in provider.", is_required=True),
            ), codes=("worker_key_missing", *_SOURCES))),
    ]  # fmt: skip


async def _one(plane: Plane, request: Request) -> Response:
    alias: str = request.path_params["alias"]
    process, provider = _needed(request, "process"), _needed(request, "provider")
    if not _PROVIDER.fullmatch(provider):
        raise _wrong("provider", "is no name of a sign-in provider")
    audited(request, alias, kind="sign-in", worker_id=process, provider=provider)
    caller = caller_of(request)
    found = await plane.secrets.sign_in.sealed(alias, process, provider, caller)
    return json(found, headers={"Cache-Control": "no-store"})


def _needed(request: Request, name: str) -> str:
    found = request.query_params.get(name)
    if not found:
        raise _wrong(name, "is needed")
    return found


def _wrong(name: str, why: str) -> Unacceptable:
    return Unacceptable(
        f"`{name}` {why}", errors=({"pointer": f"/{name}", "code": "validation_failed"},)
    )
