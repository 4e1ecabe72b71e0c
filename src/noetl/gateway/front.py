"""What every answer has in common: a name, whom a browser may show it to, and what pages may load.

It is put on where answers leave, so that the ones of the router, of streams and of the server
behind have it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.requests import HTTPConnection

from noetl.edge.door import REPLY
from noetl.edge.problems import REQUEST_ID, header, named
from noetl.gateway.cors import page_headers
from noetl.ids import random_key

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from noetl.gateway.cors import Cors
    from noetl.gateway.traffic import Traffic

    Headers = list[tuple[bytes, bytes]]

_NO_CONTENT: Final = 204
_OURS: Final = (b"x-request-id", b"access-control-")
_HTML: Final = b"text/html"
_PLAIN: Final = frozenset({"http", "ws"})


class Front:
    """The outermost app."""

    def __init__(self, door: ASGIApp, cors: Cors, traffic: Traffic, *, is_https: bool) -> None:
        self._door = door
        self._cors = cors
        self._traffic = traffic
        self._is_https = is_https
        self._prefix = f"r-{random_key()[:16]}"
        self._count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] not in {"http", "websocket"}:
            return
        scope[REQUEST_ID] = _own_name(scope) or self._minted()
        with self._traffic.inside():
            if scope["type"] == "websocket":
                await self._door(scope, receive, _named(send, scope))
                return
            origin = _header(scope, b"origin")
            if origin is not None and _is_preflight(scope):
                await self._preflight(scope, origin, send)
                return
            await self._door(scope, receive, self._dressing(scope, origin, send))

    async def _preflight(self, scope: Scope, origin: str, send: Send) -> None:
        asked = _header(scope, b"access-control-request-headers") or ""
        headers = [*self._cors.preflight(origin, asked), _name(scope), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": _NO_CONTENT, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _dressing(self, scope: Scope, origin: str | None, send: Send) -> Send:
        more = [_name(scope), *self._cors.headers(origin)]
        is_https = self._is_https or scope.get("scheme") not in _PLAIN
        reply = scope.get(REPLY)

        def dressed(headers: Any) -> Headers:  # noqa: ANN401 - pairs of bytes, as ASGI has them
            kept = [(name, value) for name, value in headers if not name.startswith(_OURS)]
            if any(name == b"content-type" and _is_page(value) for name, value in kept):
                kept += _page(kept, is_https=is_https)
            return [*kept, *more]

        if reply is not None:
            scope[REPLY] = lambda status, headers, body: reply(status, dressed(headers), body)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": dressed(message.get("headers", ()))}
            await send(message)

        return sent

    def _minted(self) -> str:
        """A name that no other process gives."""
        self._count += 1
        return f"{self._prefix}-{self._count}"


def _named(send: Send, scope: Scope) -> Send:
    """Tell the name of a request whose upgrade is refused."""

    async def sent(message: Message) -> None:
        if message["type"] == "websocket.http.response.start":
            name = _name(scope)
            others = [one for one in message.get("headers", ()) if one[0] != name[0]]
            message = {**message, "headers": [*others, name]}
        await send(message)

    return sent


def _is_page(media_type: bytes) -> bool:
    return media_type[: len(_HTML)].lower() == _HTML


def _page(headers: Headers, *, is_https: bool) -> Headers:
    """What a page carries that it does not say itself."""
    told = {name for name, _ in headers}
    made = page_headers(is_https=is_https)
    wire = [(name.lower().encode(), value.encode()) for name, value in made.items()]
    return [(name, value) for name, value in wire if name not in told]


def _name(scope: Scope) -> tuple[bytes, bytes]:
    return b"x-request-id", scope[REQUEST_ID].encode("ascii")


def _header(scope: Scope, name: bytes) -> str | None:
    return header(HTTPConnection(scope), name)


def _own_name(scope: Scope) -> str:
    return named(HTTPConnection(scope))


def _is_preflight(scope: Scope) -> bool:
    is_asking = _header(scope, b"access-control-request-method") is not None
    return scope["method"] == "OPTIONS" and is_asking
