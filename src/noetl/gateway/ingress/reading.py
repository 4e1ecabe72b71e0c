"""Bodies of deliveries: read as they come, counted, in time, and never too many bytes at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn

from starlette.requests import ClientDisconnect

from noetl.edge.door import BODY, LATE
from noetl.gateway.ingress.refusals import (
    BODY_TIMEOUT,
    BODY_TOO_LARGE,
    OVERLOADED,
    TurnedAway,
)

if TYPE_CHECKING:
    from starlette.requests import Request

    from noetl.gateway.ingress.pipeline import Admitted

BODY_S: Final = 10.0
LINGER_BYTES: Final = 4 * 1024 * 1024
"""So much of a body that is too large is thrown away, so that its sender sees why."""
LINGER_S: Final = 1.0
MOST_HELD_BYTES: Final = 32 * 1024 * 1024
"""Of all bodies that are long; short ones come whole, and are as many as requests may be."""


class Bodies:
    """The long bodies that are under way."""

    def __init__(self, most_bytes: int = MOST_HELD_BYTES) -> None:
        self._most = most_bytes
        self.held = 0
        """Bytes of those that were not let go."""

    async def read(self, admitted: Admitted, request: Request) -> bytes:
        """The body of a request that was admitted; what is long is `held` until it is let go."""
        most = admitted.known.ingress.body_limit
        told = admitted.head.length
        whole: bytes | None = request.scope.get(BODY)
        if whole is not None:
            if len(whole) > most:
                raise TurnedAway(BODY_TOO_LARGE)
            return whole
        try:
            if told is not None:
                _must_fit(told, most)
            return await self._streamed(request, most)
        except TurnedAway as refusal:
            if refusal.code == BODY_TOO_LARGE and _will_end(admitted):
                await _discard(request)
            raise

    def release(self, request: Request, body: bytes) -> None:
        """Let go of a body."""
        if BODY not in request.scope:
            self.held -= len(body)

    async def _streamed(self, request: Request, most: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_S):
                is_coming = True
                while is_coming:
                    part, is_coming = await _next(request)
                    size += len(part)
                    self.held += len(part)
                    _must_fit(size, most)
                    if self.held > self._most:
                        _overload()
                    if part:
                        parts.append(part)
        except BaseException as fault:
            self.held -= size
            parts.clear()  # a fault keeps what it was raised in
            if isinstance(fault, TimeoutError) or _is_late(request, fault):
                raise TurnedAway(BODY_TIMEOUT) from None
            raise
        return parts[0] if len(parts) == 1 else b"".join(parts)


async def _next(request: Request) -> tuple[bytes, bool]:
    """The next part of a body, and whether there is more."""
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


def _must_fit(size: int, most: int) -> None:
    if size > most:
        raise TurnedAway(BODY_TOO_LARGE)


def _overload() -> NoReturn:
    raise TurnedAway(OVERLOADED)


def _will_end(admitted: Admitted) -> bool:
    """Whether the rest of a body may be short, and comes without being asked for."""
    head = admitted.head
    is_asking = any(name == b"expect" for name, _ in head.headers)
    return not is_asking and (head.length is None or head.length <= LINGER_BYTES)


async def _discard(request: Request) -> None:
    """Read on for a moment: who still sends does not see an answer."""
    left = LINGER_BYTES
    try:
        async with asyncio.timeout(LINGER_S):
            is_coming = True
            while is_coming and left > 0:
                part, is_coming = await _next(request)
                left -= len(part)
    except (TimeoutError, ClientDisconnect):
        return  # it is answered all the same
    except asyncio.CancelledError as fault:
        if not _is_late(request, fault):
            raise


def _is_late(request: Request, fault: BaseException) -> bool:
    """Whether the HTTP server itself has lost patience: a moment before we would have."""
    task = asyncio.current_task()
    if not isinstance(fault, asyncio.CancelledError) or task is None:
        return False
    if not request.scope.pop(LATE, False):
        return False
    task.uncancel()
    return True
