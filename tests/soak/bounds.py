"""What a soak must keep to, and whether it did."""

from __future__ import annotations

import statistics

from tests.soak.fit import slope

OWN = ("server", "worker", "system", "gateway", "listener")
"""Whose memory is judged. The broker keeps an entry for each run of a day, so that it grows for a
day; it and the database are told."""
MOST_MB_PER_HOUR = 1.0
MOST_MB = 5.0
"""What a process may grow by in a run that is too short to say how it goes on: it settles."""
LONG_H = 1.0
"""A process settles for minutes; what is shorter than that says nothing about hours."""
MOST_IDLE_PERCENT = 3.5
"""Of a core, all parts together: 2 for the stack, and the rest for a listener of two subscriptions,
which asks its broker and its server every five seconds."""
MOST_BLOAT = 0.2
LEAST_ROWS = 1_000
"""Fewer rows than that are cleared away less often, and are told, not judged."""
MOST_KIB_PER_RUN = 32.0
"""Of the bus: what it keeps goes by age, so that its store is bounded by the rate of runs."""
FLAT = {"fds": (32, 0.1), "threads": (4, 0.1), "tasks": (32, 0.1), "connections": (16, 0.1)}
"""How much more there may be at the end of an incarnation: a number, or a share if that is more.

The number is what pools and the sixteen slots of a worker may hold more when the machine is slower.
"""
_MIB_TO_MB = 1.048576


def incarnations(samples, name, field, warm_s):
    """`(seconds, value)` of a process after its warm-up, one group for each process id."""
    groups = {}
    for sample in samples:
        found = sample["processes"].get(name)
        if found is not None and field in found:
            groups.setdefault(found["pid"], []).append((sample["at"], found[field]))
    return [
        [(at, value) for at, value in group if at >= group[0][0] + warm_s]
        for group in groups.values()
    ]


def judged_slope(groups):
    """The slope of memory in MB an hour, and what is wrong with it.

    A run that is too short to tell 1 MB an hour from its own noise is judged by the lower end of
    the interval, over its own length, and says so.
    """
    found = slope([[(at, mib * _MIB_TO_MB) for at, mib in group] for group in groups])
    if found is None:
        return None, "too few samples", None
    is_sure = found.error <= MOST_MB_PER_HOUR and found.hours >= LONG_H
    word = "slope" if is_sure else "lower bound: too short for the slope"
    if is_sure:
        is_too_much = found.per_hour > MOST_MB_PER_HOUR
    else:
        is_too_much = found.least * found.hours > MOST_MB
    fault = f"grows by {found.per_hour:.1f} +- {found.error:.1f} MB/h ({word})"
    return found, word, fault if is_too_much else None


def risen(group, field):
    """How a count of an incarnation rose from its first quarter to its last, if by too much."""
    values = [value for _, value in group]
    quarter = len(values) // 4
    if not quarter:
        return None
    first, last = statistics.median(values[:quarter]), statistics.median(values[-quarter:])
    number, share = FLAT[field]
    if last - first > max(number, share * first):
        return f"{field} rose from {first:g} to {last:g}"
    return None


def bloated(tables):
    """Tables, `{name: (live, dead)}`, with too many dead rows."""
    return [
        f"{name} has {dead} dead rows beside {live}"
        for name, (live, dead) in sorted(tables.items())
        if live + dead >= LEAST_ROWS and dead > MOST_BLOAT * (live + dead)
    ]
