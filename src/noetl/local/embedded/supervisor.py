"""Starts the parts of a stack side by side, keeps them alive, and stops them in reverse order."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from noetl.clock import rfc3339
from noetl.errors import NoetlError
from noetl.local.embedded import record
from noetl.local.embedded.children import PartFailed, ending
from noetl.local.embedded.identity import identity
from noetl.local.embedded.stopping import GRACE_S

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from noetl.clock import Clock
    from noetl.local.embedded.children import Child
    from noetl.local.embedded.home import Home
    from noetl.local.embedded.logs import Logs

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
LONGEST_KEPT_PAUSE_S: Final = 60.0
"""Of a part that the stack can do without."""
MOST_DEATHS: Final = 5
WITHIN_S: Final = 60.0
NAME: Final = "up"


class StackFailed(NoetlError):
    """A stack that did not come up, or could not be kept up."""

    code = "stack_failed"

    def __init__(self, message: str, *, part: str, lines: Sequence[str] = ()) -> None:
        super().__init__(message, hint=f"`noetl logs {part}` shows all that it said")
        self.part = part
        self.lines = tuple(lines)


@dataclass(slots=True)
class Life:
    """How often a part ended of late, and how long to wait before it is started again."""

    deaths: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_DEATHS))
    pause_s: float = FIRST_PAUSE_S
    restarts: int = 0

    def died(self, now: float) -> float | None:
        """How long to wait before the next start; none when it ended too often."""
        if self.deaths and now - self.deaths[-1] > WITHIN_S:
            self.pause_s = FIRST_PAUSE_S
        self.deaths.append(now)
        if len(self.deaths) == MOST_DEATHS and now - self.deaths[0] <= WITHIN_S:
            return None
        pause_s, self.pause_s = self.pause_s, min(self.pause_s * 2, LONGEST_PAUSE_S)
        self.restarts += 1
        return pause_s


class Supervisor:
    """The one who knows every process of a stack."""

    def __init__(self, home: Home, stack: record.Stack, logs: Logs, clock: Clock) -> None:
        self._home = home
        self._logs = logs
        self._clock = clock
        self._children: list[Child] = []
        self._watches: list[asyncio.Task[None]] = []
        self._guard: asyncio.subprocess.Process | None = None
        self.stack = stack

    async def open(self) -> None:
        """Keep the record from now on, with a guard that outlives us."""
        self._keep()
        self._guard = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "noetl.local.embedded.guard", self._home.record,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL, start_new_session=True, cwd="/",
        )  # fmt: skip

    async def start(self, child: Child) -> None:
        """Start a part, and keep it alive from then on; returns when it is ready."""
        self._children.append(child)
        life = Life()
        try:
            await self._begin(child, life)
        except PartFailed as fault:
            if fault.is_hopeless:
                raise self._failed(child, fault.message) from fault
            await self._again(child, life, fault.message)
        except StackFailed:
            raise
        except NoetlError as fault:
            raise self._failed(child, f"{fault.message} {fault.hint}".strip()) from fault
        name = f"watch of {child.name}"
        self._watches.append(asyncio.create_task(self._watch(child, life), name=name))

    async def keep(self, child: Child) -> None:
        """Keep a part alive that the stack can do without, until cancelled; then it is stopped."""
        life, pause_s = Life(), FIRST_PAUSE_S
        self._children.append(child)
        try:
            while True:
                began = self._clock.monotonic()
                try:
                    await self._begin(child, life)
                    reason = f"{child.name} ended with {ending(await child.wait())}."
                except NoetlError as fault:
                    reason = fault.message
                if self._clock.monotonic() - began > WITHIN_S:
                    pause_s = FIRST_PAUSE_S
                self._say(f"{reason} It starts again in {pause_s:g} s.")
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_KEPT_PAUSE_S)
                life.restarts += 1
        finally:
            await child.stop(GRACE_S)
            self._children.remove(child)
            self.stack = self.stack.without(child.name)
            self._keep()

    def ready(self) -> None:
        """All parts are up."""
        self.stack = replace(self.stack, state=record.READY)
        self._keep()

    async def unless_broken(self, work: Coroutine[object, object, object]) -> None:
        """Do something; a part that cannot be kept alive meanwhile ends it with its failure."""
        doing = asyncio.create_task(work)
        try:
            while not doing.done():
                await asyncio.wait(
                    (doing, *self._watches), timeout=1.0, return_when=asyncio.FIRST_COMPLETED
                )
                for watch in self._watches:
                    if watch.done():
                        watch.result()
        finally:
            doing.cancel()
            await asyncio.wait((doing,))
        doing.result()

    async def stop(self) -> None:
        """Stop everything that was started, the last stage first."""
        self.stack = replace(self.stack, state=record.STOPPING)
        self._keep()
        for watch in self._watches:
            watch.cancel()
        if self._watches:
            await asyncio.wait(self._watches)
        stages: dict[int, list[Child]] = {}
        for child in self._children:
            stages.setdefault(child.part().stage, []).append(child)
        for stage in sorted(stages, reverse=True):
            self._say(f"stopping {', '.join(child.name for child in stages[stage])}")
            async with asyncio.TaskGroup() as group:
                for child in stages[stage]:
                    group.create_task(child.stop(GRACE_S))
        self._home.record.unlink(missing_ok=True)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            await self._guard.wait()

    async def _watch(self, child: Child, life: Life) -> None:
        """Start a part again whenever it ends."""
        while True:
            code = await child.wait()
            await self._again(child, life, f"{child.name} ended with {ending(code)}.")

    async def _again(self, child: Child, life: Life, reason: str) -> None:
        """Start a part again, as often as it takes; raises when it ends too often."""
        while True:
            pause_s = life.died(self._clock.monotonic())
            if pause_s is None:
                raise self._failed(
                    child, f"{child.name} ended {MOST_DEATHS} times within a minute: {reason}"
                )
            self._say(f"{reason} It starts again in {pause_s:g} s.")
            await asyncio.sleep(pause_s)
            try:
                await self._begin(child, life)
            except NoetlError as fault:
                reason = fault.message
            else:
                self._say(f"{child.name} runs again as process {child.pid}.")
                return

    async def _begin(self, child: Child, life: Life) -> None:
        await child.start(lambda: self._note(child, life))
        self._note(child, life)

    def _failed(self, child: Child, message: str) -> StackFailed:
        return StackFailed(message, part=child.name, lines=self._logs.last(child.name))

    def _note(self, child: Child, life: Life) -> None:
        """Tell the record which process a part is now."""
        seen = identity(child.pid) if child.pid else None
        part = replace(
            child.part(),
            started=seen.started if seen else "",
            started_at=rfc3339(self._clock.now()),
            log=str(self._home.log(child.name)),
            restarts=life.restarts,
        )
        for before in self.stack.parts:
            if before.name == part.name and before.identity == part.identity:
                part = replace(part, started_at=before.started_at)
        self.stack = self.stack.with_part(part)
        self._keep()

    def _keep(self) -> None:
        record.write(self._home.record, self.stack)

    def _say(self, text: str) -> None:
        self._logs.line(NAME, text)


def me() -> tuple[int, str]:
    """This process, as a record names it."""
    seen = identity(os.getpid())
    return os.getpid(), seen.started if seen else ""
