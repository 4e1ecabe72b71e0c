"""How a benchmark measures: several runs, the median first, every sample kept."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def timed(work: Callable[[], object], repeat: int, *, scale: float, loops: int = 1) -> list[float]:
    """The time of one call in each of `repeat` runs of `loops` calls."""
    samples = []
    for _ in range(repeat):
        before = time.perf_counter()
        for _ in range(loops):
            work()
        samples.append((time.perf_counter() - before) / loops * scale)
    return samples


def record(  # noqa: PLR0913 - the facts of one record
    name: str,
    samples: list[float],
    *,
    unit: str,
    limit: float | None = None,
    correct: bool = True,
    params: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One record: median, spread, and whether the best run is within the limit.

    A shared machine only ever adds time, so the best run says most about the code; the median says
    what a user saw.
    """
    ordered = sorted(samples)
    median = statistics.median(ordered)
    made: dict[str, Any] = {
        "name": name,
        "params": params or {},
        "samples": [round(sample, 3) for sample in samples],
        "unit": unit,
        "p50": round(median, 3),
        "p95": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 3),
        "best": round(ordered[0], 3),
        "correct": correct and (limit is None or ordered[0] <= limit),
    }
    if limit is not None:
        made["limit"] = limit
    return made
