"""Records against those of before: worse by more than a fifth, twice in a row, is a step back.

Times do not hold between machines: there, only what was measured against raw limits is compared.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

WORSE = 1.2


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


def _change(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    name = new["name"] + "".join(f" ({line})" for line in [new["params"].get("line")] if line)
    scenario = new.get("scenario", new["name"])
    if _machine(old) == _machine(new):
        then, now = old["p50"], new["p50"]
        of, is_higher = "p50", new.get("better") == "higher"
    else:
        shared = [one for one in new.get("ratios", {}) if one in old.get("ratios", {})]
        if not shared:
            return []
        of, is_higher = f"ratios.{shared[0]}", shared[0].startswith("of_")
        then, now = old["ratios"][shared[0]], new["ratios"][shared[0]]
    if not then or not now:
        return []
    factor = then / now if is_higher else now / then
    return [Change(name=name, scenario=scenario, of=of, before=then, now=now, factor=factor)]


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
