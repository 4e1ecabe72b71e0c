"""PostgreSQL from the binaries in its wheel, as a child of this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from noetl.local.lodging import EmbeddedUnavailable, Lodging, lodge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DURABLE: Final[Mapping[str, str]] = {
    "shared_buffers": "64MB",
    "max_connections": "100",
    "max_wal_size": "1GB",
    "checkpoint_timeout": "15min",
    "checkpoint_completion_target": "0.9",
    "wal_init_zero": "off",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
"""As the embedded stack runs: every commit is on the disk before it is told."""
_ADMIN: Final = "noetl"
_DEFAULT_PORT: Final = 5432
_ITERATIONS: Final = 64  # they make guessing slow: nobody guesses 192 random bits
_READY: Final = "database system is ready to accept connections"
_READY_S: Final = 60.0
_INIT_S: Final = 60.0
_STOP_S: Final = 10.0
_KEPT_LINES: Final = 20
_LINE_BYTES: Final = 1 << 20


class Postgres:
    """One server on one data directory, reached over a socket of ours and over loopback."""

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        self._wanted = data_dir
        self._port = port
        self._settings = DURABLE if settings is None else settings
        self._on_line = on_line
        self._lodging: Lodging | None = None
        self._child: asyncio.subprocess.Process | None = None
        self._pump: asyncio.Task[None] | None = None
        self._lines: list[str] = []
        self._is_ready = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The server's process; none while it does not run."""
        return (
            None if self._child is None or self._child.returncode is not None else self._child.pid
        )

    @property
    def data_dir(self) -> Path:
        """Where the data lie; until that is decided, where they were asked for."""
        return self._wanted if self._lodging is None else self._lodging.data_dir

    @property
    def url(self) -> str:
        """How to connect, over loopback when there is a port, else over the socket."""
        if self._port is None:
            return self.socket_url
        return f"postgresql://{_ADMIN}:{self._password()}@127.0.0.1:{self._port}/{_ADMIN}"

    @property
    def socket_url(self) -> str:
        """How processes of this machine connect: a socket costs less than loopback."""
        port = _DEFAULT_PORT if self._port is None else self._port
        where = urlencode({"host": str(self._at().socket_dir), "port": str(port)}, quote_via=quote)
        return f"postgresql://{_ADMIN}:{self._password()}@/{_ADMIN}?{where}"

    def _password(self) -> str:
        return quote(self._at().secret.read_text(encoding="utf-8"), safe="")

    async def initialise(self) -> None:
        """Make the data directory, unless it is there."""
        self._lodging = lodging = await lodge(self._wanted)
        if not lodging.secret.exists() and lodging.data_dir != self._wanted.absolute():
            await _set_aside(lodging.data_dir)
        if (lodging.data_dir / "PG_VERSION").exists():
            return
        if not lodging.secret.exists():
            _write_secret(lodging.secret, secrets.token_urlsafe(24))
        given = lodging.socket_dir / "initial-password"  # readable by the server's user alone
        given.touch(mode=0o600)
        lodging.owned(given, 0o600)
        given.write_text(lodging.secret.read_text(encoding="utf-8"), encoding="utf-8")
        lodging.data_dir.mkdir(mode=0o700, exist_ok=True)
        lodging.owned(lodging.data_dir, 0o700)
        try:
            await self._initdb(lodging, given)
        finally:
            given.unlink()

    async def start(self) -> None:
        """Start, and return when connections are taken."""
        await self.initialise()
        lodging = self._at()
        await _stop_orphan(lodging.data_dir)
        self._is_ready.clear()
        self._lines.clear()
        self._child = await asyncio.create_subprocess_exec(
            lodging.binaries / "postgres", "-D", lodging.data_dir, *self._options(lodging),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE, limit=_LINE_BYTES, cwd=lodging.data_dir,
            start_new_session=True, **_identity(lodging),
        )  # fmt: skip
        self._pump = asyncio.create_task(self._read(self._child), name="postgres log")
        ready = asyncio.create_task(self._is_ready.wait())
        try:
            await asyncio.wait(
                (ready, self._pump), timeout=_READY_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ready.cancel()
        if not self._is_ready.is_set():
            await self.stop()
            raise EmbeddedUnavailable(
                "PostgreSQL did not start: " + " / ".join(self._lines[-_KEPT_LINES:]),
                hint=f"its data are in {lodging.data_dir}",
            )

    async def stop(self) -> None:
        """Stop: sessions end at once, nothing that was told is lost."""
        child = self._child
        if child is None:
            return
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGINT)
            try:
                async with asyncio.timeout(_STOP_S):
                    await child.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    child.send_signal(signal.SIGQUIT)
                await child.wait()
        if self._pump is not None:
            await self._pump
        self._child = self._pump = None

    async def wait(self) -> int:
        """Wait for the end of the server; its exit code."""
        if self._child is None:
            raise EmbeddedUnavailable("PostgreSQL was not started", hint="call start() first")
        return await self._child.wait()

    def _at(self) -> Lodging:
        if self._lodging is None:
            raise EmbeddedUnavailable("PostgreSQL has no place yet", hint="call initialise() first")
        return self._lodging

    def _options(self, lodging: Lodging) -> list[str]:
        settings = {
            **self._settings,
            "unix_socket_directories": str(lodging.socket_dir),
            "unix_socket_permissions": "0700",
            "listen_addresses": "" if self._port is None else "127.0.0.1",
            "port": str(_DEFAULT_PORT if self._port is None else self._port),
        }
        return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]

    async def _initdb(self, lodging: Lodging, password: Path) -> None:
        making = await asyncio.create_subprocess_exec(
            lodging.binaries / "initdb", "-D", lodging.data_dir, "--username", _ADMIN,
            "--auth=scram-sha-256", f"--pwfile={password}", "--encoding=UTF8", "--locale=C",
            "--no-instructions", f"--set=scram_iterations={_ITERATIONS}",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, cwd=lodging.data_dir, **_identity(lodging),
        )  # fmt: skip
        try:
            async with asyncio.timeout(_INIT_S):
                said, _ = await making.communicate()
        except BaseException:
            making.kill()
            await making.wait()
            raise
        if making.returncode:
            raise EmbeddedUnavailable(
                f"PostgreSQL cannot make its data: {said.decode(errors='replace').strip()}",
                hint=f"the folder is {lodging.data_dir}",
            )
        await self._make_database(lodging)

    async def _make_database(self, lodging: Lodging) -> None:
        """The database that the address names, made before anybody can connect."""
        making = await asyncio.create_subprocess_exec(
            lodging.binaries / "postgres", "--single", "-D", lodging.data_dir, "postgres",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, cwd=lodging.data_dir, **_identity(lodging),
        )  # fmt: skip
        said, _ = await making.communicate(f"create database {_ADMIN}\n".encode())
        if making.returncode or b"ERROR" in said:
            raise EmbeddedUnavailable(
                f"PostgreSQL cannot make its database: {said.decode(errors='replace').strip()}",
                hint=f"the folder is {lodging.data_dir}",
            )

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        """Hear what the server says as long as it lives."""
        if child.stderr is None:
            return
        while line := await child.stderr.readline():
            text = line.decode(errors="replace").rstrip()
            if _READY in text:
                self._is_ready.set()
            if not self._is_ready.is_set():
                self._lines.append(text)
            if self._on_line is not None:
                self._on_line(text)
        await child.wait()


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _identity(lodging: Lodging) -> dict[str, Any]:
    """Whom a program of the server runs as, and an environment without anything of ours."""
    common: dict[str, Any] = {"env": {"LC_ALL": "C"}, "umask": 0o077}
    if lodging.user is None:
        return common
    user = lodging.user
    return common | {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}


def _write_secret(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _orphan(data_dir: Path) -> int | None:
    """The living server of these data, if there is one."""
    try:
        pid = int((data_dir / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0])
        told = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None  # none, or not one that lives: the server clears the file away itself
    is_ours = Path(os.fsdecode(told[0])).name == "postgres" and os.fsencode(data_dir) in told
    return pid if is_ours else None


async def _set_aside(data_dir: Path) -> None:
    """Keep data of a home that was deleted apart: a new home begins with none."""
    await _stop_orphan(data_dir)
    await asyncio.to_thread(_moved, data_dir)


def _moved(data_dir: Path) -> None:
    if data_dir.exists():
        apart = Path(mkdtemp(prefix=f"{data_dir.name}.left-", dir=data_dir.parent))
        data_dir.rename(apart / data_dir.name)


async def _stop_orphan(data_dir: Path) -> None:
    """End a server of these data that has outlived its supervisor."""
    pid = _orphan(data_dir)
    if pid is None:
        return
    for number in (signal.SIGINT, signal.SIGQUIT):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        try:
            async with asyncio.timeout(_STOP_S):
                await _gone(pid)
        except TimeoutError:
            continue
        return


async def _gone(pid: int) -> None:
    """Wait for the end of a process that is not our child."""
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    try:
        loop.add_reader(handle, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
