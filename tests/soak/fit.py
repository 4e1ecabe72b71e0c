"""How fast a value grows: a line through samples, one intercept for each incarnation of a process.

Samples that follow each other closely are alike, and a fit that took them for independent would be
far too sure of itself. So they are averaged over blocks first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BLOCKS = 12
"""Of all incarnations together, at least; each has two or more."""
HOUR_S = 3600.0
_T95 = (
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23,
    2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09,
)  # fmt: skip
"""Student's t for 95 %, two-sided, by degrees of freedom from 1 on."""
_T_MANY = 2.0


@dataclass(frozen=True)
class Slope:
    """Growth in an hour, and by how much that may be off."""

    per_hour: float
    error: float
    """Half of the interval that holds the true value 95 times out of 100."""
    hours: float
    """How long it was looked at."""

    @property
    def least(self):
        """The lower end of that interval."""
        return self.per_hour - self.error


def slope(groups, blocks=BLOCKS):
    """The common slope of groups of `(seconds, value)`; none when there are too few."""
    groups = [group for group in groups if len(group) >= 4]
    total = sum(group[-1][0] - group[0][0] for group in groups)
    if not groups or total <= 0:
        return None
    points = []
    for group in groups:
        share = (group[-1][0] - group[0][0]) / total
        points.append(_blocks(group, max(2, round(blocks * share))))
    freedom = sum(map(len, points)) - len(points) - 1
    if freedom < 1:
        return None
    moved = [_centred(group) for group in points]
    pairs = [pair for group in moved for pair in group]
    spread = sum(t * t for t, _ in pairs)
    if spread <= 0:
        return None
    found = sum(t * v for t, v in pairs) / spread
    rest = sum((v - found * t) ** 2 for t, v in pairs)
    t95 = _T95[freedom - 1] if freedom <= len(_T95) else _T_MANY
    error = t95 * math.sqrt(rest / freedom / spread)
    return Slope(per_hour=found * HOUR_S, error=error * HOUR_S, hours=total / HOUR_S)


def _blocks(group, count):
    """The mean of each of so many parts of equal length."""
    first, length = group[0][0], (group[-1][0] - group[0][0]) / count
    parts = [[] for _ in range(count)]
    for t, v in group:
        parts[min(count - 1, int((t - first) / length))].append((t, v))
    return [_mean(part) for part in parts if part]


def _mean(part):
    return sum(t for t, _ in part) / len(part), sum(v for _, v in part) / len(part)


def _centred(group):
    mean_t, mean_v = _mean(group)
    return [(t - mean_t, v - mean_v) for t, v in group]
