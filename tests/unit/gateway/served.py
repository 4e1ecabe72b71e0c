"""Apps of this process on sockets of this machine, each on a port that is free."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from noetl.edge.http import bound, listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.api.http import App


@asynccontextmanager
async def served(app: App, **heard: Any) -> AsyncIterator[str]:
    """The address of an app, as long as it is heard there."""
    made = bound("127.0.0.1", 0)
    port = made.getsockname()[1]
    server = listener(app, **heard)
    task = asyncio.create_task(server.serve([made]))
    try:
        async with asyncio.timeout(20):
            await server.heard.wait()
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()
        async with asyncio.timeout(20):
            await task
