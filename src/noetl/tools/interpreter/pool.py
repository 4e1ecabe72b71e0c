"""Warm child interpreters: one trust domain each, reused until they show wear."""

from __future__ import annotations

import asyncio
import contextlib
import py_compile
import shutil
import sys
import tempfile
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from noetl.tools.interpreter import environments, scratch
from noetl.tools.interpreter.runner import CHILD, Died, Job, Runner, Unfit
from noetl.tools.interpreter.sandbox import Sandbox, Walls, clean_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.tools.interpreter.environments import Environments
    from noetl.tools.interpreter.frames import Done
    from noetl.tools.interpreter.limits import Limits

MOST_COMMANDS: Final = 1_000
MOST_AGE_S: Final = 30 * 60.0
MOST_IDLE_S: Final = 10 * 60.0
MOST_GROWTH_BYTES: Final = 64 << 20
# A child costs about 40 ms of a core; a command that is waited for is mostly done sooner.
PATIENCE_S: Final = 0.005
_WAITS_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)

Key = tuple[str, "Limits", Walls, str]
"""Who may share a child: its domain, limits and walls, and the packages that it sees."""


@dataclass(slots=True)
class Counts:
    """What the pool did so far."""

    started: int = 0
    reused: int = 0
    retired: dict[str, int] = field(default_factory=dict)


class Interpreters:
    """The children of one worker."""

    def __init__(  # noqa: PLR0913 - what a worker decides about its children
        self,
        sandbox: Sandbox,
        environ: Mapping[str, str],
        *,
        slots: int = 4,
        spares: int = 1,
        python: str = sys.executable,
        packages: Environments | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Nothing starts before `warm_up` or the first command.

        Without `packages` no command may ask for packages.
        """
        self.sandbox = sandbox
        self._environments = packages
        self._patience_s = patience_s
        self._copies: dict[Path, asyncio.Task[None]] = {}
        self.counts = Counts()
        self._environment = clean_environment(environ)
        self._python = python
        self._slots = asyncio.Semaphore(slots)
        self._most_idle = slots
        self._most_spares = spares
        self._idle: dict[Key, list[Runner]] = {}
        self._busy: Counter[Key] = Counter()
        self._waiting: dict[Key, deque[asyncio.Future[Runner]]] = {}
        self._spares: list[Runner] = []
        self._timers: dict[Runner, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._root: Path | None = None
        self._is_closed = False
        with contextlib.suppress(OSError):  # a read-only install has it, or compiles each time
            py_compile.compile(str(CHILD), quiet=2)

    async def run(self, job: Job) -> Done:
        """Run one command in a child of its domain; a failed child is ended, never reused."""
        packages = await self._packages(job.requirements)
        async with self._slots:
            while True:
                try:
                    return await self._run(job, packages)
                except Unfit:
                    continue  # that child is gone

    async def _packages(self, requirements: tuple[str, ...]) -> str:
        """The folder of the packages that a command asks for; nothing when it asks for none."""
        if not requirements:
            return ""
        if self._environments is None:
            message = "`requirements` are off (NOETL_PYTHON_REQUIREMENTS=deny)"
            raise Died("config", "requirements_denied", message)
        folder = await self._environments.made(requirements)
        if self.sandbox.may_reach(folder):
            return str(folder)
        copy = self._folder() / folder.name  # children of another user do not get into our home
        if folder not in self._copies:
            copying = asyncio.to_thread(environments.copied, folder, copy)
            self._copies[folder] = asyncio.create_task(copying)
        await asyncio.shield(self._copies[folder])
        return str(copy)

    async def _run(self, job: Job, packages: str) -> Done:
        key = (job.domain, job.limits, job.walls, packages)
        runner = await self._take(key, job)
        self._busy[key] += 1
        try:
            done = await runner.run(job)
        except Unfit:
            self._end_later(runner, "left_over")
            raise
        except Died:
            await asyncio.shield(self._retire(runner, "died", grace_s=0))
            raise
        except BaseException:
            await asyncio.shield(self._retire(runner, "cancelled"))
            raise
        finally:
            self._busy[key] -= 1
            if not self._busy[key]:
                del self._busy[key]
        self._give_back(key, runner, job)
        return done

    async def warm_up(self) -> None:
        """Start the spare children and wait for them."""
        self._top_up()
        await asyncio.gather(*(runner.ready() for runner in self._spares))

    async def close(self) -> None:
        """End every child and remove their folders."""
        self._is_closed = True
        idle = [runner for group in self._idle.values() for runner in group]
        self._idle.clear()
        spares, self._spares = self._spares, []
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await asyncio.gather(*(runner.end(grace_s=0) for runner in (*idle, *spares)))
        if self._ending:
            await asyncio.gather(*self._ending)
        if self._environments is not None:
            await self._environments.close()
        if self._copies:
            await asyncio.wait(self._copies.values())
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    async def _take(self, key: Key, job: Job) -> Runner:
        if not job.is_fresh:
            found = self._rested(key) or await self._soon(key)
            if found is not None:
                self.counts.reused += 1
                return found
        runner = await self._new(job.walls, key[-1])
        try:
            await runner.ready()
            await runner.limit(job.limits)
        except BaseException:
            await asyncio.shield(self._retire(runner, "start", grace_s=0))
            raise
        return runner

    async def _new(self, walls: Walls, packages: str) -> Runner:
        """A new child; a machine with too many processes for a moment is given that moment."""
        waits = iter(_WAITS_S)
        while True:
            try:
                is_usual = walls == Walls() and not packages
                return self._spare() if is_usual else self._start(walls, packages)
            except BlockingIOError:
                wait_s = next(waits, None)
            if wait_s is None:
                message = "no child can be started: there are too many processes"
                raise Died("limit", "process_limit", message)
            await asyncio.sleep(wait_s)

    def _rested(self, key: Key) -> Runner | None:
        """A child that is idle."""
        group = self._idle.get(key, [])
        while group:
            runner = group.pop()
            self._timers.pop(runner).cancel()
            if runner.is_alive and not self._wear(runner):
                return runner
            self._end_later(runner, self._wear(runner) or "died")
        return None

    async def _soon(self, key: Key) -> Runner | None:
        """A child that is about to be free, if one is."""
        if not self._busy[key]:
            return None
        waiter: asyncio.Future[Runner] = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(key, deque())
        queue.append(waiter)
        try:
            await asyncio.wait((waiter,), timeout=self._patience_s)
        except BaseException:
            if waiter.done():
                self._rest(key, waiter.result())
            raise
        finally:
            if not waiter.done():
                queue.remove(waiter)
                waiter.cancel()
            if not queue:
                self._waiting.pop(key, None)
        return waiter.result() if not waiter.cancelled() else None

    def _spare(self) -> Runner:
        while self._spares:
            runner = self._spares.pop(0)
            if runner.is_alive:
                asyncio.get_running_loop().call_soon(self._top_up)
                return runner
            self._end_later(runner, "died")
        asyncio.get_running_loop().call_soon(self._top_up)
        return self._start(Walls())

    def _top_up(self) -> None:
        with contextlib.suppress(BlockingIOError):  # a spare is no must
            while len(self._spares) < self._most_spares and not self._is_closed:
                self._spares.append(self._start(Walls()))

    def _folder(self) -> Path:
        if self._root is None:
            self._root = scratch.made(0o711)
        return self._root

    def _start(self, walls: Walls, packages: str = "") -> Runner:
        work = Path(tempfile.mkdtemp(dir=self._folder()))
        shown = (Path(packages),) if packages else ()
        self.counts.started += 1
        groups = self.sandbox.groups
        return Runner(
            self.sandbox.confine(walls, work, shown),
            work,
            self._environment,
            f"{packages}/bin/python" if packages else self._python,
            None if groups is None else groups.make(),
        )

    def _give_back(self, key: Key, runner: Runner, job: Job) -> None:
        wear = "fresh" if job.is_fresh else self._wear(runner)
        if wear or self._is_closed:
            self._end_later(runner, wear or "closed")
            return
        queue = self._waiting.get(key)
        if queue and runner.is_alive:
            queue.popleft().set_result(runner)
        else:
            self._rest(key, runner)

    def _rest(self, key: Key, runner: Runner) -> None:
        """Keep a child for the next command."""
        self._idle.setdefault(key, []).append(runner)
        loop = asyncio.get_running_loop()
        self._timers[runner] = loop.call_later(MOST_IDLE_S, self._expire, key, runner)
        if len(self._timers) > self._most_idle:
            self._evict()

    def _wear(self, runner: Runner) -> str:
        """Why a child is not used again, if it is not."""
        if runner.is_dirty:
            return "left_over"
        if runner.commands >= MOST_COMMANDS:
            return "commands"
        if runner.growth_bytes > MOST_GROWTH_BYTES:
            return "memory"
        if asyncio.get_running_loop().time() - runner.born > MOST_AGE_S:
            return "age"
        return ""

    def _evict(self) -> None:
        """End the child that was idle longest."""
        oldest = next(iter(self._timers))
        key = next(key for key, group in self._idle.items() if oldest in group)
        self._expire(key, oldest)

    def _expire(self, key: Key, runner: Runner) -> None:
        self._timers.pop(runner).cancel()
        group = self._idle[key]
        group.remove(runner)
        if not group:
            del self._idle[key]
        self._end_later(runner, "idle")

    def _end_later(self, runner: Runner, reason: str) -> None:
        task = asyncio.get_running_loop().create_task(self._retire(runner, reason, grace_s=0))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _retire(self, runner: Runner, reason: str, *, grace_s: float | None = None) -> None:
        self.counts.retired[reason] = self.counts.retired.get(reason, 0) + 1
        if grace_s is None:
            await runner.end()
        else:
            await runner.end(grace_s=grace_s)
