"""The commands that this worker holds, and the slots in which they run."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from noetl.worker.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
    from typing import Any

    from noetl.api.commands import Command

ABANDON_S: Final = 10.0
MOST_REMEMBERED: Final = 4096
KEPT_WAITING: Final = 4
"""How many times its limit a kind may be held, so that there is a next one at once."""
STALE_S: Final = 0.25
"""How long a command may wait for a slot before others may have it."""
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
    claimed_at: float = 0.0
    """In the time of the loop."""
    began_at: float = 0.0
    """When it got its slot, in the same time."""
    is_started: bool = False
    is_stopped: bool = False
    """It was cancelled, lost or given back: whatever comes of it is not reported."""
    overrun: asyncio.TimerHandle | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Which attempt of which command it is."""
        return self.command.command_id, self.command.attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """How many commands of a kind may run at once, and who takes those that are too many."""

    limits: Mapping[str, int] = field(default_factory=dict)
    on_excess: Callable[[Run, str], None] = lambda _run, _reason: None
    """Gives back a command that was stopped here, for a reason."""

    def full(self, runs: Iterable[Run]) -> frozenset[str]:
        """The kinds of which there are as many as may be."""
        counts = Counter(run.command.action for run in runs if not run.is_stopped)
        return frozenset(kind for kind, most in self.limits.items() if counts[kind] >= most)

    def is_excess(self, command: Command, runs: Iterable[Run]) -> bool:
        """Whether so many wait here already that others should have it."""
        most = self.limits.get(command.action)
        if most is None:
            return False
        return sum(run.command.action == command.action for run in runs) >= most * KEPT_WAITING


class Held:
    """Starts commands in free slots and counts what may still be asked for."""

    def __init__(
        self,
        slots: int,
        execute: Callable[[Run], Coroutine[Any, Any, None]],
        kinds: Kinds | None = None,
    ) -> None:
        self.slots = slots
        self.brakes: frozenset[str] = frozenset()
        """Reasons to take no more work for now."""
        self.resumes_at = 0.0
        """Until when, in the time of the loop, the server gives no work."""
        self.abandoned = 0
        self.is_closed = False
        self.changed = asyncio.Event()
        """Set whenever a slot may have become free."""
        self._execute = execute
        self._kinds = kinds or Kinds()
        self._running: dict[str, Run] = {}
        self._waiting: deque[Run] = deque()
        self._promised = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._reported: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._pace = Pace()
        self._looking: asyncio.TimerHandle | None = None

    @property
    def wanted(self) -> int:
        """Free slots, and the commands that are worth having before there is one."""
        if self.is_closed or self.brakes or self.is_paused:
            return 0
        now = asyncio.get_running_loop().time()
        ages = (now - run.began_at for run in self._running.values())
        return max(0, self.unused + self._pace.ahead(self.slots, ages) - self._promised)

    @property
    def free(self) -> int:
        """Slots that no command uses and no open request may fill."""
        if self.is_closed or self.brakes or self.is_paused:
            return 0
        return max(0, self.unused - self._promised)

    @property
    def is_paused(self) -> bool:
        """Whether the server asked to be left alone for a while."""
        return self.resumes_at > 0 and self.resumes_at > asyncio.get_running_loop().time()

    @property
    def unused(self) -> int:
        """Slots that no command uses, or waits for; one whose kind is full waits for no slot."""
        waiting = len(self._waiting)
        if waiting and self._kinds.limits:
            full = self._kinds.full(self._running.values())
            waiting = sum(run.command.action not in full for run in self._waiting)
        return self.slots - len(self._running) - waiting

    @property
    def full_kinds(self) -> tuple[str, ...]:
        """Kinds of which no more may be taken."""
        return tuple(sorted(self._kinds.full(self))) if self._kinds.limits else ()

    @property
    def is_limited(self) -> bool:
        """Whether some kind has a limit of its own."""
        return bool(self._kinds.limits)

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
        now = asyncio.get_running_loop().time()
        for command in commands:
            known = self._find(command.command_id)
            if known is not None and known.command.attempt >= command.attempt:
                continue
            if (command.command_id, command.attempt) in self._reported:
                continue  # its report is on the way, the server has not seen it yet
            if known is not None:
                self.stop(known)
            run = Run(command, claimed_at=now)
            if self._kinds.limits and self._kinds.is_excess(command, self):
                run.is_stopped = True
                self._kinds.on_excess(run, "kind_limit")
            elif len(self._running) < self.slots and not self.is_closed and self._may_start(run):
                self._start(run)
            else:
                self._waiting.append(run)
                self._look_later()

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

    def snapshot(self) -> list[Run]:
        """Every command that is held; other threads may ask, each list is made in one go."""
        return [*list(self._running.values()), *list(self._waiting)]

    def _may_start(self, run: Run) -> bool:
        """Whether no older attempt is still being stopped, and its kind is not full."""
        if run.command.command_id in self._running:
            return False
        limits = self._kinds.limits
        return not limits or run.command.action not in self._kinds.full(self._running.values())

    def _start(self, run: Run) -> None:
        self._running[run.command.command_id] = run
        run.began_at = asyncio.get_running_loop().time()
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
        self._pace.ended(asyncio.get_running_loop().time() - run.began_at)
        self._free(run)

    def _free(self, run: Run) -> None:
        """Give the slot to the next."""
        if self._running.get(run.command.command_id) is not run:
            return
        del self._running[run.command.command_id]
        if self._waiting and not self.is_closed:
            self._start_waiting()
        self.changed.set()

    def _start_waiting(self) -> None:
        """Start those that waited longest, each if its kind allows."""
        for run in list(self._waiting):
            if len(self._running) >= self.slots:
                return
            if self._may_start(run):
                self._waiting.remove(run)
                self._start(run)

    def _look_later(self) -> None:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(STALE_S, self._look)

    def _look(self) -> None:
        """Give back what waits for a slot too long.

        One whose kind is limited, or whose older attempt has not ended, waits for that.
        """
        self._looking = None
        before = asyncio.get_running_loop().time() - STALE_S
        for run in list(self._waiting):
            command = run.command
            if command.action in self._kinds.limits or command.command_id in self._running:
                continue
            if run.claimed_at > before:
                self._look_later()
            else:
                self.stop(run)
                self._kinds.on_excess(run, "no_slot")

    def _abandon(self, run: Run) -> None:
        """A tool that ignores its end keeps no slot."""
        self.abandoned += 1
        self._free(run)
