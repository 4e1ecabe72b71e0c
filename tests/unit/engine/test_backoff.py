"""How long a task waits before its next try."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.dsl.tasks.task import Action
from noetl.engine.backoff import Backoff, backoff_of
from noetl.engine.config import Unrendered


@pytest.mark.parametrize(
    ("backoff", "waits_ms"),
    [
        (Backoff(), [0, 0, 0, 0]),
        (Backoff(delay_s=0.5, jitter=0), [500, 500, 500, 500]),
        (Backoff(growth="fixed", jitter=0), [1000, 1000, 1000, 1000]),
        (Backoff(growth="fixed", delay_s=0.1, jitter=0), [100, 100, 100, 100]),
        (Backoff(growth="linear", delay_s=2, jitter=0), [2000, 4000, 6000, 8000]),
        (Backoff(growth="exponential", jitter=0), [1000, 2000, 4000, 8000]),
        (Backoff(growth="exponential", max_delay_s=3, jitter=0), [1000, 2000, 3000, 3000]),
        (Backoff(growth="exponential", delay_s=0), [0, 0, 0, 0]),
        (Backoff(growth="fixed", delay_s=0.0001, jitter=0), [1, 1, 1, 1]),
        (Backoff(growth="fixed"), [1011, 952, 1040, 1000]),
    ],
)
def test_the_wait_grows_as_written(backoff: Backoff, waits_ms: list[int]) -> None:
    assert [backoff.delay_ms(n, seed="81/load#1") for n in (1, 2, 3, 4)] == waits_ms


def test_what_the_other_side_asked_for_is_the_least_even_above_the_longest_delay() -> None:
    backoff = Backoff(growth="fixed", max_delay_s=5)
    assert [backoff.delay_ms(1, seed="s", least_s=asked) for asked in (0.5, 30, 400.2)] == [
        backoff.delay_ms(1, seed="s"),
        30_000,
        400_200,
    ]


@given(st.text(), st.integers(1, 100), st.floats(0.001, 1000), st.floats(0, 1))
def test_jitter_stays_within_its_share_and_is_replayable(
    seed: str, tries: int, delay_s: float, jitter: float
) -> None:
    backoff = Backoff(growth="fixed", delay_s=delay_s, max_delay_s=1e9, jitter=jitter)
    wait_ms = backoff.delay_ms(tries, seed=seed)
    assert wait_ms == backoff.delay_ms(tries, seed=seed)
    assert (1 - jitter) * delay_s * 1000 - 1 <= wait_ms <= (1 + jitter) * delay_s * 1000 + 1


def test_terms_have_defaults() -> None:
    assert backoff_of(Action(do="retry"), "rules[0]", {}) == Backoff(
        attempts=3, growth="none", delay_s=None, max_delay_s=300.0, jitter=0.1
    )


def test_terms_may_be_templates() -> None:
    action = Action(
        do="retry",
        attempts="{{ n }}",
        backoff="linear",
        delay="{{ d }}",
        max_delay="{{ m }}",
        jitter=0,
    )
    assert backoff_of(action, "rules[0]", {"n": 5, "d": "500ms", "m": 60}) == Backoff(
        attempts=5, growth="linear", delay_s=0.5, max_delay_s=60, jitter=0
    )


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (
            Action(do="retry", attempts="{{ x }}"),
            ("config", "invalid_config", "`r.attempts`: `no` is not a whole number of 1..100"),
        ),
        (
            Action(do="retry", attempts="{{ 101 }}"),
            ("config", "invalid_config", "`r.attempts`: `101` is not a whole number of 1..100"),
        ),
        (
            Action(do="retry", attempts="{{ true }}"),
            ("config", "invalid_config", "`r.attempts`: `True` is not a whole number of 1..100"),
        ),
        (
            Action(do="retry", delay="{{ x }}"),
            ("config", "invalid_config", "`r.delay`: `no` is not a duration"),
        ),
        (
            Action(do="retry", max_delay="{{ -1 }}"),
            ("config", "invalid_config", "`r.max_delay`: `-1` is not a duration"),
        ),
        (
            Action(do="retry", delay="{{ y }}"),
            ("template", "template_undefined", "`r.delay`: `y` is undefined (at 1:4)"),
        ),
    ],
)
def test_terms_that_make_no_sense_are_refused(action: Action, error: tuple[str, str, str]) -> None:
    with pytest.raises(Unrendered) as caught:
        backoff_of(action, "r", {"x": "no"})
    assert (caught.value.kind, caught.value.code, caught.value.message) == error
