"""What a figure is held against: a target that is shown, and a floor that fails the build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Sign = Literal["<=", ">="]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One figure of a record, by its path in it (`p50`, `counted.commits_per_step`)."""

    of: str
    sign: Sign
    target: float
    floor: float | None = None

    def judge(self, record: dict[str, Any]) -> dict[str, Any]:
        """The figure beside its target and its floor."""
        value = at(record, self.of)
        return {
            "of": self.of,
            "is": self.sign,
            "target": self.target,
            "floor": self.floor,
            "value": value,
            "is_met": self._holds(value, self.target),
            "is_within_floor": self.floor is None or self._holds(value, self.floor),
        }

    def _holds(self, value: float, bound: float) -> bool:
        return value <= bound if self.sign == "<=" else value >= bound


def at_most(of: str, target: float, floor: float | None = None) -> Limit:
    """A figure that is better when it is smaller."""
    return Limit(of=of, sign="<=", target=target, floor=floor)


def at_least(of: str, target: float, floor: float | None = None) -> Limit:
    """A figure that is better when it is larger."""
    return Limit(of=of, sign=">=", target=target, floor=floor)


def at(record: dict[str, Any], path: str) -> float:
    """A figure of a record by its path."""
    value: Any = record
    for name in path.split("."):
        value = value[name]
    return float(value)


def is_passed(record: dict[str, Any]) -> bool:
    """Whether a record is right and within every floor."""
    return bool(record["correct"]) and all(one["is_within_floor"] for one in record["limits"])


def is_met(record: dict[str, Any]) -> bool:
    """Whether a record meets every target."""
    return bool(record["correct"]) and all(one["is_met"] for one in record["limits"])
