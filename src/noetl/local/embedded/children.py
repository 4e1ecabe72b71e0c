"""The parts of a stack as processes: how each is started, known to be ready, awaited, stopped."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from noetl.errors import NoetlError
from noetl.local.embedded.probe import is_well
from noetl.local.embedded.record import Part
from noetl.local.nats import Nats, NatsNotStarted
from noetl.local.postgres import Postgres, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

READY_S: Final = 60.0
_LOOK_AGAIN_S: Final = 0.03
_KILL_S: Final = 10.0
_LINE_BYTES: Final = 1 << 20
_BAD_SETTINGS: Final = (2, 78)

DATABASE, BUS, SERVER, GATEWAY, WORKERS, LISTENERS = range(6)


class PartFailed(NoetlError):
    """A part that ended before it was ready, or is not ready in time."""

    code = "stack_failed"

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.is_hopeless = exit_code in _BAD_SETTINGS


class Child(Protocol):
    """A part that is watched."""

    name: str

    @property
    def pid(self) -> int | None:
        """Its process, while it runs."""

    def part(self) -> Part:
        """What others are told about it."""

    async def start(self, spawned: Callable[[], None]) -> None:
        """Start it and return when it is ready; `spawned` is called as soon as it has a process."""

    async def wait(self) -> int:
        """Wait for its end; how it ended."""

    async def stop(self, grace_s: float) -> None:
        """Ask it to end, and end it when it does not."""


@dataclass(slots=True, kw_only=True)
class Process:
    """A program that tells by HTTP when it is ready."""

    name: str
    stage: int
    command: list[str]
    environ: Mapping[str, str]
    said: Callable[[str], None]
    port: int = 0
    url: str = ""
    health: str = ""
    data_dir: str = ""
    ready_s: float = READY_S
    _child: asyncio.subprocess.Process | None = None
    _pump: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Its process, while it runs."""
        is_running = self._child is not None and self._child.returncode is None
        return self._child.pid if self._child is not None and is_running else None

    def part(self) -> Part:
        """What others are told about it."""
        return Part(
            name=self.name,
            stage=self.stage,
            pid=self.pid or 0,
            port=self.port,
            url=self.url,
            health=self.health,
            data_dir=self.data_dir,
        )

    async def start(self, spawned: Callable[[], None]) -> None:
        """Start it and return when it is ready."""
        await self.spawn()
        spawned()
        try:
            async with asyncio.timeout(self.ready_s):
                await self.until_ready()
        except TimeoutError as fault:
            await self.stop(_KILL_S)  # the next one would find it in its way
            raise PartFailed(f"{self.name} was not ready after {self.ready_s:g} s.") from fault

    async def spawn(self) -> None:
        """Start the process; its words are heard from now on."""
        self._child = child = await asyncio.create_subprocess_exec(
            *self.command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, limit=_LINE_BYTES, env=dict(self.environ),
            start_new_session=True,
        )  # fmt: skip
        self._pump = asyncio.create_task(self._listen(child), name=f"log of {self.name}")

    async def until_ready(self) -> None:
        """Ask until it says that it is ready."""
        while not await is_well(self.health):
            if self.pid is None:
                code = await self.wait()
                raise PartFailed(
                    f"{self.name} ended with {ending(code)} before it was ready.", exit_code=code
                )
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def wait(self) -> int:
        """Wait for its end and its last words; how it ended."""
        if self._child is None:
            raise PartFailed(f"{self.name} was not started.")
        if self._pump is not None:
            await asyncio.shield(self._pump)
        return await self._child.wait()

    async def stop(self, grace_s: float) -> None:
        """Ask it to end, and end it when it does not."""
        child = self._child
        if child is None:
            return
        for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_S)):
            if child.returncode is not None:
                break
            child.send_signal(number)
            try:
                async with asyncio.timeout(patience_s):
                    await child.wait()
            except TimeoutError:
                self.said(f"did not end within {patience_s:g} s of {number.name}")
        if self._pump is not None:
            self._pump.cancel()  # a grandchild may hold the pipe open
            await asyncio.wait((self._pump,))

    async def _listen(self, child: asyncio.subprocess.Process) -> None:
        stream = child.stdout
        while stream is not None:
            try:
                line = await stream.readline()
            except ValueError:  # a line without end: what was read of it is dropped by the stream
                self.said("(a line of more than 1 MiB was left out)")
                continue
            if not line:
                break
            self.said(line.decode(errors="replace").rstrip())


@dataclass(slots=True, kw_only=True)
class Bus(Process):
    """The broker: it picks its ports by itself and keeps them when it is started again."""

    nats: Nats
    name: str = "nats"
    stage: int = BUS
    command: list[str] = field(default_factory=list)
    environ: Mapping[str, str] = field(default_factory=dict)

    async def spawn(self) -> None:
        """Start the process; its words are heard from now on."""
        self.nats.prepare()
        self.command = self.nats.command()
        await super(Bus, self).spawn()

    async def until_ready(self) -> None:
        """Wait until it serves clients; then its ports are known."""
        child = self._child
        if child is None:
            return
        ready = asyncio.create_task(self.nats.ready(child.pid))
        ended = asyncio.create_task(child.wait())
        try:
            await asyncio.wait((ready, ended), return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                ready.result()
            else:
                raise PartFailed(f"nats ended with {ending(ended.result())} before it was ready.")
        except NatsNotStarted as fault:
            await self.stop(_KILL_S)
            raise PartFailed(fault.message) from fault
        finally:
            for task in (ready, ended):
                task.cancel()
            await asyncio.wait((ready, ended))
        self.port = self.nats.port
        self.url = self.nats.address
        self.health = self.nats.health_url


@dataclass(slots=True)
class Database:
    """PostgreSQL, on the same port when it is started again."""

    folder: Path
    said: Callable[[str], None]
    name: str = "postgres"
    port: int = field(default_factory=free_port)
    _server: Postgres = field(init=False)

    def __post_init__(self) -> None:
        self._server = Postgres(self.folder, port=self.port, on_line=self.said)

    @property
    def pid(self) -> int | None:
        """Its process, while it runs."""
        return self._server.pid

    @property
    def url(self) -> str:
        """How our processes connect, with the password."""
        return self._server.socket_url

    def part(self) -> Part:
        """What others are told about it."""
        return Part(
            name=self.name,
            stage=DATABASE,
            pid=self.pid or 0,
            port=self.port,
            url=f"postgresql://127.0.0.1:{self.port}/noetl",
            data_dir=str(self._server.data_dir),
            stop_signal="SIGINT",  # fast: sessions end at once
            kill_signal="SIGQUIT",
        )

    async def start(self, spawned: Callable[[], None]) -> None:
        """Start it and return when it takes connections."""
        await self._server.start()
        spawned()

    async def wait(self) -> int:
        """Wait for its end; how it ended."""
        return await self._server.wait()

    async def stop(self, grace_s: float) -> None:  # noqa: ARG002 - it has a patience of its own
        """Ask it to end, and end it when it does not."""
        await self._server.stop()


def ending(code: int) -> str:
    """An exit code in words."""
    if code < 0:
        try:
            return f"signal {signal.Signals(-code).name}"
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}"
