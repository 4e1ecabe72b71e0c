"""The timers that a server keeps itself: how often each thing was done, and how long it took."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.counters import STANDING

if TYPE_CHECKING:
    from bench.stack import Stack

_SERIES: Final = re.compile(
    r"^noetl_(\w+?)(?:_seconds)_(sum|count)(?:\{(.*)\})? (\S+)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Timers:
    """Sums and counts by the name of a timer and its labels, at one moment."""

    sums: dict[str, float]
    counts: dict[str, float]

    @classmethod
    async def read(cls, stack: Stack) -> Timers:
        """Those of the server of a stack."""
        answer = await stack.transport.request("GET", "/metrics")
        return timers_of(answer.body.decode())


def timers_of(text: str) -> Timers:
    """The timers in the metrics of a server; requests that come by the clock left out."""
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    for name, kind, labels, value in _SERIES.findall(text):
        if any(path in labels for path in STANDING):
            continue
        key = f"{name}{{{labels}}}" if labels else name
        (sums if kind == "sum" else counts)[key] = float(value)
    return Timers(sums, counts)


def between(before: Timers, after: Timers, units: int) -> dict[str, dict[str, Any]]:
    """How often a thing was done for each unit, and the microseconds of one."""
    found = {}
    for name, count in after.counts.items():
        often = count - before.counts.get(name, 0.0)
        if often > 0:
            taken = after.sums[name] - before.sums.get(name, 0.0)
            found[name] = {"often": round(often / units, 4), "us": round(taken / often * 1e6, 1)}
    return found
