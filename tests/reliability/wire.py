"""A connection between two parts that a test cuts."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager


class Wire:
    """A way to a server that can be cut."""

    def __init__(self, port):
        self._target = port
        self._tasks = set()
        self._used = asyncio.Event()
        self.is_cut = False
        self.port = 0

    @asynccontextmanager
    async def open(self):
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()
            if self._tasks:
                await asyncio.wait(self._tasks)
            await server.wait_closed()

    def cut(self):
        """End what is connected, refuse what comes."""
        self.is_cut = True
        self._used.clear()
        for task in self._tasks:
            task.cancel()

    def heal(self):
        self.is_cut = False

    async def carries(self):
        """Wait until somebody is connected."""
        await self._used.wait()

    def _accepted(self, reader, writer):
        if self.is_cut:
            writer.close()
            return
        self._used.set()
        task = asyncio.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader, writer):
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        both = [
            asyncio.create_task(_copy(reader, back)),
            asyncio.create_task(_copy(there, writer)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.wait(both)
            writer.close()
            back.close()


async def _copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        return
