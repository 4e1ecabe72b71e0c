"""One POST of MCP and its answer: nothing is kept between two of them, so any replica answers."""

from __future__ import annotations

import asyncio
import base64
import binascii
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response, StreamingResponse

from noetl.edge.declared import EVENTS
from noetl.edge.door import PATIENT
from noetl.edge.problems import header
from noetl.edge.reading import JSON, MOST_BYTES, body_of
from noetl.errors import NoetlError
from noetl.gateway.errors import SERVER_FAULT, title_of, told
from noetl.gateway.mcp import protocol
from noetl.gateway.mcp.builtin import BUILTINS
from noetl.gateway.mcp.calls import ToolCalls
from noetl.gateway.mcp.protocol import INTERNAL_ERROR, METHOD_NOT_FOUND, RpcFault
from noetl.gateway.mcp.tools import KEPT_S, PAGE, Toolbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from noetl.gateway.gate import Gate
    from noetl.gateway.mcp.calls import Tell
    from noetl.gateway.mcp.protocol import Call
    from noetl.gateway.person import Person

PING_S: Final = 15.0
MOST_TOLD: Final = 64
_ACCEPTED: Final = 202
_HEADERS: Final = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}


class Mcp:
    """Answers MCP."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._toolbox = Toolbox(gate.upstream, gate.clock)
        self._calls = ToolCalls(gate, self._toolbox)

    async def answer(self, person: Person, request: Request) -> Response:
        """The answer to one message."""
        self._gate.cors.must_trust(request)  # which may reach us where its page may not
        body = await body_of(request, MOST_BYTES)
        is_modern = header(request, b"mcp-protocol-version") == protocol.MODERN
        try:
            call = protocol.read(body, request.headers)
        except RpcFault as fault:
            return protocol.refused(protocol.id_of(body), fault, is_modern=is_modern)
        if call is None:
            return Response(status_code=_ACCEPTED)
        request.scope[PATIENT] = True
        if _is_followed(call) and EVENTS in (header(request, b"accept") or ""):
            frames = self._frames(person, call)
            return StreamingResponse(frames, media_type=EVENTS, headers=_HEADERS)
        try:
            return Response(
                protocol.answered(call, await self._done(person, call)), media_type=JSON
            )
        except RpcFault as fault:
            return protocol.refused(call.id, fault, is_modern=call.is_modern)

    async def _frames(self, person: Person, call: Call) -> AsyncIterator[bytes]:
        """What is told meanwhile, then the answer."""
        waiting: asyncio.Queue[bytes] = asyncio.Queue(MOST_TOLD)
        token, count = call.meta.get("progressToken"), 0

        async def tell(message: str, share: float | None) -> None:
            """The number always grows; the share of a playbook is what it is of the total."""
            nonlocal count
            count += 1
            about = {"progressToken": token, "progress": count, "message": message}
            if share:
                about["total"] = max(count / share, count)
            await waiting.put(protocol.notified("notifications/progress", about))

        told = None if token is None else tell
        task = asyncio.get_running_loop().create_task(self._closed(person, call, told))
        try:
            while not task.done():
                getting = asyncio.ensure_future(waiting.get())
                await asyncio.wait(
                    (task, getting), timeout=PING_S, return_when=asyncio.FIRST_COMPLETED
                )
                if getting.done():
                    yield _framed(getting.result())
                elif not getting.cancel() or not task.done():
                    yield b": \n\n"
            while not waiting.empty():
                yield _framed(waiting.get_nowait())
            yield _framed(task.result())
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _closed(self, person: Person, call: Call, tell: Tell | None) -> bytes:
        try:
            return protocol.answered(call, await self._done(person, call, tell))
        except RpcFault as fault:
            return protocol.failed(call.id, fault)

    async def _done(self, person: Person, call: Call, tell: Tell | None = None) -> dict[str, Any]:
        try:
            return await self._handled(person, call, tell)
        except NoetlError as error:
            seen = told(error)
            if not isinstance(seen, NoetlError):
                raise
            message = seen.message if seen.status < SERVER_FAULT else title_of(seen)
            raise RpcFault(INTERNAL_ERROR, message, {"code": seen.code}) from None

    async def _handled(self, person: Person, call: Call, tell: Tell | None) -> dict[str, Any]:
        match call.method, call.is_modern:
            case "initialize", False:
                return protocol.greeting(call)
            case "server/discover", True:
                return protocol.discovery()
            case "ping", False:
                return {}
            case "tools/list", _:
                return await self._listed(person, call)
            case "tools/call", _:
                return await self._calls.call(person, call, tell)
            case "tasks/get", _:
                return await self._calls.task(person, call)
            case "tasks/cancel", _:
                return await self._calls.cancelled(person, call)
            case "tasks/result", False:
                return await self._calls.task_result(person, call)
            case "tasks/list", False:
                return await self._calls.tasks(person)
        raise RpcFault(METHOD_NOT_FOUND, f"Method not found: {call.method[:100]}")

    async def _listed(self, person: Person, call: Call) -> dict[str, Any]:
        tools = await self._toolbox.of(person, BUILTINS)
        names = sorted({*BUILTINS, *tools})
        begin = bisect_right(names, _position(call.params.get("cursor")))
        page = names[begin : begin + PAGE]
        with_tasks = call.version == protocol.WITH_TASKS
        shown = [
            BUILTINS[name].shown() if name in BUILTINS else tools[name].shown(with_tasks=with_tasks)
            for name in page
        ]
        made: dict[str, Any] = {"tools": shown}
        if begin + PAGE < len(names):
            made["nextCursor"] = base64.urlsafe_b64encode(page[-1].encode()).decode()
        return made | protocol.cached(int(KEPT_S * 1000)) if call.is_modern else made


def _is_followed(call: Call) -> bool:
    """Whether something may be told before the answer, or the answer may take long."""
    if call.method == "tools/call":
        return call.meta.get("progressToken") is not None
    return call.method == "tasks/result"


def _position(cursor: object) -> str:
    """The name that a page ended with."""
    if cursor is None:
        return ""
    try:
        return base64.urlsafe_b64decode(str(cursor).encode("ascii")).decode()
    except (binascii.Error, UnicodeError, ValueError):
        raise RpcFault(protocol.INVALID_PARAMS, "`cursor` is not one of ours") from None


def _framed(message: bytes) -> bytes:
    return b"event: message\ndata: %b\n\n" % message
