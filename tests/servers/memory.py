"""A server on memory parts and a real socket, in a thread of its own; with a worker if wanted."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from noetl.api.client import Client
from noetl.api.http import AsgiTransport
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.edge.http import bound, listener
from noetl.ids import Ids
from noetl.local.credentials import wallet
from noetl.local.crew import Crew
from noetl.local.watch import Watch
from noetl.local.workshop import workshop
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.store.memory.store import MemoryStore
from noetl.worker.app import WorkerParts

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

SLOTS = 4


class MemoryServer:
    """`with` runs it; `client` is a door of its own, `restart` another process on the same data."""

    def __init__(self, folder: Path | None = None, **parts: Any) -> None:
        self.folder = folder
        self.port = 0
        self._parts = parts
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._fault: BaseException | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        """Start, and wait until it listens."""
        self._thread.start()
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and wait for the end."""
        self._is_last = True
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def stop(self) -> None:
        """Stop listening; `restart` listens again."""
        self._ready.clear()
        self.loop.call_soon_threadsafe(self._stop.set)
        self._wait()

    def restart(self) -> None:
        """Listen again on the same port, as another process on the same data."""
        self._ready.clear()
        self.loop.call_soon_threadsafe(self._again.set)
        self._wait()

    def call(self, work: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
        """Do something with the server from the test's own thread."""
        return asyncio.run_coroutine_threadsafe(work(self.client), self.loop).result(20)

    def _wait(self) -> None:
        assert self._ready.wait(20)
        if self._fault is not None:
            raise self._fault

    async def _main(self) -> None:
        try:
            self.loop = asyncio.get_running_loop()
            self._stop, self._again, self._is_last = asyncio.Event(), asyncio.Event(), False
            self.watch = Watch()
            self.clock = SystemClock()
            self.ids = Ids(self.clock)
            self._wallet = wallet(self.clock)
            self.store = MemoryStore(on_commit=self.watch.commit)
            async with AsyncExitStack() as stack:
                self._tools: Any = {}
                if self.folder is not None:
                    shop = await stack.enter_async_context(workshop(SLOTS))
                    self._tools = await stack.enter_async_context(
                        shop.tools(self.folder, self.clock)
                    )
                while not self._is_last:
                    await self._serve()
                    self._stop.clear()
                    if not self._is_last:
                        self._ready.set()
                        waits = [asyncio.ensure_future(e.wait()) for e in (self._again, self._stop)]
                        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                        for wait in waits:
                            wait.cancel()
                        self._again.clear()
        except BaseException as fault:
            self._fault = fault
            self._ready.set()
            raise

    async def _serve(self) -> None:
        blobs = MemoryBlobs()
        parts = ServerParts(
            store=self.store, bus=MemoryBus(), blobs=blobs, clock=self.clock, ids=self.ids,
            **{"wallet": self._wallet} | self._parts,
        )  # fmt: skip
        server = create_server(parts)
        self.client = Client(AsgiTransport(server.asgi))
        work = WorkerParts(
            client=self.client, tools=self._tools, clock=self.clock, ids=self.ids,
            worker_id="w", slots=SLOTS, blobs=blobs,
        )  # fmt: skip
        with bound("127.0.0.1", self.port) as opened:
            self.port = opened.getsockname()[1]
            async with server, asyncio.TaskGroup() as group, Crew(group, work) as crew:
                if self.folder is not None:
                    crew.serve("shared")
                    self.watch.on_pool = crew.serve
                api = listener(server.asgi)
                serving = group.create_task(api.serve([opened]))
                while not api.started:  # noqa: ASYNC110 - the class below tells nobody
                    await asyncio.sleep(0.001)
                self._ready.set()
                await self._stop.wait()
                self.watch.on_pool = None
                server.plane.streams.drain()
                api.stop()
                await serving
