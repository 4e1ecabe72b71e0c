"""A real nats-server per test process: ready in milliseconds, wiped for those who ask."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from noetl.bus.address import Address
from noetl.bus.link import Link
from noetl.local.nats import Nats

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


PASSWORD = "p@ss:w/rd"  # noqa: S105 - of a server that lives for a test, with signs that need care

CLEARED_S = 20.0


class NatsServer:
    """A server that tests may kill, wipe and start again; the port stays the same."""

    def __init__(self, directory: Path, *, more: str = "") -> None:
        self.nats = Nats(directory, user="noetl", password=PASSWORD)
        self._more = more
        """Lines of its configuration, which come after ours."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """With user and password."""
        return self.nats.url

    def start(self) -> None:
        """Start it; returns when it is ready, whether or not a loop runs here."""
        self.spawn()
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(self.ready())).result()

    def spawn(self) -> None:
        """Start it; `ready` waits for it."""
        self.nats.prepare()
        with self.nats.config_file.open("a") as file:
            file.write(self._more)
        with (self.nats.directory / "nats.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.nats.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={}
            )

    async def ready(self) -> None:
        """Wait until it serves."""
        assert self._process is not None
        await self.nats.ready(self._process.pid)

    async def cleared(self) -> None:
        """Wait until the files of streams that were deleted are gone, too."""
        async with asyncio.timeout(CLEARED_S):
            while any(self.nats.store_dir.glob("jetstream/*/streams/*")):  # noqa: ASYNC110 - another process does it
                await asyncio.sleep(0.001)

    def kill(self) -> None:
        """As a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Have it do nothing, its connections open; `resume` lets it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)  # all of its threads have stopped

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ask it to end."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """The server of this test process, shared by its tests."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def nats_url(nats_server: NatsServer) -> str:
    """The URL of the shared server, as it is: with whatever earlier tests left."""
    return nats_server.url


@pytest.fixture
async def clean_nats_url(nats_server: NatsServer) -> str:
    """The URL of the shared server, without any stream."""
    await wipe(nats_server.url)
    await nats_server.cleared()
    return nats_server.url


@pytest.fixture
async def own_nats(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A server of one test's own, to be killed at will."""
    server = NatsServer(tmp_path / "nats")
    server.spawn()
    try:
        await server.ready()
        yield server
    finally:
        server.stop()


async def wipe(url: str) -> None:
    """Delete every stream, and all that hangs on it; their files are removed afterwards."""
    link = await Link.open(Address.of(url))
    try:
        found = await link.call("STREAM.NAMES")
        for name in found["streams"] or ():
            await link.call(f"STREAM.DELETE.{name}")
    finally:
        await link.close()
