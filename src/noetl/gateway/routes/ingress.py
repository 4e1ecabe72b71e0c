"""Where senders deliver, and where the server sends a rejected delivery again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.api.ingress import SendAgain, Sent
from noetl.edge.reading import json, read
from noetl.gateway.declaring import SERVICE, VERIFIED, Declared, own_route, route
from noetl.gateway.ingress.verify.proof import STATUS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from noetl.gateway.gate import Gate

MOST_BYTES: Final = 512 * 1024
"""Of a delivery that is sent again: 64 KiB as base64, and its headers."""
_PATH: Final = "/ingress/{listener}"
_AGAIN: Final = "/api/internal/ingress/{listener}/again"
_CODES: Final = (
    "overloaded", "headers_too_large", "rate_limited", "ip_not_allowed", "unknown_listener",
    "config_unavailable", "deactivated", "bad_method",
)  # fmt: skip
_TAKEN: Final = (
    "bad_media_type", "body_too_large", "body_timeout", *STATUS, "challenge_refused",
    "bad_envelope", "not_active", "circuit_open", "spool_full", "spool_unavailable",
    "dispatch_failed",
)  # fmt: skip


def routes(gate: Gate) -> list[BaseRoute]:
    """Every route of this file."""
    taken = Declared(
        about="Takes a delivery of a sender that the listener verifies.",
        takes="*/*",
        answer=dict[str, Any],
        status=202,
        also={200: dict[str, Any]},
        codes=(*_CODES, *_TAKEN),
        takes_any_query=True,
        limit="",
    )
    asked = Declared(
        about="Answers the handshake of a sender, where the listener has one.",
        answer=str,
        media_type="text/plain",
        codes=(*_CODES, "challenge_refused"),
        takes_any_query=True,
        limit="",
    )
    allowed = Declared(
        about="Tells a sender of CloudEvents whether, and how often, it may send.",
        answer=str,
        media_type="text/plain",
        codes=(*_CODES, "challenge_refused"),
        takes_any_query=True,
        limit="",
    )
    again = Declared(
        about="Judges a rejected delivery once more, without regard to its time.",
        body=SendAgain,
        answer=Sent,
        codes=("forbidden", "body_too_large"),
        limit="",
    )
    return [
        own_route(gate, "POST", _PATH, _arrived, VERIFIED, taken),
        own_route(gate, "GET", _PATH, _arrived, VERIFIED, asked),
        own_route(gate, "OPTIONS", _PATH, _arrived, VERIFIED, allowed),
        route(gate, "POST", _AGAIN, _again, SERVICE, again),
    ]


async def _arrived(gate: Gate, request: Request) -> Response:
    return await gate.ingress.answer(request)


async def _again(gate: Gate, request: Request) -> Response:
    body = await read(request, SendAgain, MOST_BYTES)
    return json(await gate.ingress.again(request.path_params["listener"], body))
