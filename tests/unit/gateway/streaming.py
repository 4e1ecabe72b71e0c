"""Clients of streams without a socket: server-sent events and WebSockets, straight on the app."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from noetl.edge.door import GONE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

WAIT_S = 20.0


async def until(is_so: Callable[[], object]) -> None:
    """Wait for what nobody tells."""
    async with asyncio.timeout(2 * WAIT_S):
        while not is_so():  # noqa: ASYNC110 - there is no event of it
            await asyncio.sleep(0.02)


class Events:
    """A reader of `/events`."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.seen: list[dict[str, str]] = []
        """Every event in order: `event`, `id`, `data`, and `retry`."""
        self.is_over = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._read = 0
        self._changed = asyncio.Event()

    def stall(self) -> None:
        """Take nothing any more."""
        self._flowing.clear()

    def flow(self) -> None:
        """Take what comes again."""
        self._flowing.set()

    async def send(self, message: Mapping[str, Any]) -> None:
        """What the app writes."""
        await self._flowing.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {n.decode(): v.decode() for n, v in message["headers"]}
        else:
            self.body += message["body"]
            self.is_over = not message.get("more_body", False)
        self._parse()
        self._changed.set()

    def _parse(self) -> None:
        *blocks, _ = self.body[self._read :].split(b"\n\n")
        for block in blocks:
            self._read += len(block) + 2
            fields: dict[str, str] = {}
            for line in block.decode().split("\n"):
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
            self.seen.append(fields)

    def bodies(self, method: str) -> list[dict[str, Any]]:
        """The params of every message of a method so far."""
        told = [json.loads(one["data"]) for one in self.seen if "data" in one]
        return [one["params"] for one in told if one.get("method") == method]

    def ids(self) -> list[str]:
        """The ids of events so far."""
        return [one["id"] for one in self.seen if "id" in one]

    @property
    def init(self) -> dict[str, Any]:
        """The first message."""
        first = next(one for one in self.seen if "data" in one)
        return json.loads(first["data"])["result"]

    @property
    def problem(self) -> dict[str, Any]:
        """The body of a refusal."""
        return json.loads(self.body)

    async def until(self, is_so: Any) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(WAIT_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def got(self, method: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait for so many messages of a method."""
        await self.until(lambda: len(self.bodies(method)) >= count)
        return self.bodies(method)

    async def over(self) -> None:
        """Wait for the end."""
        await self.until(lambda: self.is_over)


@asynccontextmanager
async def events(
    app: Any, headers: Mapping[str, str] | None = None, **query: str
) -> AsyncIterator[Events]:
    """Read a stream until the block ends: then the caller has left."""
    reader = Events()
    scope = _scope("http", "/events", headers or {}, query)
    task = asyncio.create_task(app(scope, _never, reader.send))
    task.add_done_callback(lambda _: reader._changed.set())  # noqa: SLF001 - our own
    try:
        await reader.until(lambda: reader.status and (reader.seen or reader.is_over or task.done()))
        yield reader
    finally:
        if not task.done():
            scope[GONE] = True
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not [one for one in asyncio.all_tasks() if one is task]


class Socket:
    """The client's end of `/ws`."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.inbox.put_nowait({"type": "websocket.connect"})
        self.denied: tuple[int, bytes] | None = None
        self.subprotocol: str | None = None
        self.is_accepted = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.code: int | None = None
        self.told: list[dict[str, Any]] = []
        self._status = 0
        self._count = 0
        self._changed = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        """What the app reads."""
        return await self.inbox.get()

    def stall(self) -> None:
        """Take nothing any more."""
        self._flowing.clear()

    def flow(self) -> None:
        """Take what comes again."""
        self._flowing.set()

    async def send(self, message: Mapping[str, Any]) -> None:
        """What the app writes."""
        await self._flowing.wait()
        match message["type"]:
            case "websocket.accept":
                self.is_accepted, self.subprotocol = True, message.get("subprotocol")
            case "websocket.http.response.start":
                self._status = message["status"]
            case "websocket.http.response.body":
                self.denied = (self._status, message["body"])
            case "websocket.send":
                self.told.append(json.loads(message["text"]))
            case "websocket.close":
                self.code = message["code"]
                self.inbox.put_nowait({"type": "websocket.disconnect", "code": self.code})
        self._changed.set()

    def say(self, method: str, params: Any = None, **more: Any) -> int:
        """Call a method; the id of the call."""
        self._count += 1
        body = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params or {}}
        self.text(json.dumps({**body, **more}))
        return self._count

    def text(self, text: str) -> None:
        """Send a text as it is."""
        self.inbox.put_nowait({"type": "websocket.receive", "text": text})

    async def until(self, is_so: Any) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(WAIT_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def call(self, method: str, params: Any = None) -> dict[str, Any]:
        """The answer of a call."""
        number = self.say(method, params)
        return await self.answer(number)

    async def answer(self, number: object) -> dict[str, Any]:
        """The answer of an id."""

        def found() -> dict[str, Any] | None:
            return next((one for one in self.told if one.get("id") == number), None)

        await self.until(lambda: found() is not None)
        made = found()
        assert made is not None
        return made

    def bodies(self, method: str) -> list[dict[str, Any]]:
        """The params of every message of a method so far."""
        return [one["params"] for one in self.told if one.get("method") == method]

    async def got(self, method: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait for so many messages of a method."""
        await self.until(lambda: len(self.bodies(method)) >= count)
        return self.bodies(method)

    async def closed(self) -> int:
        """Wait for the end; its code."""
        await self.until(lambda: self.code is not None)
        assert self.code is not None
        return self.code


@asynccontextmanager
async def socket(
    app: Any,
    headers: Mapping[str, str] | None = None,
    subprotocols: tuple[str, ...] = (),
    path: str = "/ws",
    **query: str,
) -> AsyncIterator[Socket]:
    """Hold a WebSocket until the block ends: then the client has left."""
    made = Socket()
    scope = _scope("websocket", path, headers or {}, query)
    scope |= {
        "subprotocols": list(subprotocols),
        "extensions": {"websocket.http.response": {}},
        "scheme": "ws",
    }
    del scope["method"]  # an upgrade has none
    task = asyncio.create_task(app(scope, made.receive, made.send))
    task.add_done_callback(lambda _: made._changed.set())  # noqa: SLF001 - our own
    try:
        await made.until(lambda: made.is_accepted or made.denied or task.done())
        yield made
    finally:
        made.inbox.put_nowait({"type": "websocket.disconnect", "code": 1005})
        async with asyncio.timeout(WAIT_S):
            await task


def _scope(
    kind: str, path: str, headers: Mapping[str, str], query: Mapping[str, str]
) -> dict[str, Any]:
    given = {"host": "gateway.test", **headers}
    return {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": urlencode(query).encode(),
        "root_path": "",
        "headers": [(n.lower().encode(), v.encode()) for n, v in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("gateway.test", 80),
    }


async def _never() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError
