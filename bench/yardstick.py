"""What bare Python takes on this machine: the raw limit of benchmarks that touch no disk.

The work is fixed and of the kind that ours is made of: objects, dictionaries, text, JSON.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import Any

LOOPS = 200
TURNS = 7
STARTS = 5
_VALUE = {f"name{n}": {"number": n, "text": "x" * n, "items": list(range(n))} for n in range(20)}
US = {"us": 1.0, "us/event": 1.0, "us/item": 1.0, "ms": 1e3}


def unit_us() -> float:
    """Microseconds of one unit of bare work."""
    times = []
    for _ in range(TURNS):
        before = time.perf_counter()
        for _ in range(LOOPS):
            _unit()
        times.append((time.perf_counter() - before) / LOOPS * 1e6)
    return statistics.median(times)


def start_ms() -> float:
    """Milliseconds of an interpreter that starts and does nothing."""
    times = []
    for _ in range(STARTS):
        before = time.perf_counter()
        subprocess.run([sys.executable, "-c", ""], check=True)
        times.append((time.perf_counter() - before) * 1000)
    return statistics.median(times)


def beside(record: dict[str, Any], python_us: float) -> dict[str, Any]:
    """A record with its ratio to bare Python, when it is a time and has no other."""
    if "ratios" in record or record["unit"] not in US:
        return record
    ratio = record["p50"] * US[record["unit"]] / python_us
    return record | {"ratios": {"raw_python": round(ratio, 4)}, "python_us": round(python_us, 2)}


def _unit() -> int:
    read = json.loads(json.dumps(_VALUE))
    return sum(len(f"{name}:{one['number']}") for name, one in read.items())
