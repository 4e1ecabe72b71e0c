"""GraphQL over WebSocket: who gets in, and which connections there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.gateway.errors import BadSubprotocol, MissingToken
from noetl.gateway.graphql.conversation import Conversation
from noetl.gateway.hub.stream import NO_SESSION

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from noetl.gateway.gate import Gate
    from noetl.gateway.graphql.operations import Operations
    from noetl.gateway.person import Person

SUBPROTOCOL: Final = "graphql-transport-ws"
PURPOSE: Final = "graphql"
_CREDENTIALS: Final = ("authorization", "x-session-token")


class Sockets:
    """Every connection of this gateway."""

    def __init__(self, gate: Gate, operations: Operations) -> None:
        self._gate = gate
        self._operations = operations
        self._open: set[Conversation] = set()
        gate.sessions.on_revoked.append(self._revoked)

    async def converse(self, socket: WebSocket) -> None:
        """Hold a connection from the upgrade to its end."""
        gate = self._gate
        if SUBPROTOCOL not in (socket.scope.get("subprotocols") or ()):
            raise BadSubprotocol(f"the subprotocol is not {SUBPROTOCOL}")
        person = await self._on_upgrade(socket)
        await socket.accept(SUBPROTOCOL)
        one = Conversation(gate, self._operations, socket, person)
        self._open.add(one)
        gate.metrics.connected("graphql", 1)
        try:
            await one.run()
        finally:
            self._open.discard(one)
            gate.metrics.connected("graphql", -1)

    async def _on_upgrade(self, socket: WebSocket) -> Person | None:
        """Who calls, as the upgrade shows; a cookie counts only from a page that may ask."""
        gate, origin = self._gate, socket.headers.get("origin")
        gate.cors.must_trust(socket)
        shows = any(name in socket.headers for name in _CREDENTIALS)
        is_named = shows or "ticket" in socket.query_params
        if origin is None and not is_named and not gate.settings.is_auth_bypassed:
            return None
        try:
            found = await gate.access.person(socket, purpose=PURPOSE)
        except MissingToken:
            return None
        return found.at(gate.peers.address(socket))

    async def _revoked(self, session_id: str) -> None:
        for one in list(self._open):
            if one.session_id == session_id:
                one.end(NO_SESSION, "revoked")
