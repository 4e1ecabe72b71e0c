"""Programs that are not Python: started through the same sandbox and limits as interpreters."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from noetl.tools.interpreter import scratch
from noetl.tools.interpreter.limits import TERM_GRACE_S, Limits, signal_tree
from noetl.tools.interpreter.lines import LineSplitter
from noetl.tools.interpreter.runner import Died, child_argv
from noetl.tools.interpreter.sandbox import Sandbox, Walls, clean_environment

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Mapping
    from pathlib import Path

INLINE_BYTES: Final = 65_536
_CHUNK: Final = 1 << 16
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

    async def run(self, command: Command, work: Path, cwd: Path) -> Ended:
        """Run to the end; a cancelled run ends its whole group."""
        confinement = self._sandbox.confine(command.walls, work)
        owner = confinement.uid if confinement.uid is not None else confinement.outer_uid
        if owner is not None:
            _give(work, owner)
        about = {
            "fd": None, "uid": confinement.uid, "offline": confinement.offline,
            "inner": confinement.is_inner, "work": str(cwd), "argv": command.argv,
            "env": self._environment | dict(command.env), "limits": command.limits.as_json(),
        }  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            *_as(confinement.outer_uid), *confinement.prefix, *child_argv(about),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env=self._environment, cwd=work,
            start_new_session=True,
        )  # fmt: skip
        try:
            return await self._watch(process, command)
        except ExceptionGroup as group:  # one reader or the other: the first reason is the reason
            raise group.exceptions[0] from None
        finally:
            await asyncio.shield(_end(process))

    async def _watch(self, process: Process, command: Command) -> Ended:
        async with asyncio.TaskGroup() as group:
            group.create_task(_fill(process, command.stdin))
            stdout = group.create_task(_read(process.stdout, "stdout", command))
            stderr = group.create_task(_read(process.stderr, "stderr", command))
            code = await process.wait()
            signal_tree(process.pid, signal.SIGKILL)  # what it left would keep the pipes open
        return Ended(exit_code=code, stdout=stdout.result(), stderr=stderr.result())

    @staticmethod
    def remove(work: Path) -> None:
        """Remove a work folder."""
        shutil.rmtree(work, ignore_errors=True)


def _as(user: int | None) -> tuple[str, ...]:
    """Words before a command that give it another user; uvloop starts nothing as somebody else."""
    return () if user is None else (sys.executable, "-I", "-c", _AS_USER, str(user))


def _give(work: Path, owner: int) -> None:
    for path in (work, *work.rglob("*")):
        os.chown(path, owner, owner, follow_symlinks=False)


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
    if process.returncode is None:
        signal_tree(process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(TERM_GRACE_S):
                await process.wait()
        except TimeoutError:
            pass
    signal_tree(process.pid, signal.SIGKILL)
    await process.wait()
    for stream in (process.stdout, process.stderr):  # a paused pipe closes at its end only
        while stream is not None and await stream.read(_CHUNK):
            pass
