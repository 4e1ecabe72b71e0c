"""What the machine and this process use, read from `/proc`; elsewhere nothing is told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_SHARE: Final = 100.0


class Machine:
    """Reads the numbers; the use of the processor is that since the last look."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._last = self._ticks()

    def system(self) -> dict[str, float]:
        """Shares of processor and memory that are in use on this machine."""
        made: dict[str, float] = {}
        before, self._last = self._last, self._ticks()
        if before and self._last:
            total = self._last[0] - before[0]
            busy = self._last[1] - before[1]
            made["cpu_percent"] = round(_SHARE * busy / total, 1) if total > 0 else 0.0
        memory = self._memory()
        if memory is not None:
            total_kb, free_kb = memory
            made["memory_percent"] = round(_SHARE * (1 - free_kb / total_kb), 1)
            made["memory_total_mb"] = round(total_kb / 1024, 1)
        if hasattr(os, "getloadavg"):
            made["load_1m"] = round(os.getloadavg()[0], 2)
        return made

    def process(self) -> dict[str, float]:
        """Id, memory and open files of this process."""
        made: dict[str, float] = {"pid": os.getpid()}
        pages = _words(self._proc / "self" / "statm")
        if pages:
            made["rss_mb"] = round(int(pages[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20), 1)
        try:
            made["fds"] = sum(1 for _ in (self._proc / "self" / "fd").iterdir())
        except OSError:
            return made
        return made

    def _ticks(self) -> tuple[int, int] | None:
        """Ticks of all processors, and those of them that were used."""
        words = _words(self._proc / "stat")
        if len(words) < 6:  # noqa: PLR2004 - cpu user nice system idle iowait
            return None
        numbers = []
        for word in words[1:9]:
            if not word.isdigit():
                break
            numbers.append(int(word))
        return sum(numbers), sum(numbers) - numbers[3] - numbers[4]

    def _memory(self) -> tuple[int, int] | None:
        found = {}
        for line in _text(self._proc / "meminfo").splitlines():
            name, _, rest = line.partition(":")
            if name in {"MemTotal", "MemAvailable"}:
                found[name] = int(rest.split()[0])
        return (found["MemTotal"], found["MemAvailable"]) if len(found) == 2 else None  # noqa: PLR2004 - both


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _words(path: Path) -> list[str]:
    return _text(path).split()
