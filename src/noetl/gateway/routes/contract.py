"""What can be relied on: versions, routes, providers, limits; and every route as OpenAPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from noetl import __version__
from noetl.api.gateway import GatewayContract
from noetl.edge.openapi import Book, document_of, method_of, names_of
from noetl.edge.reading import JSON, json
from noetl.gateway.declaring import PUBLIC, Declared, Named, route
from noetl.gateway.frames import PROTOCOL
from noetl.gateway.limits import SCOPES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from noetl.edge.openapi import Named as Shown
    from noetl.gateway.gate import Gate

CONTRACT_VERSION: Final = "1"
_MIB: Final = 1 << 20
_LIMITS: Final = {
    "header_bytes": 64 * 1024,
    "header_fields": 100,
    "message_bytes": _MIB,
    "callback_bytes": 8 * _MIB,
    "inline_result_bytes": 256 * 1024,
    "clients_per_session": 20,
    "clients_per_user": 50,
    "subscribed_executions": 50,
    "replay_seconds": 1800,
}
_EVERY: Final = ("unknown_parameter", "internal", "timeout")
_OF_SESSIONS: Final = (
    "missing_token", "invalid_session", "csrf_rejected", "auth_unavailable", "rate_limited",
    "forbidden", "upstream_unreachable", "upstream_unavailable",
)  # fmt: skip
_BODIES: Final = (
    "bad_json", "bad_media_type", "body_too_large", "unknown_field", "validation_failed",
    "bad_value",
)  # fmt: skip


def routes(gate: Gate, known: Callable[[], Sequence[BaseRoute]]) -> list[BaseRoute]:
    """Every route of this file; `known` are those of the whole gateway."""
    made: list[bytes] = []  # the same for as long as the process lives

    async def contract(gate: Gate, request: Request) -> Response:
        del request
        return json(_contract(gate, known()))

    async def document(gate: Gate, request: Request) -> Response:
        del gate, request
        if not made:
            made.append(msgspec.json.encode(gateway_document(known())))
        return Response(made[0], media_type=JSON)

    return [
        route(gate, "GET", "/api/runtime/contract", contract, PUBLIC, Declared(
            about="Tells versions, routes, sign-in providers and limits.",
            answer=GatewayContract)),
        route(gate, "GET", "/openapi.json", document, PUBLIC, Declared(
            about="Tells every route of this gateway, as OpenAPI 3.1.", answer=dict[str, Any])),
    ]  # fmt: skip


def gateway_document(known: Sequence[BaseRoute]) -> dict[str, Any]:
    """Every route of the gateway, as OpenAPI."""
    return document_of([one for one in known if isinstance(one, Named)], _BOOK)


def _codes_of(route: Shown) -> list[str]:
    declared = route.declared
    codes = [*declared.codes, *_EVERY]
    if route.permission != PUBLIC:
        codes += _OF_SESSIONS
    if declared.body is not None or declared.takes is not None:
        codes += _BODIES
    if names_of(route):
        codes.append("not_found")
    if method_of(route) == "GET" and getattr(declared, "is_stream", False):
        codes.append("draining")
    return codes


_BOOK: Final = Book(
    about=(
        "The door of NoETL for people, browsers, agents and webhooks. Errors are "
        "`application/problem+json` with a stable `code`; ids are strings."
    ),
    codes_of=_codes_of,
)


def _contract(gate: Gate, known: Sequence[BaseRoute]) -> GatewayContract:
    named: dict[str, list[str]] = {}
    for one in known:
        declared: Any = one
        methods = sorted(set(getattr(one, "methods", None) or {"WS"}) - {"HEAD"})
        place = named.setdefault(declared.permission, [])
        place += [f"{method} {declared.path}" for method in methods]
    settings = gate.settings
    rates = {f"{scope}_per_second": round(rate.per_s, 4) for scope, rate in SCOPES.items()}
    return GatewayContract(
        version=__version__,
        contract_version=CONTRACT_VERSION,
        protocol_versions={"jsonrpc": (PROTOCOL,), "ws": ("noetl.v1",)},
        routes={permission: tuple(sorted(paths)) for permission, paths in named.items()},
        providers=tuple(gate.providers.shown()),
        limits={**_LIMITS, **rates},
        features={
            "sse": settings.is_sse_on,
            "ws": settings.is_ws_on,
            "introspection": settings.shows_schema,
            "query_token": settings.takes_query_token,
            "callback_token": settings.needs_callback_token,
            "auth_bypass": settings.is_auth_bypassed,
        },
    )
