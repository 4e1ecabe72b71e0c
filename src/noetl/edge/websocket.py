"""WebSockets under the door, as the HTTP server beside them hands them over."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from noetl.edge.door import ABORT, HEARD

if TYPE_CHECKING:
    from websockets.frames import Frame
    from websockets.http11 import Request

_quiet: Final = logging.getLogger("noetl.edge.sockets")
_quiet.setLevel(logging.WARNING)


class Socket(WebSocketsSansIOProtocol):
    """One WebSocket; what its address says is never logged."""

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - as the class below
        super().__init__(*args, **named)
        self.logger = _quiet

    def handle_connect(self, event: Request) -> None:
        """Let the app end it at once, also when the other side reads nothing."""
        super().handle_connect(event)
        if hasattr(self, "scope"):
            scope: dict[str, Any] = self.scope  # type: ignore[assignment] # extensions of ours
            scope[ABORT] = self.transport.abort

    def handle_pong(self, event: Frame) -> None:
        """Tell the app that the other end is there."""
        super().handle_pong(event)
        heard: Any = self.scope.get(HEARD)
        if heard is not None:
            heard()
