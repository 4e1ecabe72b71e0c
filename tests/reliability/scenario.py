"""A scenario of faults: what it is given, what it tells, and how it is played at any length.

`python -m tests.reliability` plays scenarios for minutes with a seed; the tests of this folder play
the same ones for seconds.
"""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path

from noetl.clock import SystemClock
from tests.reliability.rig import Mould, stacked

NAMES = (
    "kills", "all_at_once", "bus_wiped", "database", "power_cut", "partitions", "disk_full",
    "clock", "poison", "peers", "overload", "upgrade", "backup", "cancel_storm", "posts", "gateway",
    "subscriptions", "outage",
)  # fmt: skip
"""Modules of `tests.reliability.scenarios`, each with `async def play(plan) -> Verdict`."""
KEPT = ("logs", "events")
"""What is left of a stack: what its parts said, and the logs of runs that are not as they must."""
RECOVERY_S = 20.0
MOST_REPEATS = 0.005
"""The share of raw calls that may be repeats, when no kill came in the middle of a tool."""


def passable(prefix, within=None):
    """A new folder that PostgreSQL's own user may pass, too."""
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
    made.chmod(0o711)
    return made


@dataclass(kw_only=True)
class Plan:
    """What a scenario is given: its seed, how long it lasts, and where its files lie."""

    seed: int
    seconds: float
    folder: Path
    mould: Mould
    random: random.Random = field(init=False)

    def __post_init__(self):
        self.random = random.Random(self.seed)
        self._clock = SystemClock()
        self._until = self._clock.monotonic() + self.seconds

    @property
    def left_s(self):
        """How long there is still to do harm."""
        return self._until - self._clock.monotonic()

    @asynccontextmanager
    async def stack(self):
        """A stack of its own: PostgreSQL and NATS run, everything else is added."""
        folder = passable("stack-", self.folder)
        async with stacked(folder, self.mould) as made:
            yield made
        for left in folder.iterdir():  # all is kept when it failed: it is what there is to look at
            if left.name not in KEPT:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


@dataclass(kw_only=True)
class Verdict:
    """What came of a scenario."""

    name: str
    seed: int
    accepted: int = 0
    """Requests that were answered 2xx, each of which must come to its end."""
    schedule: list = field(default_factory=list)
    """What was done to the stack, in order; the same for the same seed."""
    lost: list = field(default_factory=list)
    wrong: list = field(default_factory=list)
    stuck: list = field(default_factory=list)
    calls: int = 0
    repeats: int = 0
    """Calls of tools beyond the first of their keys."""
    is_mid_tool: bool = False
    """Whether tools were killed in the middle: their repeats are told and not judged."""
    recovery_s: list = field(default_factory=list)
    """How long each time until work went on."""
    measured: dict = field(default_factory=dict)
    """Figures of the scenario alone."""
    skipped: str = ""
    """What this machine lacks for it."""

    @property
    def recovery_p99_s(self):
        if len(self.recovery_s) < 2:
            return max(self.recovery_s, default=0.0)
        return statistics.quantiles(self.recovery_s, n=100, method="inclusive")[98]

    @property
    def faults(self):
        """What is not as it must be, in words."""
        found = [f"{word}: {item}" for word in ("lost", "wrong", "stuck")
                 for item in getattr(self, word)]  # fmt: skip
        if self.recovery_p99_s > RECOVERY_S:
            found.append(f"recovery took {self.recovery_p99_s:.1f} s (p99, at most {RECOVERY_S})")
        if not self.is_mid_tool and self.repeats > max(1, MOST_REPEATS * self.calls):
            found.append(f"{self.repeats} of {self.calls} calls were repeats")
        return found

    def as_json(self):
        return asdict(self) | {"recovery_p99_s": self.recovery_p99_s, "faults": self.faults}


async def play(name, plan):
    """Play one scenario."""
    module = import_module(f"tests.reliability.scenarios.{name}")
    return await module.play(plan)
