"""Limits of a child process, how a group of processes is ended, and why one died."""

from __future__ import annotations

import os
import signal
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

TERM_GRACE_S: Final = 5.0
WATCH_S: Final = 0.1
WATCH_SHARE: Final = 20  # looking may take a twentieth of the time
_BLOCK: Final = 4096
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_IN_FRONT: Final = 1  # the first process of a namespace, which does nothing
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


def used_bytes(folder: Path, most: int) -> int:
    """How much lies in a folder, counted until it is over the most; a name counts as a block."""
    total = 0
    ahead = [str(folder)]
    while ahead and total <= most:
        try:
            with os.scandir(ahead.pop()) as found:
                for one in found:
                    if one.is_dir(follow_symlinks=False):
                        ahead.append(one.path)
                    total += max(_BLOCK, one.stat(follow_symlinks=False).st_blocks * 512)
                    if total > most:
                        break
        except OSError:
            continue  # it went while we looked
    return total


def over_limit(pid: int, work: Path, limits: Limits) -> tuple[str, str] | None:
    """The code and message of a limit that a child is over with all its processes together.

    The kernel counts for each process alone, unless the child has a control group.
    """
    tree = [pid, *_descendants(pid)]
    if limits.procs is not None and len(tree) - 1 > limits.procs + _IN_FRONT:
        return "process_limit", f"over {limits.procs} processes"
    nameless = [_nameless_bytes(one) for one in tree]
    if limits.memory_mb is not None:
        used = sum(_own_bytes(one) for one in tree) + sum(memory for memory, _ in nameless)
        if used > limits.memory_mb << 20:
            return "memory_limit", f"its processes use over {limits.memory_mb} MiB"
    if limits.disk_mb is not None:
        most = limits.disk_mb << 20
        if used_bytes(work, most) + sum(disk for _, disk in nameless) > most:
            return "disk_limit", f"over {limits.disk_mb} MiB of files"
    return None


def _own_bytes(pid: int) -> int:
    """Memory of a process that it shares with no file."""
    try:
        resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE


def _nameless_bytes(pid: int) -> tuple[int, int]:
    """Memory and disk that files take which only this process can still reach."""
    memory = disk = 0
    try:
        with os.scandir(f"/proc/{pid}/fd") as found:
            for one in found:
                about = one.stat()
                if stat.S_ISREG(about.st_mode) and about.st_nlink == 0:
                    is_memory = str(Path(one.path).readlink()).startswith("/memfd:")
                    memory += about.st_blocks * 512 if is_memory else 0
                    disk += 0 if is_memory else about.st_blocks * 512
    except OSError:
        return memory, disk  # it ended, or is not ours to look at
    return memory, disk


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


def oom_kills(file: Path = _MEMORY_EVENTS) -> int:
    """How often the kernel ended a process of a control group for want of memory; ours first."""
    try:
        lines = file.read_text().splitlines()
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
