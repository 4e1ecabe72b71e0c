"""What every engine is asked to do, and how that is timed and checked.

The interpreters of peers run this module too, so it needs the standard library alone.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

STEPS: Final = 40
ITEMS: Final = 1_000
RUNS: Final = 500
CLIENTS: Final = 24
CHAINS: Final = 5
"""Chains for each repeat."""
SINGLES: Final = 100
"""Single runs for each repeat."""
MOST_SINGLES: Final = 500
WARM_UP: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One workload of one engine: how it is done, and what must come out of it."""

    name: str
    do: Callable[[], Any]
    expected: Any
    params: dict[str, Any]
    count: int = 0
    """How many it does at once: its figure is a rate. Without it, the figure is a time."""
    unit: str = "ms"
    each: int = 1
    """Samples for each repeat."""
    most: int = MOST_SINGLES
    warm_up: int = WARM_UP

    def measure(self, repeat: int) -> dict[str, Any]:
        """Its samples, and whether every result was right, those of the warm-up included."""
        wrong = 0
        samples = []
        count = min(self.most, repeat * self.each)
        for number in range(self.warm_up + count):
            before = time.perf_counter()
            result = self.do()
            taken = time.perf_counter() - before
            wrong += result != self.expected
            if number >= self.warm_up:
                samples.append(self.count / taken if self.count else taken * 1000)
        return {
            "name": self.name,
            "samples": samples,
            "unit": self.unit,
            "better": "higher" if self.count else "lower",
            "correct": wrong == 0,
            "params": self.params,
        }


def chain(do: Callable[[], Any], name: str = "chain", each: int = CHAINS) -> Work:
    """Forty trivial steps in line; the last one gives its number."""
    return Work(name=name, do=do, expected=STEPS - 1, params={"steps": STEPS}, each=each)


def fan_out(do: Callable[[int], Any], name: str = "fanout", items: int = ITEMS) -> Work:
    """Trivial items side by side, whose results are joined in order."""
    return Work(
        name=name, do=lambda: do(items), expected=list(range(items)), params={"items": items},
        count=items, unit="items/s",
    )  # fmt: skip


def runs(do: Callable[[int], Any], count: int = RUNS) -> Work:
    """Runs of two steps, started one by one by so many clients, until all ended."""
    return Work(
        name="runs", do=lambda: do(count), expected=[1] * count, count=count, unit="executions/s",
        params={"executions": count, "steps": 2, "clients": CLIENTS}, warm_up=1,
    )  # fmt: skip


def single(do: Callable[[], Any], each: int = SINGLES) -> Work:
    """One run of two steps while nothing else runs."""
    return Work(
        name="latency", do=do, expected=1, params={"steps": 2}, each=each, warm_up=min(each, 20)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a peer is given."""

    folder: Path
    """Empty, and its own."""
    home: Path
    """Where it is installed."""
    database_url: str
    is_fsynced: bool = False
    """Whether it is to be as durable as it can be, where it is not by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A peer that runs."""

    works: list[Work]
    facts: dict[str, Any] = field(default_factory=dict)
    """What it told about itself, such as the version of a server."""


def serve(engine: Callable[[Task], AbstractContextManager[Ready]]) -> None:
    """Measure an engine as the command line asks, and write what was found to a file."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--repeat", type=int, required=True)
    arguments.add_argument("--folder", type=Path, required=True)
    arguments.add_argument("--home", type=Path, required=True)
    arguments.add_argument("--database-url", required=True)
    arguments.add_argument("--fsync", action="store_true")
    arguments.add_argument("--out", type=Path, required=True)
    asked = arguments.parse_args()
    task = Task(
        folder=asked.folder, home=asked.home, database_url=asked.database_url,
        is_fsynced=asked.fsync,
    )  # fmt: skip
    with engine(task) as ready:
        found = [work.measure(asked.repeat) for work in ready.works]
        told = {"facts": ready.facts, "measured": found}
    asked.out.write_text(json.dumps(told), encoding="utf-8")
