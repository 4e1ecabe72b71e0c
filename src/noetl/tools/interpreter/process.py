"""Programs that are not Python: started through the same sandbox and limits as interpreters."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import stat
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from noetl.tools.interpreter import scratch
from noetl.tools.interpreter.limits import (
    TERM_GRACE_S,
    WATCH_S,
    WATCH_SHARE,
    Limits,
    over_limit,
    signal_tree,
)
from noetl.tools.interpreter.lines import LineSplitter
from noetl.tools.interpreter.runner import Died, child_argv
from noetl.tools.interpreter.sandbox import Sandbox, Walls, clean_environment

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Mapping
    from pathlib import Path

INLINE_BYTES: Final = 65_536
_CHUNK: Final = 1 << 16
_ABOUT: Final = ".noetl-start"  # what a program is started with, which may hold secrets
_AS_USER: Final = (
    "import os, sys; user = int(sys.argv[1]); os.setgroups([]); os.setgid(user); os.setuid(user);"
    "os.execv(sys.argv[2], sys.argv[2:])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One program to run."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    limits: Limits = field(default_factory=Limits)
    walls: Walls
    on_line: Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended and the head of what it printed."""

    exit_code: int
    stdout: str
    stderr: str


class Processes:
    """Starts programs, each in a group of its own that never outlives its run."""

    def __init__(self, sandbox: Sandbox, environ: Mapping[str, str]) -> None:
        self._sandbox = sandbox
        self._environment = clean_environment(environ)

    def folder(self) -> Path:
        """A new private work folder; the caller removes it."""
        return scratch.made(0o700)

    def words(self, command: Command, work: Path, cwd: Path) -> list[str]:
        """The words that start a program in its sandbox, for those who start it themselves."""
        confinement = self._sandbox.confine(command.walls, work)
        about = {
            "fd": None, "group": None, "uid": confinement.uid, "offline": confinement.offline,
            "inner": confinement.is_inner, "filter": confinement.filter.hex(),
            "parts": confinement.parts, "work": str(cwd),
            "argv": command.argv, "env": self._environment | dict(command.env),
            "limits": command.limits.as_json(),
        }  # fmt: skip
        told = work / _ABOUT
        told.unlink(missing_ok=True)
        with open(told, "x", encoding="utf-8", opener=_private) as file:
            json.dump(about, file)
        owner = confinement.uid if confinement.uid is not None else confinement.outer_uid
        if owner is not None:
            _give(work, owner)
        return [*_as(confinement.outer_uid), *confinement.prefix, *child_argv(told)]

    async def run(self, command: Command, work: Path, cwd: Path) -> Ended:
        """Run to the end; a cancelled run ends its whole group."""
        process = await asyncio.create_subprocess_exec(
            *self.words(command, work, cwd),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env=self._environment, cwd=work,
            start_new_session=True,
        )  # fmt: skip
        try:
            return await self._watch(process, command, work)
        except ExceptionGroup as group:  # one watcher or the other: the first reason is the reason
            raise group.exceptions[0] from None
        finally:
            await asyncio.shield(_end(process))

    @staticmethod
    async def _watch(process: Process, command: Command, work: Path) -> Ended:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(_look(process, command.limits, work))
            group.create_task(_fill(process, command.stdin))
            stdout = group.create_task(_read(process.stdout, "stdout", command))
            stderr = group.create_task(_read(process.stderr, "stderr", command))
            code = await process.wait()
            watching.cancel()
            signal_tree(process.pid, signal.SIGKILL)  # what it left would keep the pipes open
        return Ended(exit_code=code, stdout=stdout.result(), stderr=stderr.result())

    @staticmethod
    def remove(work: Path) -> None:
        """Remove a work folder."""
        shutil.rmtree(work, ignore_errors=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _as(user: int | None) -> tuple[str, ...]:
    """Words before a command that give it another user; uvloop starts nothing as somebody else."""
    return () if user is None else (sys.executable, "-I", "-c", _AS_USER, str(user))


def _give(work: Path, owner: int) -> None:
    """Give a folder to the user of the next program; a file with a second name may be another's."""
    for path in (work, *work.rglob("*")):
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode) or about.st_nlink == 1:
            os.chown(path, owner, owner, follow_symlinks=False)


async def _look(process: Process, limits: Limits, work: Path) -> None:
    """End a program that uses too much where the kernel does not count it."""
    loop = asyncio.get_running_loop()
    pause = WATCH_S
    while True:
        await asyncio.sleep(pause)
        before = loop.time()
        over = over_limit(process.pid, work, limits)
        if over is not None:
            signal_tree(process.pid, signal.SIGKILL)
            raise Died("limit", *over)
        pause = max(WATCH_S, (loop.time() - before) * WATCH_SHARE)


async def _fill(process: Process, data: bytes) -> None:
    stdin = process.stdin
    if stdin is None:
        return
    try:
        if data:
            stdin.write(data)
            await stdin.drain()
        stdin.close()
        await stdin.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        return


async def _read(stream: asyncio.StreamReader | None, name: str, command: Command) -> str:
    """Give every line to the log and keep the head."""
    head = bytearray()
    lines = LineSplitter()
    most = command.limits.output_bytes
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        head += chunk[: max(0, INLINE_BYTES - len(head))]
        for line in lines.feed(chunk):
            command.on_line(name, line)
        if lines.count_bytes > most:
            message = f"the command printed over {command.limits.output_mb} MiB"
            raise Died("limit", "output_limit", message)
    for line in lines.end():
        command.on_line(name, line)
    return head.decode("utf-8", "replace")


async def _end(process: Process) -> None:
    """End the group of a program; what it still prints is read, since its end comes after that."""
    reading = asyncio.gather(_drain(process.stdout), _drain(process.stderr))
    if process.returncode is None:
        signal_tree(process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(TERM_GRACE_S):
                await process.wait()
        except TimeoutError:
            pass
    signal_tree(process.pid, signal.SIGKILL)
    await process.wait()
    await reading


async def _drain(stream: asyncio.StreamReader | None) -> None:
    while stream is not None and await stream.read(_CHUNK):
        pass
