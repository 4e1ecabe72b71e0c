"""Seeded worlds full of trouble come to rest as they must (quality.md 3, Simulation).

More seeds: `python -m tests.simulation --seeds 5000 --seed 1`.
"""

from __future__ import annotations

import pytest

from tests.simulation.seeds import command, judge

SEEDS = 200
PART = 10
# Seeds that once found a defect; what it was stands in test_found.py.
FOUND = (162, 1386, 1740, 1797, 1915, 1923)


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_worlds_come_to_rest_as_they_must(first: int) -> None:
    verdicts = [judge(seed) for seed in range(first, first + PART)]
    assert [f"{one.error}: {command(one.seed)}" for one in verdicts if one.error] == []
    virtual_s = sum(one.virtual_s for one in verdicts)
    cpu_s = sum(one.cpu_s for one in verdicts)
    print(f"seeds {first}..: {virtual_s / cpu_s:,.0f} x real time")  # noqa: T201 - shown with -s


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_stays_away(seed: int) -> None:
    assert judge(seed).error == ""


def test_worlds_with_troubles_are_compared_with_calm_ones() -> None:
    verdicts = [judge(seed) for seed in range(12)]
    assert sum(one.compared for one in verdicts) > len(verdicts)
    assert sum(one.faults for one in verdicts) > 100
    assert sum(one.crashes for one in verdicts) > 10
    assert sum(one.repeats for one in verdicts) > 0


@pytest.mark.parametrize("seed", [3, 9, 11])
def test_a_seed_is_the_same_world_again(seed: int) -> None:
    one, other = judge(seed, compares=False), judge(seed, compares=False)
    assert (one.digest, one.virtual_s, one.faults) == (other.digest, other.virtual_s, other.faults)
    assert one.digest != judge(seed + 1, compares=False).digest
