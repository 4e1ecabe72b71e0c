"""Random requests against every operation: `python -m tests.fuzz.api --requests 100000`.

Every answer is to be one that the API document tells of, and none a failure of the server. The
operations are spread over the processors; the seed is printed, and repeats a run.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from noetl.local.virtual import run_virtually
from tests.fuzz.api.attack import attack
from tests.fuzz.api.cases import operations
from tests.fuzz.api.stage import stage

ROUND = 600
"""Requests to one server; then its things are made anew."""


def attacked(name: str, count: int, number: int) -> tuple[str, list[str], Counter[int]]:
    """Faults of so many answers of one operation."""
    found: list[str] = []
    seen: Counter[int] = Counter()

    async def once(many: int, seed: int) -> None:
        async with stage() as made:
            faults, statuses = await attack(made, name, many, seed)
        found.extend(faults)
        seen.update(statuses)

    for turn, done in enumerate(range(0, count, ROUND)):
        run_virtually(once(min(ROUND, count - done), number + turn))
        if found:
            break
    return name, found, seen


def main() -> int:
    """Ask, and tell what was wrong."""
    parser = argparse.ArgumentParser(prog="tests.fuzz.api", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    names = list(operations())
    each = -(-options.requests // len(names))
    print(f"fuzz: seed {options.seed}, {each} requests for each of {len(names)} operations")
    wrong, seen = 0, Counter[int]()
    with ProcessPoolExecutor(options.jobs) as workers:
        one = partial(attacked, count=each, number=options.seed)
        for name, found, statuses in workers.map(one, names):
            seen += statuses
            wrong += len(found)
            for fault in found:
                print(f"{name}: {fault}", flush=True)
    told = ", ".join(f"{status}: {count}" for status, count in sorted(seen.items()))
    print(f"fuzz: {sum(seen.values())} answers ({told}), {wrong} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
