"""How a benchmark measures: several runs, the median first, every sample kept."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, Literal

from bench.limits import at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.limits import Limit


def timed(work: Callable[[], object], repeat: int, *, scale: float, loops: int = 1) -> list[float]:
    """The time of one call in each of `repeat` runs of `loops` calls."""
    samples = []
    for _ in range(repeat):
        before = time.perf_counter()
        for _ in range(loops):
            work()
        samples.append((time.perf_counter() - before) / loops * scale)
    return samples


def percentile(ordered: Sequence[float], part: float) -> float:
    """The sample below which that part of them lies."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def spread(samples: Sequence[float]) -> dict[str, float]:
    """The middle and the bad end of times."""
    ordered = sorted(samples)
    parts = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {name: round(percentile(ordered, part), 3) for name, part in parts.items()}


def record(  # noqa: PLR0913 - the facts of one record
    name: str,
    samples: list[float],
    *,
    unit: str,
    limit: float | None = None,
    limits: Sequence[Limit] = (),
    better: Literal["lower", "higher"] = "lower",
    correct: bool = True,
    params: dict[str, Any] | None = None,
    **facts: Any,  # noqa: ANN401 - what else a scenario counted
) -> dict[str, Any]:
    """One record: median, spread, what was counted, and how far all is from its limits.

    p95 and p99 lie at the bad end, whichever that is. With `limit` the best run decides: a shared
    machine only ever adds time, so the best run says most about the code.
    """
    ordered = sorted(samples, reverse=better == "higher")
    median = statistics.median(ordered)
    made: dict[str, Any] = {
        "name": name,
        "params": params or {},
        "samples": [round(sample, 3) for sample in samples],
        "unit": unit,
        "better": better,
        "p50": round(median, 3),
        "p95": round(percentile(ordered, 0.95), 3),
        "p99": round(percentile(ordered, 0.99), 3),
        "best": round(ordered[0], 3),
        "rate": round(median, 3) if unit.endswith("/s") else None,
        "correct": correct,
        **facts,
    }
    held = [at_most("best", limit, limit), *limits] if limit is not None else limits
    return made | {"limits": [one.judge(made) for one in held]}
