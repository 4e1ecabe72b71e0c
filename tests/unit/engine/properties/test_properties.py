"""What holds for any playbook and any schedule (engine.md: P1 to P12), over generated cases.

Every case is a seed, and a failure names it: `python -m tests.unit.engine.properties --cases 1
--seed SEED --only NAME` runs it again. The same command with many cases is the long form.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.unit.engine.properties import cases

pytestmark = pytest.mark.timeout(300)  # many cases, on a machine that may be busy
ROOT = Path(__file__).parents[4]
SEEDS = st.integers(0, 2**48)
LATE = [HealthCheck.too_slow, HealthCheck.data_too_large]


def many(count: int) -> settings:
    """So many cases; a seed has no simpler form to look for."""
    return settings(
        max_examples=count,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=LATE,
        database=None,
    )


@many(1_250)
@given(SEEDS)
def test_any_run_ends_once_tells_the_truth_and_keeps_its_limits(seed: int) -> None:
    cases.any_log(seed)


@many(50)
@given(SEEDS)
def test_a_state_is_the_fold_of_its_log_at_every_position(seed: int) -> None:
    cases.every_position(seed)


@many(200)
@given(SEEDS)
def test_any_order_delay_and_repetition_of_reports_ends_alike(seed: int) -> None:
    cases.same_end(seed)


@many(250)
@given(SEEDS)
def test_a_killed_worker_changes_only_the_attempts(seed: int) -> None:
    cases.killed_workers(seed)


@many(200)
@given(SEEDS)
def test_a_fork_at_any_position_reaches_the_same_result(seed: int) -> None:
    cases.forked(seed)


@many(200)
@given(SEEDS)
def test_the_fold_takes_any_event_in_any_order(seed: int) -> None:
    cases.any_order(seed)


def test_two_processes_with_different_hash_seeds_decide_alike() -> None:
    def digest(hash_seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "tests.unit.engine.properties", "--digest", "--cases", "60"],
            cwd=ROOT,
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    one = digest("1")
    assert len(one.split()) == 60
    assert one == digest("4242")
