"""A real MCP server of the official SDK, on a local socket or on standard streams."""

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

STDIO = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("child")
@server.tool()
def add(a: int, b: int) -> int:
    return a + b
@server.tool()
def environment() -> list[str]:
    import os
    return sorted(os.environ)
server.run("stdio")
"""
STDIO_ARGV = (sys.executable, "-c", STDIO)


class McpServer:
    """A server in a thread; it remembers the headers that it saw."""

    def __init__(self) -> None:
        self.port = 0
        self.headers: list[dict[str, str]] = []
        self.cancelled = threading.Event()
        self.waiting = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, daemon=True)

    @property
    def url(self) -> str:
        """Where streamable HTTP is served."""
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def sse_url(self) -> str:
        """Where SSE is served."""
        return f"http://127.0.0.1:{self.port}/sse"

    def start(self) -> None:
        """Start, and wait until it listens."""
        self._thread.start()
        assert self._ready.wait(30)

    def stop(self) -> None:
        """Stop, and wait for the end."""
        self._server.should_exit = True
        self._thread.join(10)

    def _main(self) -> None:
        import uvicorn  # noqa: PLC0415 - slow to import, and most tests need none

        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        self.port = sock.getsockname()[1]
        config = uvicorn.Config(self._app(), log_level="error", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        asyncio.run(self._serve(sock))

    async def _serve(self, sock: socket.socket) -> None:
        serving = asyncio.create_task(self._server.serve([sock]))
        while not self._server.started and not serving.done():  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.005)
        self._ready.set()
        await serving

    def _app(self):
        from mcp.server.mcpserver import Context, MCPServer  # noqa: PLC0415 - as above
        from mcp.server.mcpserver.exceptions import ToolError  # noqa: PLC0415 - as above

        server = MCPServer("desk", version="7")

        @server.tool()
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        @server.tool()
        def fail(why: str) -> str:
            raise ToolError(why)

        @server.tool()
        async def slow(ctx: Context) -> str:
            for step in (1, 2):
                await ctx.report_progress(step, 2, f"step {step}")
            return "done"

        @server.tool()
        async def wait() -> str:
            self.waiting.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "never"

        @server.resource("desk://ticket/{number}")
        def ticket(number: str) -> str:
            return f"ticket {number}"

        @server.prompt()
        def greet(name: str) -> str:
            return f"Hello {name}"

        app = server.streamable_http_app()
        app.router.routes.extend(server.sse_app().router.routes)
        return _Noting(app, self.headers)


class _Noting:
    """Notes the headers of every request; `x-refuse` is answered with that status."""

    def __init__(self, app, headers) -> None:
        self._app, self._headers = app, headers

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http":
            found = {name.decode(): value.decode() for name, value in scope["headers"]}
            self._headers.append(found)
            if "x-refuse" in found:
                status = int(found["x-refuse"])
                await send({"type": "http.response.start", "status": status, "headers": []})
                await send({"type": "http.response.body", "body": b"no"})
                return
        await self._app(scope, receive, send)


@pytest.fixture(scope="session")
def mcp_server() -> Iterator[McpServer]:
    """The server of this test process, shared by its tests."""
    server = McpServer()
    server.start()
    yield server
    server.stop()
