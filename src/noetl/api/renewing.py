"""A transport whose bearer is asked for when it is needed, and once more when it is refused."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from noetl.api.http import NO_HEADERS
from noetl.api.sse import StreamTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from noetl.api.http import Answer, Transport

TokenSource = Callable[[], str | Awaitable[str]]
"""Gives the bearer to use from now on."""

_REFUSED: Final = 401


class RenewingTransport:
    """Carries requests with the newest bearer; a 401 asks for another one, once."""

    def __init__(self, transport: Transport, ask: TokenSource) -> None:
        self._transport = transport
        self._ask = ask
        self._token = ""
        self._asking = asyncio.Lock()

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS
    ) -> Answer:
        """The answer; `NoAnswer` when there is none."""
        used = await self._other_than("")
        answer = await self._transport.request(method, path, body, _with(headers, used))
        if answer.status != _REFUSED:
            return answer
        used = await self._other_than(used)
        return await self._transport.request(method, path, body, _with(headers, used))

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str] = NO_HEADERS
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """An answer of any length: its status, and its parts as they come."""
        transport = self._transport
        if not isinstance(transport, StreamTransport):
            raise TypeError(f"{type(transport).__name__} carries no streams")
        used = await self._other_than("")
        async with transport.stream(path, _with(headers, used)) as (status, chunks):
            if status != _REFUSED:
                yield status, chunks
                return
        used = await self._other_than(used)
        async with transport.stream(path, _with(headers, used)) as (status, chunks):
            yield status, chunks

    async def _other_than(self, refused: str) -> str:
        """The bearer; those who were refused together ask for one together."""
        async with self._asking:
            if self._token == refused:
                told = self._ask()
                self._token = await told if inspect.isawaitable(told) else told
            return self._token


def _with(headers: Mapping[str, str], token: str) -> dict[str, str]:
    return {**headers, "authorization": f"Bearer {token}"}
