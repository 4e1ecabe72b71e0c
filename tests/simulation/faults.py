"""What goes wrong and how often; every fault is drawn from the seed."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace

from noetl.store.errors import DatabaseGone


class Unreachable(DatabaseGone):
    """A backend did not answer; whether it did its work is not known."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The share of calls that each trouble hits, and how long delays are."""

    store_fails: float = 0.0
    store_answer_lost: float = 0.0
    store_slow: float = 0.0
    crash_in_store: float = 0.0
    bus_gone: float = 0.0
    bus_drops: float = 0.0
    bus_twice: float = 0.0
    request_lost: float = 0.0
    answer_lost: float = 0.0
    request_twice: float = 0.0
    wire_slow: float = 0.0
    slowest_s: float = 3.0
    blobs_fail: float = 0.0
    role_lost: float = 0.0
    """How often in a second a server that leads loses its role."""


CALM = Rates()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The troubles of one world."""

    rates: Rates
    chaos_s: float
    """How long troubles last; then everything works, so that every run can end."""
    server_crash_every_s: float = 0.0
    worker_crash_every_s: float = 0.0
    partition_every_s: float = 0.0
    cancel: float = 0.0
    """The share of runs that a client cancels or finalizes."""
    pause: float = 0.0
    servers: int = 1
    workers: int = 1
    lease_s: float = 15.0


def plan_of(seed: int) -> Plan:
    """The troubles of a seed: some worlds have few of them, some all at once."""
    chance = random.Random(f"plan/{seed}")

    def some(most: float) -> float:
        return chance.choice([0.0, 0.0, most / 4, most])

    rates = Rates(
        store_fails=some(0.06),
        store_answer_lost=some(0.06),
        store_slow=some(0.2),
        crash_in_store=some(0.004),
        bus_gone=some(0.1),
        bus_drops=some(0.5),
        bus_twice=some(0.3),
        request_lost=some(0.1),
        answer_lost=some(0.1),
        request_twice=some(0.1),
        wire_slow=some(0.3),
        slowest_s=chance.choice([0.05, 0.5, 3.0, 8.0]),
        blobs_fail=some(0.05),
        role_lost=random.Random(f"roles/{seed}").choice([0.0, 0.02, 0.1]),
    )
    return Plan(
        rates=rates,
        chaos_s=chance.choice([20.0, 60.0, 150.0]),
        server_crash_every_s=chance.choice([0.0, 0.0, 8.0, 25.0]),
        worker_crash_every_s=chance.choice([0.0, 0.0, 10.0, 30.0]),
        partition_every_s=chance.choice([0.0, 0.0, 0.0, 20.0]),
        cancel=chance.choice([0.0, 0.0, 0.3]),
        pause=chance.choice([0.0, 0.0, 0.4]),
        servers=chance.choice([1, 1, 2]),
        workers=chance.randint(1, 3),
        lease_s=chance.choice([4.0, 6.0, 15.0]),
    )


def calm(plan: Plan) -> Plan:
    """The same world without any trouble."""
    return replace(
        plan,
        rates=CALM,
        chaos_s=0.0,
        server_crash_every_s=0.0,
        worker_crash_every_s=0.0,
        partition_every_s=0.0,
        cancel=0.0,
        pause=0.0,
    )


class Faults:
    """Decides, call by call, what goes wrong."""

    def __init__(self, seed: int, plan: Plan) -> None:
        self.plan = plan
        self.rates = plan.rates
        self.chance = random.Random(f"faults/{seed}")
        self.count: dict[str, int] = {}

    def end(self) -> None:
        """From now on everything works."""
        self.rates = CALM

    def hits(self, name: str) -> bool:
        """Whether this call meets that trouble."""
        share = getattr(self.rates, name)
        if not share or self.chance.random() >= share:
            return False
        self.note(name)
        return True

    def note(self, name: str) -> None:
        """Count a trouble."""
        self.count[name] = self.count.get(name, 0) + 1

    async def dawdle(self, name: str) -> None:
        """Take some time, sometimes."""
        if self.hits(name):
            await asyncio.sleep(self.chance.random() ** 3 * self.rates.slowest_s)
