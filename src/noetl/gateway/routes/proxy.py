"""The API of the server under `/noetl/`, for whoever has a session; the server decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.edge.declared import ANY_TYPE
from noetl.gateway.declaring import SESSION, Declared, person_of, route
from noetl.gateway.paths import PREFIX
from noetl.gateway.proxy import METHODS, Proxy

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from noetl.gateway.gate import Gate

_PASSED: Final = Declared(
    about="Passes a call on to the server, and its answer back while it comes.",
    takes=ANY_TYPE,
    media_type=ANY_TYPE,
    takes_any_query=True,
    span="proxy",
    codes=("bad_path", "shard_map_mismatch", "upstream_timeout", "upstream_unreachable"),
)


def routes(gate: Gate) -> list[BaseRoute]:
    """Every route of this file."""
    proxy = proxy_of(gate)

    async def passed(_: Gate, request: Request) -> Response:
        return await proxy.answer(person_of(request), request)

    made = []
    for method in METHODS:
        one = route(gate, method, f"{PREFIX}{{path:path}}", passed, SESSION, _PASSED)
        if one.methods is not None:
            one.methods.discard("HEAD")
        made.append(one)
    return [*made]


def proxy_of(gate: Gate) -> Proxy:
    """What passes calls on, as routes and queries use it."""
    return Proxy(
        upstream=gate.upstream,
        shards=gate.shards,
        limits=gate.limits,
        metrics=gate.metrics,
        clock=gate.clock,
        closing=gate.closing,
        timeout_s=gate.settings.timeout_s,
    )
