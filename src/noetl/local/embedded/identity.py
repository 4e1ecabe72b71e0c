"""Which process a number stands for: a number is used again, its start time is not."""

from __future__ import annotations

import contextlib
import os
import select
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable

_PROC: Final = Path("/proc")
_START_TIME: Final = 19  # field 22 of /proc/PID/stat, counted from behind the name
_LOOK_AGAIN_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Identity:
    """A process that was seen running."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        """Whether the same process still runs."""
        return identity(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):  # it ended a moment ago
                os.kill(self.pid, number)


def identity(pid: int) -> Identity | None:
    """The process of a number; none when nothing runs under it."""
    if _PROC.joinpath("self").exists():
        try:
            text = _PROC.joinpath(str(pid), "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        # The name stands in parentheses and may hold anything, parentheses included.
        rest = text.rpartition(")")[2].split()
        return None if rest[0] in {"Z", "X"} else Identity(pid, rest[_START_TIME])
    return _from_ps(pid)


def _from_ps(pid: int) -> Identity | None:
    """The same where there is no /proc."""
    import subprocess  # noqa: PLC0415 - only where there is no /proc

    words = ["/bin/ps", "-o", "state=,lstart=", "-p", str(pid)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - a constant and a number
    state, _, started = done.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else Identity(pid, started.strip())


def await_end(processes: Iterable[Identity], timeout_s: float) -> list[Identity]:
    """Wait until processes are gone; those that are not in time are returned."""
    left = [process for process in processes if process.is_alive]
    looks = max(1, int(timeout_s / _LOOK_AGAIN_S))
    for _ in range(looks):
        if not left:
            break
        select.select([], [], [], _LOOK_AGAIN_S)
        left = [process for process in left if process.is_alive]
    return left
