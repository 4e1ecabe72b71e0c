"""Health and numbers of a process over HTTP: four pages, read by probes and scrapers."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.telemetry.metrics import MEDIA_TYPE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

TICK_S: Final = 1.0
SILENT_S: Final = 10.0
_PATIENCE_S: Final = 5.0
_MOST_BYTES: Final = 8 << 10
_JSON: Final = "application/json"
_encode: Final = msgspec.json.Encoder().encode

_log = logging.getLogger(__name__)

Page = tuple[int, str, bytes]


class Health:
    """What the pages say."""

    def __init__(
        self,
        reasons: Callable[[], tuple[str, ...]],
        render: Callable[[], bytes],
        about: Mapping[str, Any],
        ailments: Callable[[], tuple[str, ...]] = lambda: (),
    ) -> None:
        """Take why it is not ready, its numbers, what it is, and why it is not well."""
        self._reasons = reasons
        self._render = render
        self._about = dict(about)
        self._ailments = ailments
        self._ticked = 0.0

    async def tick(self) -> None:
        """Note that the loop turns, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._ticked = loop.time()
            await asyncio.sleep(TICK_S)

    def page(self, path: str) -> Page:
        """One page: its status, media type and body."""
        match path.partition("?")[0]:
            case "/livez" | "/healthz" | "/health":
                return self._alive(path.startswith("/health"))
            case "/readyz" | "/ready":
                reasons = self._reasons()
                told = {"ready": not reasons, "reasons": reasons}
                return (503 if reasons else 200), _JSON, _encode(told)
            case "/metrics":
                return 200, MEDIA_TYPE, self._render()
        told = {"code": "not_found", "status": 404, "detail": f"there is no page {path}"}
        return 404, _JSON, _encode(told)

    def _alive(self, is_long: bool) -> Page:  # noqa: FBT001 - which of the two pages
        silent_s = asyncio.get_running_loop().time() - self._ticked
        is_alive = silent_s < SILENT_S
        told: dict[str, Any] = {"status": "ok" if is_alive else "stuck"}
        if is_long:
            told |= self._about
            ailments = self._ailments()
            if is_alive and ailments:
                told |= {"status": "ill", "reasons": ailments}
                is_alive = False
        return (200 if is_alive else 503), _JSON, _encode(told)


@asynccontextmanager
async def serving(health: Health, bind: str) -> AsyncIterator[int]:
    """Answer on `host:port` while the block runs; yields the port."""
    host, _, port = bind.rpartition(":")
    answering = _Answering(health)
    server = await asyncio.start_server(
        answering.talk, host.strip("[]"), int(port), limit=_MOST_BYTES
    )
    ticking = asyncio.create_task(health.tick(), name="health:tick")
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        ticking.cancel()
        server.close()
        await answering.end()
        await asyncio.gather(ticking, return_exceptions=True)


class _Answering:
    """Connections of probes, each kept until it is silent for some seconds."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._open: set[asyncio.Task[None]] = set()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer request after request."""
        task = asyncio.current_task()
        if task is not None:
            self._open.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            return  # a probe that went away needs no answer
        except asyncio.LimitOverrunError:
            writer.write(_answer((431, _JSON, b"{}"), is_last=True))
        except asyncio.CancelledError:
            return  # the end of the process
        finally:
            if task is not None:
                self._open.discard(task)
            writer.close()

    async def end(self) -> None:
        """Close every connection."""
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        async with asyncio.timeout(_PATIENCE_S):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, _, rest = head.partition("\r\n")
        words = line.split(" ")
        is_last = "connection: close" in rest.lower() or not line.endswith("HTTP/1.1")
        if len(words) != 3:  # noqa: PLR2004 - method, path, version
            page, is_last = (400, _JSON, _encode({"status": 400, "code": "bad_request"})), True
        elif words[0] not in {"GET", "HEAD"}:
            page, is_last = (405, _JSON, _encode({"status": 405, "code": "bad_method"})), True
        else:
            page = self._page(words[1])
        writer.write(_answer(page, is_last=is_last, is_bare=words[0] == "HEAD"))
        async with asyncio.timeout(_PATIENCE_S):
            await writer.drain()
        return not is_last

    def _page(self, path: str) -> Page:
        try:
            return self._health.page(path)
        except Exception:  # noqa: BLE001 - the border: a page that fails is an answer too
            _log.exception("a page failed")
            return 500, _JSON, _encode({"status": 500, "code": "internal"})


def _answer(page: Page, *, is_last: bool, is_bare: bool = False) -> bytes:
    status, media_type, body = page
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        f"Content-Type: {media_type}\r\nContent-Length: {len(body)}\r\n"
        f"Cache-Control: no-store\r\n"
        f"Connection: {'close' if is_last else 'keep-alive'}\r\n\r\n"
    ).encode("latin-1")
    return head if is_bare else head + body
