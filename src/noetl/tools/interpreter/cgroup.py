"""Control groups of children, where the machine lets us make them (version 2, delegated).

A group counts what all processes of a child use together, which limits of single processes cannot.
The kernel lets groups be limited only below one that has no processes of its own, so the worker
moves itself into a group beside those of its children.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from noetl.tools.interpreter.limits import oom_kills

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.tools.interpreter.limits import Limits

_ROOT: Final = Path("/sys/fs/cgroup")
_SELF: Final = Path("/proc/self/cgroup")
_NEEDED: Final = frozenset({"memory", "pids"})
_SLACK: Final = 2  # the program in front of a child, and its own first process


@dataclass(frozen=True, slots=True)
class Group:
    """The control group of one child."""

    folder: Path

    def limit(self, limits: Limits) -> None:
        """Say what the processes of the child may use together."""
        memory = "max" if limits.memory_mb is None else str(limits.memory_mb << 20)
        procs = "max" if limits.procs is None else str(limits.procs + _SLACK)
        self._write("memory.max", memory)
        self._write("memory.swap.max", "0")
        self._write("memory.oom.group", "1")
        self._write("pids.max", procs)

    def door(self) -> int:
        """A descriptor to which a process writes `0` to enter."""
        return os.open(self.folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    def oom_kills(self) -> int:
        """How often the kernel ended processes of the child for want of memory."""
        return oom_kills(self.folder / "memory.events")

    def remove(self) -> None:
        """End what is still in it, and remove it."""
        self._write("cgroup.kill", "1")
        try:
            self.folder.rmdir()
        except OSError:
            return  # a process is still on its way out: the group goes with the worker's own

    def _write(self, name: str, value: str) -> None:
        """Write one file; a kernel without it (swap, kill) has nothing to say there."""
        try:
            (self.folder / name).write_text(value)
        except OSError:
            return


class Groups:
    """Makes groups below one that is ours."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._numbers: Iterator[int] = count(1)

    @classmethod
    def found(cls, root: Path = _ROOT, own: Path = _SELF) -> Groups | None:
        """The groups that we may make; None where the machine gives us none."""
        try:
            place = next(
                line[3:] for line in own.read_text().splitlines() if line.startswith("0::/")
            )
            base = root / place.lstrip("/")
            if not set((base / "cgroup.controllers").read_text().split()) >= _NEEDED:
                return None
            leaf = base / f"noetl-worker-{os.getpid()}"
            leaf.mkdir(exist_ok=True)
        except (OSError, StopIteration):
            return None
        try:
            (leaf / "cgroup.procs").write_text(str(os.getpid()))
            (base / "cgroup.subtree_control").write_text("+memory +pids")
        except OSError:  # others live in our group, or it is not ours to divide
            _leave(leaf, base)
            return None
        return cls(base)

    def make(self) -> Group | None:
        """A new group; None when the machine refuses just now."""
        folder = self._base / f"noetl-child-{os.getpid()}-{next(self._numbers)}"
        try:
            folder.mkdir()
        except OSError:
            return None
        return Group(folder)


def _leave(leaf: Path, base: Path) -> None:
    """Go back to where we were."""
    try:
        (base / "cgroup.procs").write_text(str(os.getpid()))
        leaf.rmdir()
    except OSError:
        return
