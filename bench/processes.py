"""What processes cost, as the kernel tells: processor time and memory."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_PARENT: Final = 1  # fields of /proc/PID/stat, counted from behind the name
_USER: Final = 11
_SYSTEM: Final = 12
_TICK: Final = os.sysconf("SC_CLK_TCK")


def trees(roots: dict[str, int]) -> dict[str, list[int]]:
    """The processes under each of these, themselves included; each belongs to its nearest."""
    parents = {pid: int(fields[_PARENT]) for pid, fields in _all().items()}
    named = {pid: name for name, pid in roots.items()}
    found: dict[str, list[int]] = {name: [] for name in roots}
    for pid in parents:
        above: int | None = pid
        while above is not None and above not in named:
            above = parents.get(above)
        if above is not None:
            found[named[above]].append(pid)
    return found


def cpu_s(pids: list[int]) -> float:
    """Processor seconds that processes have used so far, and children that they waited for."""
    known = _all()
    ticks = 0
    for pid in pids:
        if pid in known:
            ticks += sum(int(value) for value in known[pid][_USER : _SYSTEM + 3])
    return ticks / _TICK


def cpu_us(pid: int) -> int:
    """Processor microseconds of one process, as the scheduler counts them: finer than ticks."""
    try:
        places = [*(_PROC / str(pid) / "task").iterdir()]
    except OSError:
        return 0  # it ended meanwhile
    spent = []
    for place in places:
        with suppress(OSError):  # a thread that ended meanwhile
            spent.append(int((place / "schedstat").read_text().split()[0]))
    return sum(spent) // 1000


def moved_bytes(pid: int) -> tuple[int, int]:
    """Bytes that a process has read and written, files and sockets; none when it has ended."""
    try:
        text = (_PROC / str(pid) / "io").read_text(encoding="utf-8")
    except OSError:
        return 0, 0
    told = dict(line.split(": ") for line in text.splitlines())
    return int(told["rchar"]), int(told["wchar"])


def rss_mib(pid: int) -> float:
    """Resident memory of one process."""
    return _status(pid, "VmRSS:") / 1024


def peak_mib(pid: int) -> float:
    """The most that it ever had."""
    return _status(pid, "VmHWM:") / 1024


def pss_mib(pid: int) -> float:
    """Its share of memory, where pages that several have are divided among them."""
    text = (_PROC / str(pid) / "smaps_rollup").read_text(encoding="utf-8")
    return int(text.split("\nPss:")[1].split()[0]) / 1024


def _status(pid: int, name: str) -> int:
    text = (_PROC / str(pid) / "status").read_text(encoding="utf-8")
    return int(text.split(name)[1].split()[0])


def _all() -> dict[int, list[str]]:
    """The fields behind the name, for every process."""
    found = {}
    for place in _PROC.iterdir():
        if place.name.isdigit():
            try:
                text = (place / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it ended meanwhile
            found[int(place.name)] = text.rpartition(")")[2].split()
    return found
