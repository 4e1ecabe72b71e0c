"""What a process holds at a moment, as the kernel tells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.processes import cpu_s, rss_mib

_PROC = Path("/proc")


@dataclass(frozen=True)
class Look:
    """One process at one moment."""

    pid: int
    rss_mib: float
    fds: int
    threads: int
    cpu_s: float


def _count(folder):
    return sum(1 for _ in folder.iterdir())


def look(pid):
    """What a process holds now; none when it has ended."""
    try:
        return Look(
            pid=pid,
            rss_mib=rss_mib(pid),
            fds=_count(_PROC / str(pid) / "fd"),
            threads=_count(_PROC / str(pid) / "task"),
            cpu_s=cpu_s([pid]),
        )
    except (OSError, IndexError):  # a process that just ended has no memory to tell of
        return None
