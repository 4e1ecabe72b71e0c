"""A server of a test: it listens while it is asked to, and leaves no task behind."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager


@asynccontextmanager
async def listening(accepted, leave):
    """Listen on a free port, which is given; `leave` ends what was accepted and names its tasks."""
    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        if tasks := leave():
            await asyncio.wait(tasks)
        await server.wait_closed()


def cancelled(tasks):
    """End tasks; they, to be waited for."""
    for task in (ending := list(tasks)):
        task.cancel()
    return ending
