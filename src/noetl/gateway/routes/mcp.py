"""Playbooks as tools of agents, and where an agent learns how to be let in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.edge.problems import header
from noetl.edge.reading import json
from noetl.gateway.declaring import PUBLIC, SESSION, Declared, person_of, route
from noetl.gateway.mcp.endpoint import Mcp

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from noetl.gateway.gate import Gate

PATH: Final = "/mcp"
METADATA: Final = "/.well-known/oauth-protected-resource"


def routes(gate: Gate) -> list[BaseRoute]:
    """Every route of this file."""
    mcp = Mcp(gate)

    async def called(_: Gate, request: Request) -> Response:
        return await mcp.answer(person_of(request), request)

    return [
        route(
            gate,
            "POST",
            PATH,
            called,
            SESSION,
            Declared(
                about="Answers one message of the Model Context Protocol.",
                body=dict[str, Any],
                answer=dict[str, Any],
                also={202: None},
                follow="text/event-stream",
                challenge=lambda request: (
                    f'Bearer resource_metadata="{_base(gate, request)}{METADATA}"'
                ),
            ),
        ),
        route(
            gate,
            "GET",
            METADATA,
            _metadata,
            PUBLIC,
            Declared(about="Tells agents which credentials this server takes.", span="metadata"),
        ),
    ]


async def _metadata(gate: Gate, request: Request) -> Response:
    base = _base(gate, request)
    return json(
        {
            "resource": f"{base}{PATH}",
            "resource_name": "NoETL",
            "bearer_methods_supported": ["header"],
        }
    )


def _base(gate: Gate, request: Request) -> str:
    """Where callers find us: as was said, or as they did."""
    if gate.settings.public_url:
        return gate.settings.public_url.rstrip("/")
    return f"{request.scope.get('scheme', 'http')}://{header(request, b'host') or 'localhost'}"
