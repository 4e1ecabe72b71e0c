"""Calls that are passed on to the server, and answers that are passed back while they come."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from noetl.api.http import Asked, ExchangeTransport, Late, NoAnswer
from noetl.edge.door import PATIENT
from noetl.edge.errors import TooLarge, Unacceptable
from noetl.edge.reading import request_id_of
from noetl.gateway.errors import UpstreamTimeout, UpstreamUnreachable
from noetl.gateway.paths import PREFIX, query_of, target_of
from noetl.gateway.uploads import body_of_call, run_of, run_of_events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from noetl.api.http import Exchange
    from noetl.clock import Clock
    from noetl.gateway.limits import Limits
    from noetl.gateway.metrics import GatewayMetrics
    from noetl.gateway.paths import Target
    from noetl.gateway.person import Person
    from noetl.gateway.shards import Shards
    from noetl.gateway.upstream import Upstream

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
     b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)  # fmt: skip
_NOT_UP: Final = _HOP | frozenset(
    {b"host", b"content-length", b"expect", b"authorization", b"cookie", b"forwarded",
     b"x-request-id", b"traceparent", b"tracestate", b"origin", b"referer", b"user-agent"}
)  # fmt: skip
"""What goes no further: of this connection, of who calls, and what we say ourselves."""
_NOT_UP_PREFIXES: Final = (b"x-noetl-", b"x-user-", b"x-session-", b"x-forwarded-")
_DATA: Final = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
    (b"x-content-type-options", b"nosniff"),
)
"""What comes from the server is data, whatever it says it is: a browser that is led to a stored
page or picture runs nothing of it here, where the session is."""
_NOT_DOWN: Final = _HOP | frozenset(
    {b"date", b"server", b"x-request-id", b"set-cookie", *(name for name, _ in _DATA)}
)
_CORS: Final = b"access-control-"
_BODILESS: Final = frozenset({204, 304})
_EVENTS: Final = b"text/event-stream"
_LOCATION: Final = re.compile(rb"\A(?:https?://[^/?#]*)?/api(/[^\x00-\x20\x7f-\xff]*)?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """Passes calls on to the server that is to answer them."""

    upstream: Upstream
    shards: Shards
    limits: Limits
    metrics: GatewayMetrics
    clock: Clock
    closing: asyncio.Event
    """Set when streams of events are to end, so that their readers go to another gateway."""
    timeout_s: float
    """How long the server has to begin its answer."""

    async def answer(self, person: Person, request: Request, prefix: str = PREFIX) -> Response:
        """The answer of the server, as it comes; `prefix` stands here for its `/api/`."""
        scope, began = request.scope, self.clock.monotonic()
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        target = target_of(raw.decode("latin-1").removeprefix(prefix))
        self._must_be_slow(person, scope["method"], target)
        scope[PATIENT] = True
        body, size, is_plain = await body_of_call(request, target)
        execution_id = target.execution_id or run_of(request, target, body)
        asked = Asked(
            method=scope["method"],
            path=target.path + query_of(scope["query_string"].decode("latin-1")),
            headers=self._onward(person, request, is_plain=is_plain),
            body=body,
            size=size,
        )
        exchange = await self._begun(asked, execution_id)
        self.metrics.proxied(asked.method, exchange.status, self.clock.monotonic() - began)
        return await self._response(exchange)

    def _must_be_slow(self, person: Person, method: str, target: Target) -> None:
        """Whoever starts runs too often is refused, whichever way he takes."""
        if target.is_start and method == "POST":
            self.limits.take("execute", person.user_id)

    async def ask(  # noqa: PLR0913, PLR0917 - a call is all of this
        self, person: Person, method: str, path: str, query: str = "", body: bytes = b"",
        most: int = 1 << 20,
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:  # fmt: skip
        """One call as a whole, by the same rules: status, headers, body of at most so many bytes.

        The path is what would stand behind `/noetl/`, quoted as there.
        """
        began = self.clock.monotonic()
        if method not in METHODS:
            raise Unacceptable(f"the method is none of {', '.join(METHODS)}")
        target = target_of(path)
        if len(body) > target.most_bytes:
            raise TooLarge(f"the body has more than {target.most_bytes} bytes")
        self._must_be_slow(person, method, target)
        of_body = run_of_events(body) if target.has_events else None
        asked = Asked(
            method=method,
            path=target.path + query_of(query),
            headers=[*self._vouched(person), (b"content-type", b"application/json")],
            body=body,
        )
        exchange = await self._begun(asked, target.execution_id or of_body)
        self.metrics.proxied(method, exchange.status, self.clock.monotonic() - began)
        try:
            whole = b""
            async with asyncio.timeout(self.timeout_s):
                async for part in exchange.parts():
                    whole += part
                    if len(whole) > most:
                        raise TooLarge(f"the answer has more than {most} bytes")
        except TimeoutError:
            raise UpstreamTimeout("the server did not answer in time") from None
        finally:
            await exchange.close()
        return exchange.status, _downward(exchange.headers), whole

    async def _begun(self, asked: Asked, execution_id: str | None) -> Exchange:
        if execution_id is not None:
            self.shards.index_of(execution_id)  # refused while nobody knows where it is
        way = self.upstream.base_for(execution_id)
        if not isinstance(way, ExchangeTransport):
            raise TypeError(f"{type(way).__name__} carries no exchange")
        try:
            try:
                return await way.exchange(asked, self.timeout_s)
            except Late:
                raise
            except NoAnswer:
                if asked.method != "GET" or not isinstance(asked.body, bytes):
                    raise
                return await way.exchange(asked, self.timeout_s)
        except Late as fault:
            raise UpstreamTimeout("the server did not answer in time") from fault
        except NoAnswer as fault:
            raise UpstreamUnreachable("the server did not answer") from fault

    def _onward(
        self, person: Person, request: Request, *, is_plain: bool
    ) -> list[tuple[bytes, bytes]]:
        """The headers of the caller that concern the server, and ours."""
        given: list[tuple[bytes, bytes]] = request.scope["headers"]
        named = _connection(given)
        kept = [
            (name, value)
            for name, value in given
            if name not in _NOT_UP
            and not name.startswith(_NOT_UP_PREFIXES)
            and name not in named
            and not (is_plain and name == b"content-encoding")
        ]
        kept.append((b"x-request-id", request_id_of(request).encode("ascii")))
        kept += self._vouched(person)
        return kept

    async def _response(self, exchange: Exchange) -> Response:
        headers = _downward(exchange.headers)
        whole = exchange.body
        if whole is None:
            return Passing(exchange, headers, self.closing)
        response = Response(status_code=exchange.status)
        response.body = whole
        if exchange.status not in _BODILESS and not any(n == b"content-length" for n, _ in headers):
            headers.append((b"content-length", b"%d" % len(whole)))
        response.raw_headers = headers
        await exchange.close()
        return response

    def _vouched(self, person: Person) -> list[tuple[bytes, bytes]]:
        return [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in self.upstream.headers_for(person).items()
        ]


class Passing(Response):
    """An answer that is passed on while it comes."""

    def __init__(
        self,
        exchange: Exchange,
        headers: list[tuple[bytes, bytes]],
        closing: asyncio.Event,
    ) -> None:
        self.status_code = exchange.status
        self.raw_headers = headers
        self.background = None
        self.body = b""
        self._exchange = exchange
        is_endless = any(n == b"content-type" and v.startswith(_EVENTS) for n, v in headers)
        self._closing = closing if is_endless else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what comes; what ends too early ends without its end, as a caller can see."""
        del scope, receive
        try:
            start: dict[str, Any] = {"type": "http.response.start", "status": self.status_code}
            await send({**start, "headers": self.raw_headers})
            parts = self._exchange.parts()
            async for part in parts if self._closing is None else _until(self._closing, parts):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except NoAnswer:
            return
        finally:
            await self._exchange.close()


async def _until(end: asyncio.Event, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What comes before something happens."""
    ending = asyncio.ensure_future(end.wait())
    try:
        while True:
            coming = asyncio.ensure_future(_next(parts))
            try:
                await asyncio.wait((coming, ending), return_when=asyncio.FIRST_COMPLETED)
                part = coming.result() if coming.done() else None
            finally:
                coming.cancel()
            if part is None:
                return
            yield part
    finally:
        ending.cancel()


async def _next(parts: AsyncIterator[bytes]) -> bytes | None:
    return await anext(parts, None)


def _downward(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of the server that concern the caller; places are ours from here on."""
    named = _connection(headers)
    kept = [
        (name, _placed(value) if name == b"location" else value)
        for name, value in headers
        if name not in _NOT_DOWN and name not in named and not name.startswith(_CORS)
    ]
    return [*kept, *_DATA]


def _connection(headers: list[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Headers that concern this connection alone, since it says so."""
    found = [value for name, value in headers if name == b"connection"]
    if not found:
        return frozenset()
    return frozenset(word.strip().lower() for value in found for word in value.split(b","))


def _placed(location: bytes) -> bytes:
    """A place at the server as a place here; one elsewhere stays what it is."""
    found = _LOCATION.match(location)
    return location if found is None else b"/noetl" + (found[1] or b"/")
