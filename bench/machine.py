"""What figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).resolve().parents[1]


def machine() -> dict[str, Any]:
    """Processor, memory, disk and load, before anything is measured."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "mem_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "disk": _disk(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def commit() -> str:
    """The commit that was measured, marked when files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT)
    return done.stdout.strip() or "unknown"


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _disk() -> str:
    """The device and kind of file system that temporary folders lie on."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    found = [line.split()[:3] for line in mounts.read_text(encoding="utf-8").splitlines()]
    root = [f"{device} {kind}" for device, place, kind in found if place == "/"]
    return root[-1] if root else "unknown"
