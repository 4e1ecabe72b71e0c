"""One more process of a stack that runs: a server on its database, a worker of a pool."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bench.stack import NOETL
from noetl.api.client import Client
from noetl.api.http import NoAnswer
from noetl.api.sockets import SocketTransport
from noetl.local.embedded.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.stack import Stack

READY_S = 30.0
LOOK_AGAIN_S = 0.05


@asynccontextmanager
async def server(stack: Stack, port: int) -> AsyncIterator[Client]:
    """One more server, which ends with the block."""
    async with _process(stack, port, "server", f"--port={port}", "--metrics-port=off"):
        transport = SocketTransport(f"http://127.0.0.1:{port}", token=stack.token)
        try:
            yield Client(transport)
        finally:
            await transport.close()


@asynccontextmanager
async def worker(stack: Stack, pool: str, name: str, slots: int) -> AsyncIterator[None]:
    """One more worker, which ends with the block; the first of a pool makes the pool."""
    port = free_port()
    words = (f"--pool={pool}", f"--id={name}", f"--slots={slots}")
    async with _process(stack, port, "worker", *words, f"--metrics-bind=127.0.0.1:{port}"):
        yield


@asynccontextmanager
async def _process(stack: Stack, port: int, *words: str) -> AsyncIterator[None]:
    """A process of ours, once it is ready."""
    process = await asyncio.create_subprocess_exec(
        NOETL, *words, env=dict(stack.environ), cwd="/",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    transport = SocketTransport(f"http://127.0.0.1:{port}")
    try:
        async with asyncio.timeout(READY_S):
            while not await _is_ready(transport):  # noqa: ASYNC110 - another process starts
                await asyncio.sleep(LOOK_AGAIN_S)
        yield
    finally:
        await transport.close()
        process.terminate()
        await process.wait()


async def _is_ready(transport: SocketTransport) -> bool:
    try:
        return (await transport.request("GET", "/readyz")).status == 200  # noqa: PLR2004 - well
    except NoAnswer:
        return False
