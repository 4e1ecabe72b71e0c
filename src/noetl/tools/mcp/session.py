"""A session with an MCP server: it lives in a task of its own, whoever calls.

The client of the SDK must end in the task that began it, and a broken connection ends it as a
whole; so whoever calls waits for the answer and for the end of the session at once.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx2
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from noetl import __version__
from noetl.tools.base import ToolError, remedied
from noetl.tools.interpreter.process import Command
from noetl.tools.interpreter.sandbox import SandboxMissing, Walls
from noetl.tools.mcp.transport import CONNECT_S, Guarded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import IO

    from noetl.tools.http.egress import Guard
    from noetl.tools.interpreter.process import Processes
    from noetl.tools.mcp.places import Way

    T = TypeVar("T")

OPEN_S: Final = 30.0
CLOSE_S: Final = 10.0
MOST_EVENT_BYTES: Final = 64 << 20
STDERR_BYTES: Final = 2048
_UNTOLD: Final = "Server returned an error response"
_CLOSED: Final = "Connection closed"
_GONE: Final = "Session terminated"
_NO_PAGE: Final = "Not Found"
_NO_JSON: Final = "Failed to parse JSON response"


class Session:
    """One session and the task that it lives in."""

    def __init__(self, way: Way, guard: Guard, processes: Processes) -> None:
        self._way = way
        self._processes = processes
        self._transport = Guarded(guard)
        self._is_stale = False
        """The server has forgotten it."""
        self._last_words = ""
        """What a child wrote last on its standard error."""
        self._end = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task = asyncio.get_running_loop().create_task(self._live(), name="mcp")

    @classmethod
    async def open(cls, way: Way, guard: Guard, processes: Processes) -> Session:
        """Begin a session; the server has agreed on a version when it is there."""
        made = cls(way, guard, processes)
        try:
            async with asyncio.timeout(OPEN_S):
                await asyncio.wait((made._task, made._ready), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await made.close()
            message = f"the MCP server did not greet us in {OPEN_S:g} s"
            raise remedied(ToolError("timeout", "CONN_TIMEOUT", message)) from None
        except BaseException:
            await made.close()
            raise
        if not made._ready.done():
            fault = made._task.exception()
            raise made.translated(fault or RuntimeError("the session ended"))
        return made

    @property
    def is_alive(self) -> bool:
        """Whether it may be used."""
        return not (self._is_stale or self._task.done() or self._end.is_set())

    @property
    def client(self) -> Client:
        """The client of the SDK."""
        return self._ready.result()

    async def call(self, ask: Callable[[Client], Awaitable[T]]) -> T:
        """Ask the server; cancelling it closes the request."""

        async def asked() -> T:
            return await ask(self.client)

        self._transport.fault = None
        question = asyncio.get_running_loop().create_task(asked())
        try:
            await asyncio.wait((question, self._task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_answered = question.done()
            if not is_answered:
                question.cancel()
                await asyncio.wait((question,))
        fault = question.exception() if is_answered else self._task.exception()
        if is_answered and fault is None:
            return question.result()
        raise self.translated(fault or ConnectionError("the session ended")) from fault

    async def close(self) -> None:
        """End the session, and its child; one that was not greeted yet hears of no end."""
        self._end.set()
        _, left = await asyncio.wait((self._task,), timeout=CLOSE_S if self._ready.done() else 0)
        for task in left:
            task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def translated(self, fault: BaseException) -> ToolError:
        """What went wrong as an error of the task."""
        known = self._transport.fault
        if isinstance(fault, ToolError):
            return fault
        told = _first(fault)
        if isinstance(told, ToolError):
            return told
        if isinstance(told, MCPError) and told.message.startswith(_NO_JSON):
            message = "the MCP server answered what is no JSON-RPC: check the address of the server"
            return ToolError("parse", "invalid_json", message)
        # The SDK has a word of its own for an answer that is a mere 404.
        if isinstance(told, MCPError) and told.message == _NO_PAGE and known is not None:
            return known
        if isinstance(told, MCPError) and told.message not in {_UNTOLD, _CLOSED, _GONE}:
            details = {"rpc_code": told.code, "data": told.data}
            return ToolError("provider", "mcp_error", told.message, details=details)
        self._is_stale |= isinstance(told, MCPError) and told.message != _UNTOLD
        if known is not None:
            return known
        if self._way.transport == "stdio":
            return self._broken_child(told)
        message = f"the MCP session broke: {str(told) or type(told).__name__}"
        return remedied(ToolError("connection", "CONN_RESET", message))

    def _broken_child(self, fault: BaseException) -> ToolError:
        if isinstance(fault, SandboxMissing):
            return ToolError("sandbox", "sandbox_missing", str(fault))
        message = f"the MCP server `{self._way.argv[0]}` ended"
        return ToolError(
            "process", "mcp_server_ended", message, details={"stderr": self._last_words}
        )

    # ------------------------------------------------------------------ its life

    async def _live(self) -> None:
        async with AsyncExitStack() as stack:
            transport = await stack.enter_async_context(self._opened())
            client = Client(transport, cache=None, client_info=_info())
            self._ready.set_result(await stack.enter_async_context(client))
            await self._end.wait()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Any]:
        way = self._way
        if way.transport == "stdio":
            async with self._child() as transport:
                yield transport
            return
        client = self._http(dict(way.headers))
        if way.transport == "sse":
            yield sse_client(way.url, httpx_client_factory=_Factory(client))
            return
        async with client:
            yield streamable_http_client(
                way.url, http_client=client, max_sse_event_size=MOST_EVENT_BYTES
            )

    def _http(self, headers: dict[str, str]) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers={"user-agent": f"noetl/{__version__}", **headers},
            timeout=httpx2.Timeout(CONNECT_S, read=None),
            transport=self._transport,
            trust_env=False,
        )

    @asynccontextmanager
    async def _child(self) -> AsyncIterator[Any]:
        """A server in a sandbox, on the standard streams of its process."""
        work = self._processes.folder()
        command = Command(argv=self._way.argv, walls=Walls(), on_line=lambda _name, _line: None)
        try:
            words = self._processes.words(command, work, work)
            about = StdioServerParameters(command=words[0], args=words[1:], cwd=work)
            with tempfile.TemporaryFile(prefix="noetl-") as stderr:
                try:
                    yield stdio_client(about, errlog=stderr)  # type: ignore[arg-type]  # its number counts
                finally:
                    self._last_words = _tail(stderr)
        finally:
            self._processes.remove(work)


class _Factory:
    """Gives the SDK the one client that it may use."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    def __call__(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """The client, whose settings stay what they are."""
        del headers, timeout, auth
        return self._client


def _info() -> Any:  # noqa: ANN401 - a model of the SDK
    from mcp_types import Implementation  # noqa: PLC0415 - with the SDK

    return Implementation(name="noetl", version=__version__)


def _tail(file: IO[bytes]) -> str:
    """The end of what was written to a file."""
    size = file.seek(0, 2)
    file.seek(max(0, size - STDERR_BYTES))
    return file.read().decode("utf-8", "replace")


def _first(fault: BaseException) -> BaseException:
    """The reason inside groups of reasons."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault
