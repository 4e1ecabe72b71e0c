"""Warm children that run SQL, one job at a time each; a child that fails to answer is ended."""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.tools.base import ToolError, missing_extra, remedied
from noetl.tools.interpreter.limits import oom_kills

if TYPE_CHECKING:
    from asyncio.subprocess import Process

CHILD: Final = Path(__file__).with_name("child.py")
MOST_IDLE: Final = 2
MOST_JOBS: Final = 200
START_S: Final = 30.0
_HEAD: Final = struct.Struct(">Q")
_SLACK: Final = 64 << 20  # what an answer may hold besides the rows that were counted
_CHUNK: Final = 1 << 16
_REMEDIES: Final = {
    "DUCKDB_BINDER": "mend the statement",
    "DUCKDB_CATALOG": "make it, or mend its name",
    "DUCKDB_CONSTRAINT": "mend the rows, or pass over those that are there (`on conflict`)",
    "DUCKDB_CONVERSION": "mend the values",
    "DUCKDB_PARSER": "mend the statement",
}


class Hello(msgspec.Struct, frozen=True, tag_field="op", tag="hello"):
    """The child is ready."""


class Missing(msgspec.Struct, frozen=True, tag_field="op", tag="missing"):
    """The packages that the child needs are not installed."""

    message: str


class Done(msgspec.Struct, frozen=True, tag_field="op", tag="done"):
    """The job ended well."""

    data: dict[str, Any]


class Failed(msgspec.Struct, frozen=True, tag_field="op", tag="failed"):
    """The job failed."""

    kind: str
    code: str
    message: str
    details: dict[str, Any] | None = None


Answer = Hello | Missing | Done | Failed
_decode: Final = msgspec.json.Decoder(Answer).decode


class Child:
    """One process and its scratch folder."""

    def __init__(self, process: Process, scratch: Path) -> None:
        self.scratch = scratch
        self.jobs = 0
        self._is_broken = False
        self._process = process
        self._ooms = oom_kills()

    @classmethod
    async def start(cls, program: Path = CHILD, python: str = sys.executable) -> Child:
        """Start a process that sees none of our environment, and wait until it is ready."""
        scratch = Path(tempfile.mkdtemp(prefix="noetl-duckdb-"))
        # No home: what lies there (extensions, secrets) is nobody's affair, nor is adding to it.
        env = {"PATH": os.defpath, "LANG": "C.UTF-8", "TZ": "UTC", "HOME": "/nonexistent"}
        process = await asyncio.create_subprocess_exec(
            python, "-I", str(program), stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env=env, cwd=scratch, start_new_session=True,
        )  # fmt: skip
        child = cls(process, scratch)
        try:
            async with asyncio.timeout(START_S):
                said = await child._answer(_SLACK)
        except BaseException:
            await asyncio.shield(child.end())
            raise
        if isinstance(said, Missing):
            await child.end()
            raise missing_extra("duckdb", "duckdb")
        return child

    @property
    def is_alive(self) -> bool:
        """Whether the process runs and every answer of it was read to its end."""
        return self._process.returncode is None and not self._is_broken

    async def run(self, job: dict[str, Any]) -> Done:
        """Run one job; the caller ends the child when this raises anything but a ToolError."""
        self.jobs += 1
        body = msgspec.json.encode(job)
        if self._process.stdin is None:
            raise RuntimeError("the child has no input")
        self._process.stdin.write(_HEAD.pack(len(body)) + body)
        with suppress(ConnectionError):  # the missing answer tells the reason
            await self._process.stdin.drain()
        said = await self._answer(job["max_bytes"] * 2 + _SLACK)
        if isinstance(said, Failed):
            raise _told(said)
        if isinstance(said, Done):
            return said
        raise RuntimeError("the child spoke out of turn")

    async def _answer(self, most: int) -> Answer:
        try:
            return await self._read(most)
        except (ConnectionError, asyncio.IncompleteReadError):
            raise await self._why_dead() from None

    async def _read(self, most: int) -> Answer:
        if self._process.stdout is None:
            raise RuntimeError("the child has no output")
        size = _HEAD.unpack(await self._process.stdout.readexactly(_HEAD.size))[0]
        if size > most:
            self._is_broken = True
            raise ToolError("limit", "output_limit", f"an answer of {size} bytes is too large")
        said: Answer = _decode(await self._process.stdout.readexactly(size))
        return said

    async def _why_dead(self) -> ToolError:
        code = await self._process.wait()
        if oom_kills() > self._ooms:
            return ToolError("limit", "memory_limit", "the memory limit was reached")
        return ToolError("process", f"exit_{code}", "the database process ended before its answer")

    async def end(self) -> None:
        """End the process at once; a transaction that was open is undone by the next reader."""
        if self._process.returncode is None:
            self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        while self._process.stdout is not None and await self._process.stdout.read(_CHUNK):
            pass
        await self._process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)


def _told(said: Failed) -> ToolError:
    """What a statement failed with, and what to do about it."""
    remedy = _REMEDIES.get(said.code)
    message = f"{said.message}\n{remedy}" if remedy else said.message  # its own has lines, too
    return remedied(ToolError(said.kind, said.code, message, details=said.details))


class Children:
    """The children of one worker."""

    def __init__(self, python: str = sys.executable) -> None:
        self._idle: list[Child] = []
        self._python = python

    async def run(self, child: Child, job: dict[str, Any]) -> Done:
        """Run a job in a child; whatever is not an answer ends it."""
        try:
            return await child.run(job)
        except ToolError:
            raise
        except BaseException:
            await asyncio.shield(child.end())
            raise

    async def take(self) -> Child:
        """A child that is free, or a new one."""
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            await child.end()
        return await Child.start(python=self._python)

    async def give(self, child: Child) -> None:
        """Keep a child for the next job unless it is dead, worn or one too many."""
        if child.is_alive and child.jobs < MOST_JOBS and len(self._idle) < MOST_IDLE:
            for left in child.scratch.iterdir():
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()
            self._idle.append(child)
        else:
            await asyncio.shield(child.end())

    async def close(self) -> None:
        """End every child that waits for work."""
        idle, self._idle = self._idle, []
        for child in idle:
            await child.end()
