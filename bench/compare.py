"""Records against those of before: worse by more than a fifth, twice in a row, is a step back.

Times and rates do not hold on a shared machine, so the ratio to a raw limit of the same run is
compared where there is one. Times without one are compared on the same machine only; what is
counted (bytes, shares, growth) holds everywhere.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

WORSE = 1.2
TIMES = ("ms", "us", "s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure, before and now."""

    name: str
    scenario: str
    of: str
    before: float
    now: float
    factor: float
    """How much worse: 1.3 is a third more time, or a quarter less rate."""

    @property
    def is_worse(self) -> bool:
        """Whether that is too much."""
        return self.factor > WORSE

    def __str__(self) -> str:
        word = "WORSE" if self.is_worse else "as before" if self.factor > 1 / WORSE else "better"
        return f"{self.name}: {self.of} {self.before:g} -> {self.now:g} ({self.factor:.2f}x) {word}"


def changes(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[Change]:
    """Every figure that both have."""
    known = {_key(record): record for record in before}
    found = []
    for record in now:
        old = known.get(_key(record))
        if old is not None:
            found += _change(old, record)
    return found


def steps_back(first: list[Change], again: list[Change]) -> list[Change]:
    """What is worse in two runs out of two."""
    twice = {change.name for change in again if change.is_worse}
    return [change for change in first if change.is_worse and change.name in twice]


def _change(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    name = new["name"] + "".join(f" ({line})" for line in [new["params"].get("line")] if line)
    found = _figure(old, new)
    if found is None:
        return []
    of, then, now, is_higher = found
    if not then or not now:
        return []
    factor = then / now if is_higher else now / then
    scenario = new.get("scenario", new["name"])
    return [Change(name=name, scenario=scenario, of=of, before=then, now=now, factor=factor)]


def _figure(old: dict[str, Any], new: dict[str, Any]) -> tuple[str, float, float, bool] | None:
    """What of two records is compared: its name, before, now, and whether more is better."""
    if _is_timed(new):
        ratios, before = new.get("ratios", {}), old.get("ratios", {})
        for one in ratios:
            if "raw_" in one and one in before:
                return f"ratios.{one}", before[one], ratios[one], one.startswith("of_")
        if _machine(old) != _machine(new):
            return None
    return "p50", old["p50"], new["p50"], new.get("better") == "higher"


def _is_timed(record: dict[str, Any]) -> bool:
    """Whether a figure depends on how fast the machine is."""
    unit = record["unit"]
    return unit.endswith("/s") or re.split("[ /]", unit)[0] in TIMES


def _key(record: dict[str, Any]) -> str:
    """What makes two records comparable: the same scenario of the same size."""
    sizes = {
        name: value
        for name, value in record["params"].items()
        if isinstance(value, int | str) and name != "samples"
    }
    return json.dumps([record["name"], sizes], sort_keys=True)


def _machine(record: dict[str, Any]) -> tuple[object, ...]:
    return tuple(record["machine"].get(name) for name in ("cpu", "cores"))
