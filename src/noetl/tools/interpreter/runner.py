"""One child interpreter as the worker sees it: start, run a command, watch, end."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from noetl.tools.interpreter import frames
from noetl.tools.interpreter.limits import (
    TERM_GRACE_S,
    WATCH_S,
    WATCH_SHARE,
    Limits,
    oom_kills,
    over_limit,
    signal_tree,
    why_dead,
)
from noetl.tools.interpreter.lines import LineSplitter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from noetl.tools.interpreter.cgroup import Group
    from noetl.tools.interpreter.sandbox import Confinement, Walls

CHILD: Final = Path(__file__).with_name("child.py")
# Imported rather than run by path, so that its compiled form is kept.
_BOOT: Final = (
    "import sys; sys.path.insert(0, sys.argv[2]); import child; del sys.path[0]; child.main()"
)
START_S: Final = 30.0
_CHUNK: Final = 1 << 18
_MOST_ASKED: Final = 8  # names that wait for their values; a child of ours asks for one
_ABOUT_A_FRAME: Final = 64  # bytes around what it says
LAST_WORDS_S: Final = 0.5  # a dying process tells its reason by how it ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One command for a child: the code, what it may read, and who hears of it."""

    domain: str
    code: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    libs: Any = None
    env: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    limits: Limits = field(default_factory=Limits)
    walls: Walls
    requirements: tuple[str, ...] = ()
    is_fresh: bool = False
    on_line: Callable[[str, str, str], None]
    on_progress: Callable[[float, str], None]
    fetch: Callable[[str], Awaitable[tuple[bool, Any]]]
    exchange: Callable[[frames.Exchanged], Awaitable[dict[str, Any]]] | None = None
    """Takes and gives large bytes."""


def child_argv(about: dict[str, Any] | Path, python: str = sys.executable) -> list[str]:
    """The command that starts the child's program; others of the machine can read its words."""
    told = str(about) if isinstance(about, Path) else json.dumps(about)
    return [python, "-I", "-c", _BOOT, told, str(CHILD.parent)]


def _size(frame: frames.Log | frames.Progress) -> int:
    return _ABOUT_A_FRAME + len(frame.text if isinstance(frame, frames.Log) else frame.message)


class Died(Exception):
    """The child ended before it answered."""

    def __init__(self, kind: str, code: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.code = code
        self.message = message


class Unfit(Exception):
    """The child has not run the command: the one before has left something."""


class Runner:
    """A child process; it runs one command at a time."""

    def __init__(
        self,
        confinement: Confinement,
        work: Path,
        environment: Mapping[str, str],
        python: str = sys.executable,
        group: Group | None = None,
    ) -> None:
        """Start the process; it must be the thread of the event loop, whose end would end it."""
        self.work = work
        self.commands = 0
        self.first_rss: int | None = None
        self.last_rss = 0
        self.is_dirty = False
        self._loop = asyncio.get_running_loop()
        self.born = self._loop.time()
        self._hello: asyncio.Future[None] = self._loop.create_future()
        self._dead: asyncio.Future[None] = self._loop.create_future()
        self._done: asyncio.Future[frames.Done] | None = None
        self._job: Job | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._fetching: set[asyncio.Task[None]] = set()
        self._lines = {"stdout": LineSplitter(), "stderr": LineSplitter()}
        self._unpacker = frames.Unpacker(Limits().output_bytes)
        self._number = 0
        self._heard_bytes = 0
        self._group = group
        self._ooms = self._oom_kills()
        self._start(confinement, dict(environment), python)

    def _start(self, confinement: Confinement, env: dict[str, str], python: str) -> None:
        ours, theirs = socket.socketpair()
        with ExitStack() as opened, ExitStack() as given, theirs:
            opened.enter_context(ours)
            door = None if self._group is None else self._group.door()
            if door is not None:
                given.callback(os.close, door)
            about = {
                "fd": theirs.fileno(), "group": door, "uid": confinement.uid,
                "offline": confinement.offline, "inner": confinement.is_inner,
                "filter": confinement.filter.hex(), "parts": confinement.parts,
                "work": str(self.work), "env": env,
            }  # fmt: skip
            owner = confinement.uid if confinement.uid is not None else confinement.outer_uid
            if owner is not None:
                os.chown(self.work, owner, owner)
            user = confinement.outer_uid
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
                [*confinement.prefix, *child_argv(about, python)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                pass_fds=[fd for fd in (theirs.fileno(), door) if fd is not None],
                env=env, cwd=self.work, start_new_session=True,
                user=user, group=user, extra_groups=None if user is None else [],
            )  # fmt: skip
            opened.pop_all()
        self._socket = ours
        ours.setblocking(False)  # noqa: FBT003 - the signature of socket
        self._loop.add_reader(ours, self._readable)
        self._streams = {"stdout": self._process.stdout, "stderr": self._process.stderr}
        for name, pipe in self._streams.items():
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._loop.add_reader(pipe, self._printed, name)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._ended)

    @property
    def pid(self) -> int:
        """The process; under bubblewrap the one in front of the interpreter."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return not self._dead.done()

    @property
    def growth_bytes(self) -> int:
        """How much its memory grew since its first command ended."""
        return 0 if self.first_rss is None else self.last_rss - self.first_rss

    async def ready(self) -> None:
        """Wait until the child said hello."""
        if self._hello.done():
            return self._hello.result()
        async with asyncio.timeout(START_S):
            return await asyncio.shield(self._hello)

    async def limit(self, limits: Limits) -> None:
        """Set the limits of the child, once, before its first command."""
        self._unpacker = frames.Unpacker(limits.output_bytes)
        if self._group is not None:
            self._group.limit(limits)
        await self._send({"op": "limit", "limits": limits.as_json()})

    async def run(self, job: Job) -> frames.Done:
        """Run one command; the caller ends the child when this is cancelled or raises."""
        self.commands += 1
        self._number = secrets.randbits(48)  # an answer that knows it answers this command
        self._heard_bytes = 0
        self._job = job
        self._done = self._loop.create_future()
        try:
            await self._send({
                "op": "run", "id": self._number, "code": job.code, "inputs": job.inputs,
                "context": job.context, "names": job.names, "libs": job.libs, "env": job.env,
                "key": job.key, "cpu_s": job.limits.cpu_s,
            })  # fmt: skip
            self._watching = self._loop.call_later(WATCH_S, self._watch)
            done = await self._done
        finally:
            if self._watching is not None:
                self._watching.cancel()
            self._finish_lines()
            self._done = self._job = None
            for task in self._fetching:
                task.cancel()
        self.last_rss = done.rss
        if self.first_rss is None and done.rss:
            self.first_rss = done.rss
        return done

    def _watch(self) -> None:
        """End a command that uses too much where the kernel does not count it."""
        job = self._job
        if job is None or self._done is None or self._done.done():
            return
        before = self._loop.time()
        over = over_limit(self.pid, self.work, job.limits)
        if over is not None:
            signal_tree(self.pid, signal.SIGKILL)
            self._fail(Died("limit", *over))
            return
        pause = max(WATCH_S, (self._loop.time() - before) * WATCH_SHARE)
        self._watching = self._loop.call_later(pause, self._watch)

    async def _send(self, frame: dict[str, Any]) -> None:
        data = frames.pack(frame)
        try:
            sent = self._socket.send(data)
            if sent < len(data):
                await self._loop.sock_sendall(self._socket, memoryview(data)[sent:])
        except BlockingIOError:
            await self._loop.sock_sendall(self._socket, data)
        except OSError:
            await self._fail_when_dead()

    async def _fail_when_dead(self) -> None:
        """A broken channel: wait for the end of the process, which names the reason."""
        signal_tree(self.pid, signal.SIGKILL)
        await self._dead

    def _readable(self) -> None:
        try:
            chunk = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._loop.remove_reader(self._socket)
            self._loop.call_later(LAST_WORDS_S, self._force)
            return
        try:
            for frame in self._unpacker.feed(chunk):
                self._take(frame)
        except frames.BrokenFrame as fault:
            self._loop.remove_reader(self._socket)
            self._fail(Died("limit", "output_limit", f"the answer cannot be read: {fault}"))

    def _force(self) -> None:
        """End a process that closed its channel and lives on."""
        if self.is_alive:
            signal_tree(self.pid, signal.SIGKILL)

    def _waiting_for(self, number: int) -> asyncio.Future[frames.Done] | None:
        """Who waits for the answer of this command."""
        is_awaited = self._done is not None and not self._done.done()
        return self._done if is_awaited and number == self._number else None

    def _take(self, frame: frames.Frame) -> None:
        """Pass on what the child says."""
        if isinstance(frame, frames.Hello):
            if not self._hello.done():
                self._hello.set_result(None)
        elif isinstance(frame, frames.Done):
            if (waiting := self._waiting_for(frame.id)) is not None:
                waiting.set_result(frame)
        elif isinstance(frame, frames.Left):
            self.is_dirty = True
        elif isinstance(frame, frames.Refuse):
            if (waiting := self._waiting_for(frame.id)) is not None:
                waiting.set_exception(Unfit())
        elif self._job is not None:
            if isinstance(frame, frames.Exchanged):
                self._exchange(self._job, frame)
            else:
                self._hear(self._job, frame)

    def _hear(
        self, job: Job, frame: frames.Get | frames.Log | frames.Progress | frames.Exchanged
    ) -> None:
        if isinstance(frame, frames.Exchanged):
            self._exchange(job, frame)
            return
        self._heard_bytes += _ABOUT_A_FRAME if isinstance(frame, frames.Get) else _size(frame)
        if self._heard_bytes > job.limits.output_bytes:
            limit = job.limits.output_mb
            self._fail(Died("limit", "output_limit", f"the command told over {limit} MiB"))
            return
        match frame:
            case frames.Get() if len(self._fetching) >= _MOST_ASKED:
                self._fail(Died("limit", "output_limit", "the code asks before it is answered"))
            case frames.Get(name=name):
                task = self._loop.create_task(self._answer(job, name))
                self._fetching.add(task)
                task.add_done_callback(self._fetching.discard)
            case frames.Log(level=level, text=text):
                job.on_line("log", level, text)
            case frames.Progress(fraction=fraction, message=message):
                job.on_progress(fraction, message)

    def _exchange(self, job: Job, frame: frames.Exchanged) -> None:
        """Pass a piece of a blob on; the child waits for the answer."""
        if len(self._fetching) >= _MOST_ASKED:
            self._fail(Died("limit", "output_limit", "the code asks before it is answered"))
            return
        task = self._loop.create_task(self._exchanged(job, frame))
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)

    async def _exchanged(self, job: Job, frame: frames.Exchanged) -> None:
        if job.exchange is None:
            await self._send({"op": "value", "error": "this worker has no blobs for code"})
        else:
            await self._send(await job.exchange(frame))

    async def _answer(self, job: Job, name: str) -> None:
        try:
            found, value = await job.fetch(name)
        except Exception as fault:  # noqa: BLE001 - the border: the code sees it as its own exception
            await self._send({"op": "value", "error": f"context[{name!r}]: {fault}"})
        else:
            await self._send({"op": "value", "found": found, "value": value if found else None})

    def _printed(self, name: str) -> bool:
        """Take what was printed; whether there may be more."""
        pipe = self._streams[name]
        if pipe is None:
            return False
        try:
            chunk = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if not chunk:
            self._loop.remove_reader(pipe)
            return False
        splitter, job = self._lines[name], self._job
        for line in splitter.feed(chunk):
            if job is not None:
                job.on_line(name, "info", line)
        if job is not None and splitter.count_bytes > job.limits.output_bytes:
            limit = job.limits.output_mb
            self._fail(Died("limit", "output_limit", f"the command printed over {limit} MiB"))
            return False
        return True

    def _finish_lines(self) -> None:
        """Take what lies in the pipes: it was printed before the answer was sent."""
        job = self._job
        for name, splitter in self._lines.items():
            pipe = self._streams[name]
            if pipe is not None and not pipe.closed:
                for _ in range(8):  # a pipe holds less; a left-over thread must not keep us here
                    if not self._printed(name):
                        break
            for line in splitter.end():
                if job is not None:
                    job.on_line(name, "info", line)

    def _ended(self) -> None:
        """The process is gone: reap it and tell whoever waits."""
        self._loop.remove_reader(self._pidfd)
        returncode = self._process.wait()
        is_oom = self._oom_kills() > self._ooms
        if not self._dead.done():
            self._dead.set_result(None)
        self._fail(Died(*why_dead(returncode, is_oom=is_oom)))
        if not self._hello.done():
            self._hello.set_exception(Died("sandbox", "interpreter_start", self._last_words()))
            self._hello.exception()  # seen here: nobody may be waiting

    def _oom_kills(self) -> int:
        return oom_kills() if self._group is None else self._group.oom_kills()

    def _last_words(self) -> str:
        pipe = self._streams["stderr"]
        try:
            said = b"" if pipe is None else os.read(pipe.fileno(), 4096)
        except OSError:
            said = b""
        return f"the interpreter did not start: {said.decode('utf-8', 'replace').strip()}"

    def _fail(self, fault: Died) -> None:
        self.is_dirty = True
        if self._done is not None and not self._done.done():
            self._done.set_exception(fault)

    async def end(self, *, grace_s: float = TERM_GRACE_S) -> None:
        """End the process group: ask, wait, then force; release every descriptor."""
        self._job = None
        if self.is_alive:
            if grace_s > 0:
                signal_tree(self.pid, signal.SIGTERM)
                await asyncio.wait([self._dead], timeout=grace_s)
            signal_tree(self.pid, signal.SIGKILL)
            await self._dead
        else:
            signal_tree(self.pid, signal.SIGKILL)
        self._close()

    def _close(self) -> None:
        for source in (self._socket, *self._streams.values()):
            if source is not None and source.fileno() >= 0:
                self._loop.remove_reader(source)
                source.close()
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._group is not None:
            self._group.remove()
        shutil.rmtree(self.work, ignore_errors=True)
