"""The commands that this worker holds, and the slots in which they run."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
    from typing import Any

    from noetl.api.commands import Command

ABANDON_S: Final = 10.0
MOST_REMEMBERED: Final = 4096
_NOTHING: Final[Mapping[str, int]] = {}


@dataclass(slots=True, eq=False)
class Run:
    """One command from its claim to its report."""

    command: Command
    task: asyncio.Task[None] | None = None
    checkpoint: Callable[[], dict[str, Any]] | None = None
    """Tells how far it is; None while nothing would be repeated."""
    is_saved: bool = True
    """Whether the server knows the checkpoint."""
    is_started: bool = False
    is_stopped: bool = False
    """It was cancelled, lost or given back: whatever comes of it is not reported."""
    overrun: asyncio.TimerHandle | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Which attempt of which command it is."""
        return self.command.command_id, self.command.attempt


class Held:
    """Starts commands in free slots and counts what may still be asked for."""

    def __init__(self, slots: int, execute: Callable[[Run], Coroutine[Any, Any, None]]) -> None:
        self.slots = slots
        self.abandoned = 0
        self.is_closed = False
        self.changed = asyncio.Event()
        """Set whenever a slot may have become free."""
        self._execute = execute
        self._running: dict[str, Run] = {}
        self._waiting: deque[Run] = deque()
        self._promised = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._reported: OrderedDict[tuple[str, int], None] = OrderedDict()

    @property
    def free(self) -> int:
        """Slots that no command uses and no open request may fill."""
        if self.is_closed:
            return 0
        return max(0, self.slots - len(self._running) - len(self._waiting) - self._promised)

    @property
    def running(self) -> int:
        """How many commands run."""
        return len(self._running)

    def __iter__(self) -> Iterator[Run]:
        """Every command that is held, started or not."""
        yield from self._running.values()
        yield from self._waiting

    def __len__(self) -> int:
        """How many commands are held."""
        return len(self._running) + len(self._waiting)

    @contextmanager
    def promise(self, slots: int) -> Iterator[None]:
        """Set slots aside for what a request may bring."""
        self._promised += slots
        try:
            yield
        finally:
            self._promised -= slots
            self.changed.set()

    def take(self, commands: Iterable[Command]) -> None:
        """Run the commands, those without a slot as soon as there is one."""
        for command in commands:
            known = self._find(command.command_id)
            if known is not None and known.command.attempt >= command.attempt:
                continue
            if (command.command_id, command.attempt) in self._reported:
                continue  # its report is on the way, the server has not seen it yet
            if known is not None:
                self.stop(known)
            run = Run(command)
            if len(self._running) < self.slots and not self.is_closed:
                self._start(run)
            else:
                self._waiting.append(run)

    def stop_ids(self, ids: Iterable[str], attempts: Mapping[str, int] = _NOTHING) -> int:
        """Stop these commands, or those of these executions; how many there were.

        `attempts` names the attempt that is meant, where another one may run by now.
        """
        wanted = frozenset(ids)
        found = []
        for run in self if wanted else ():
            command_id, attempt = run.command.command_id, run.command.attempt
            if run.is_stopped or attempts.get(command_id, attempt) != attempt:
                continue
            if command_id in wanted or run.command.execution_id in wanted:
                found.append(run)
        for run in found:
            self.stop(run)
        return len(found)

    def stop(self, run: Run) -> None:
        """End a command without a report; its slot is free when its tool has ended."""
        if run.is_stopped:
            return
        run.is_stopped = True
        if run.task is None:
            self._waiting.remove(run)
            self.changed.set()
            return
        run.task.cancel()
        loop = asyncio.get_running_loop()
        run.overrun = loop.call_later(ABANDON_S, self._abandon, run)

    def unstarted(self) -> list[Run]:
        """Commands whose tool has not begun."""
        return [run for run in self if not run.is_started and not run.is_stopped]

    async def emptied(self, within_s: float | None = None) -> bool:
        """Wait until no command runs; whether it came to that in time."""
        loop = asyncio.get_running_loop()
        ends = None if within_s is None else loop.time() + within_s
        while self._tasks:
            left = None if ends is None else ends - loop.time()
            if left is not None and left <= 0:
                return False
            await asyncio.wait(self._tasks, timeout=left)
        return True

    def _find(self, command_id: str) -> Run | None:
        run = self._running.get(command_id)
        if run is not None and not run.is_stopped:
            return run
        return next((run for run in self._waiting if run.command.command_id == command_id), None)

    def _start(self, run: Run) -> None:
        command_id = run.command.command_id
        if command_id in self._running:  # an older attempt is still being stopped
            self._waiting.append(run)
            return
        self._running[command_id] = run
        task = asyncio.get_running_loop().create_task(self._execute(run))
        run.task = task
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._ended(run, task))

    def _ended(self, run: Run, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if run.overrun is not None:
            run.overrun.cancel()
        if not task.cancelled() and (fault := task.exception()) is not None:
            raise fault
        self._free(run)

    def reported(self, run: Run) -> None:
        """The command is over but for its report: free its slot, and do not run it again."""
        self._reported[run.key] = None
        if len(self._reported) > MOST_REMEMBERED:
            self._reported.popitem(last=False)
        self._free(run)

    def _free(self, run: Run) -> None:
        """Give the slot to the next."""
        if self._running.get(run.command.command_id) is not run:
            return
        del self._running[run.command.command_id]
        if self._waiting and not self.is_closed:
            self._start(self._waiting.popleft())
        self.changed.set()

    def _abandon(self, run: Run) -> None:
        """A tool that ignores its end keeps no slot."""
        self.abandoned += 1
        self._free(run)
