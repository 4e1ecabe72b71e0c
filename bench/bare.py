"""A bare HTTP server as a process of its own: one ASGI route that answers at once.

`python -m bench.bare` prints the port that it listens on.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

BODY = b'{"status": "ok"}'
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]


async def app(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Read the request and answer it."""
    assert scope["type"] == "http"
    while (await receive()).get("more_body", False):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": BODY})


@asynccontextmanager
async def bare() -> AsyncIterator[str]:
    """The address of such a process, which ends with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.bare", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


def main() -> None:
    """Serve until SIGTERM."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(
            app, lifespan="off", log_level="warning", access_log=False, http="httptools"
        )
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
