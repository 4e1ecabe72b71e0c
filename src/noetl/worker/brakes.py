"""Reasons of this machine to take no more work: memory that runs out, a disk that fills up."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noetl.worker.held import Held

LOOK_S: Final = 1.0
LEAST_FREE: Final = 0.05
_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_STATM: Final = Path("/proc/self/statm")
_NO_LIMIT: Final = 1 << 60
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


async def watch(held: Held, brakes: Mapping[str, Callable[[], bool]]) -> None:
    """Keep the reasons that hold up to date, until cancelled."""
    while True:
        held.brakes = frozenset(name for name, is_on in brakes.items() if is_on())
        held.changed.set()
        await asyncio.sleep(LOOK_S)


def memory_is_high(share: float, limit: int | None = None) -> Callable[[], bool]:
    """Whether this process uses more than a share of the memory that its group may have."""
    most = share * (memory_limit() if limit is None else limit)
    return lambda: _resident_bytes() > most


def disk_is_full(folder: Path) -> Callable[[], bool]:
    """Whether hardly anything is free where large values lie."""

    def look() -> bool:
        try:
            found = os.statvfs(folder)
        except FileNotFoundError:
            return False  # nothing was ever stored there
        return found.f_bavail < found.f_blocks * LEAST_FREE

    return look


def memory_limit(files: tuple[Path, ...] = _LIMITS) -> int:
    """What the control group allows, else what the machine has."""
    for file in files:
        try:
            text = file.read_text("ascii").strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < _NO_LIMIT:
            return int(text)
    return os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES


def _resident_bytes() -> int:
    return int(_STATM.read_text("ascii").split()[1]) * _PAGE_BYTES
