"""The server of a command: where it is, with which bearer, and how it is talked to."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from noetl.api.client import Client
from noetl.api.http import NO_HEADERS, NoAnswer
from noetl.api.sockets import SocketTransport
from noetl.cli.contexts import Context, checked_url, contents, read_contexts, session_of
from noetl.cli.failures import CommandFailed, failure_of
from noetl.cli.stacks import running_stack
from noetl.cli.where import Where
from noetl.clock import SystemClock
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from noetl.api.http import Answer
    from noetl.cli.output import Output

T = TypeVar("T")

DEFAULT_URL: Final = "http://127.0.0.1:8082"
DEFAULT_GATEWAY: Final = "http://127.0.0.1:8090"
TRIES: Final = 4
LONGEST_PAUSE_S: Final = 5.0
"""Whoever is told to wait longer is told so, instead of waiting."""
SILENCE_S: Final = 45.0
"""A stream says something every 15 s; one that does not has lost its server."""
_LIMITED: Final = 429
_BUSY: Final = (_LIMITED, 503)
_API: Final = "/api/"
_BEHIND: Final = "/noetl/"
"""The gateway's name for the API of the server behind it."""
_ONCE: Final = ("/api/execute/batch", "/noetl/execute/batch")
"""What a server may have done although it lost its database, and would do twice."""
_TELLING: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server, or its gateway, and the bearer for it."""

    url: str
    token: str = field(default="", repr=False)
    is_gateway: bool = False


def target_url(out: Output) -> str:
    """Where the server is that is meant: option, environment, context, stack, default."""
    where = out.where or Where()
    return place_of(out, where, known_to(out, where))[0]


def target_of(out: Output) -> Target:
    """The server that is meant, and the bearer for it."""
    where = out.where or Where()
    known = known_to(out, where)
    url, is_gateway = place_of(out, where, known)
    token = _token(out, where)
    # A bearer is for its own server: it is not sent to another one.
    if not token and known is not None and url in {known.server_url, known.gateway_url}:
        token = session_of(known) or (contents(known.token_file) if known.token_file else "")
    if not (token.isascii() and token.isprintable()) or " " in token:
        message = "the token has characters that no token has"
        raise CommandFailed("usage", message, hint="check the file or the variable it comes from")
    return Target(url=url, token=token, is_gateway=is_gateway)


def place_of(out: Output, where: Where, known: Context | None) -> tuple[str, bool]:
    """The address that is meant, and whether a gateway is there."""
    if where.server_url:
        return checked_url(where.server_url), where.gateway
    if where.host or where.port:
        host, port = where.host or "127.0.0.1", where.port or (8090 if where.gateway else 8082)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}", where.gateway
    name = "NOETL_GATEWAY_URL" if where.gateway else "NOETL_SERVER_URL"
    told = out.settings.gateway_url if where.gateway else out.settings.server_url
    if told and not where.context:
        return checked_url(told, name), where.gateway
    if where.gateway:
        if known is not None and not known.gateway_url:
            message = f"no gateway is known of {known.server_url}"
            raise CommandFailed("usage", message, hint="name it with NOETL_GATEWAY_URL")
        return known.gateway_url if known else DEFAULT_GATEWAY, True
    if known is None:
        return DEFAULT_URL, False
    return known.server_url or known.gateway_url, not known.server_url


def _token(out: Output, where: Where) -> str:
    """The bearer that an option or a variable names."""
    settings = out.settings
    if where.token_file:
        return contents(where.token_file)
    if where.session_token:
        out.note("warning: the process list shows --session-token; use --token-file")
        return where.session_token
    if where.context:
        return ""
    of_file = contents(settings.token_file) if settings.token_file else ""
    return settings.token or of_file or settings.session_token


def known_to(out: Output, where: Where) -> Context | None:
    """The context that is named or current, else the embedded stack that runs here."""
    contexts = read_contexts()
    name = where.context or out.settings.context or contexts.current
    if name:
        found = contexts.entries.get(name)
        is_needed = where.context or not (where.server_url or where.host or where.port)
        if found is None and is_needed:
            raise no_context(name, tuple(contexts.entries))
        return found
    stack = running_stack(out.settings.home)
    if stack is None:
        return None
    return Context(server_url=stack.url, token_file=stack.token_file, gateway_url=stack.gateway_url)


def no_context(name: str, known: tuple[str, ...]) -> CommandFailed:
    """A name that nobody gave."""
    from noetl.cli.text import nearest

    hint = nearest(name, known) if known else "make one with `noetl context add`"
    return CommandFailed("context_not_found", f"there is no context `{name}`", hint=hint)


class Patient:
    """A transport that tries again what a busy server turned away, and tells with `-vv`."""

    def __init__(
        self,
        below: SocketTransport,
        out: Output,
        headers: Mapping[str, str],
        *,
        is_gateway: bool = False,
    ) -> None:
        self._below = below
        self._out = out
        self._headers = headers
        self._clock = SystemClock()
        self._is_gateway = is_gateway

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS
    ) -> Answer:
        """The answer; the last one, when the server stays busy."""
        sent = {**headers, **self._headers}
        path = self._there(path)
        left = TRIES
        while True:
            left -= 1
            since = self._clock.monotonic()
            answer = await self._below.request(method, path, body, sent)
            self._tell(method, path, answer.status, since)
            pause_s = _pause_s(answer)
            may_repeat = answer.status == _LIMITED or path not in _ONCE
            is_last = not left or not may_repeat or pause_s > LONGEST_PAUSE_S
            if answer.status not in _BUSY or is_last:
                return answer
            await asyncio.sleep(pause_s)

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str] = NO_HEADERS
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """An answer of any length; a server that falls silent is gone."""
        since = self._clock.monotonic()
        path = self._there(path)
        async with self._below.stream(path, headers) as (status, chunks):
            self._tell("GET", path, status, since)
            yield status, _lively(chunks)

    def _there(self, path: str) -> str:
        """A path of the server as the gateway knows it."""
        is_api = self._is_gateway and path.startswith(_API)
        return f"{_BEHIND}{path.removeprefix(_API)}" if is_api else path

    def _tell(self, method: str, path: str, status: int, since: float) -> None:
        if self._out.verbosity >= _TELLING:
            passed_ms = (self._clock.monotonic() - since) * 1000
            self._out.note(f"{method} {path} {status} {passed_ms:.0f} ms")


async def _lively(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(SILENCE_S):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise NoAnswer(f"the server has said nothing for {SILENCE_S:g} s") from None
        yield chunk


def _pause_s(answer: Answer) -> float:
    """How long the server asks to wait."""
    try:
        return max(0.0, float(answer.headers.get("retry-after", "1")))
    except ValueError:
        return 1.0


@asynccontextmanager
async def connected(out: Output, headers: Mapping[str, str] = NO_HEADERS) -> AsyncIterator[Client]:
    """A client of the server that is meant."""
    target = target_of(out)
    where = out.where or Where()
    transport = SocketTransport(target.url, token=target.token, timeout_s=where.request_timeout)
    try:
        yield Client(Patient(transport, out, headers, is_gateway=target.is_gateway))
    finally:
        await transport.close()


def ask(
    out: Output, work: Callable[[Client], Awaitable[T]], headers: Mapping[str, str] = NO_HEADERS
) -> T:
    """Do something with the server; what it refuses ends the command."""

    async def main() -> T:
        async with connected(out, headers) as client:
            return await work(client)

    try:
        return asyncio.run(main())
    except NoetlError as fault:
        raise failure_of(fault) from fault
