"""Limits of a child process, how a group of processes is ended, and why one died."""

from __future__ import annotations

import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

TERM_GRACE_S: Final = 5.0
_MEMORY_EVENTS: Final = Path("/sys/fs/cgroup/memory.events")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one child may use."""

    memory_mb: int | None = 1024
    cpu_s: int | None = None
    files: int | None = 256
    procs: int | None = 64
    disk_mb: int | None = 512
    output_mb: int = 64

    def as_json(self) -> dict[str, Any]:
        """The form in which the child receives them."""
        return asdict(self)

    @property
    def output_bytes(self) -> int:
        """The most bytes that a command may print, and that its result may have."""
        return self.output_mb << 20


def signal_tree(pid: int, number: signal.Signals) -> None:
    """Send a signal to the group of a child and to descendants that left the group."""
    targets = _descendants(pid)
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        targets = [pid, *targets]
    for target in targets:
        try:
            os.kill(target, number)
        except (ProcessLookupError, PermissionError):
            continue


def count_below(pid: int) -> int:
    """How many living processes are below one."""
    return len(_descendants(pid))


def _descendants(pid: int) -> list[int]:
    """Every living process below one, as far as the kernel tells."""
    found: list[int] = []
    ahead = [pid]
    while ahead:
        here = ahead.pop()
        try:
            tasks = list(Path(f"/proc/{here}/task").iterdir())
            below = [
                int(text) for task in tasks for text in (task / "children").read_text().split()
            ]
        except (OSError, ValueError):
            continue
        found += below
        ahead += below
    return found


def oom_kills() -> int:
    """How often the kernel ended a process of this control group for want of memory."""
    try:
        lines = _MEMORY_EVENTS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def why_dead(returncode: int | None, *, is_oom: bool) -> tuple[str, str, str]:
    """Kind, code and message for a child that ended before it answered."""
    code = returncode or 0
    number = -code if code < 0 else code - 128 if code > 128 else 0  # noqa: PLR2004 - shell form
    if number == signal.SIGXCPU:
        return "limit", "cpu_limit", "the processor time limit was reached"
    if number == signal.SIGKILL and is_oom:
        return "limit", "memory_limit", "the memory limit was reached"
    if number:
        return "python", f"signal_{number}", f"the interpreter was ended by signal {number}"
    return "python", f"exit_{code}", f"the interpreter ended with code {code} before its result"
