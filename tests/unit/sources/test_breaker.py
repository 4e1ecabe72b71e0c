from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.sources.breaker import PROBE_LASTS_MS, Breaker, Rules, ask, failed, succeeded, wait_ms

RULES = Rules(trip_after=3, probe_after_ms=1000)


def opened_at_zero():
    state = Breaker()
    for signal in ("fail", "fail", "ok", "fail", "fail", "fail"):
        assert state.phase == "closed"
        state = failed(state, 0, RULES) if signal == "fail" else succeeded(state, 0)
    return state


def test_the_vector_of_the_chapter():
    state = opened_at_zero()
    assert (state.phase, state.trips) == ("open", 1)
    word, state = ask(state, 500, RULES)
    assert word == "hold"
    word, state = ask(state, 1000, RULES)
    assert (word, state.phase) == ("probe", "half_open")
    word, state = ask(state, 1000, RULES)
    assert word == "hold"
    state = failed(state, 1000, RULES)
    assert ask(state, 1999, RULES)[0] == "hold"
    word, state = ask(state, 2000, RULES)
    assert word == "probe"
    state = succeeded(state, 2000)
    assert (state.phase, state.consecutive_failures, state.trips) == ("closed", 0, 1)
    assert ask(state, 2000, RULES) == ("closed", state)


def test_an_outage_began_when_the_circuit_opened_however_many_probes_have_failed():
    state = opened_at_zero()
    for now in (1000, 2000, 3000):
        state = failed(ask(state, now, RULES)[1], now, RULES)
    assert (state.phase, state.opened_at_ms, state.last_transition_ms) == ("open", 0, 3000)


def test_a_success_that_comes_late_closes_nothing():
    state = opened_at_zero()
    assert succeeded(state, 10) == state


def test_failures_of_an_open_circuit_do_not_put_the_probe_off():
    state = failed(opened_at_zero(), 999, RULES)
    assert (wait_ms(state, 999, RULES), ask(state, 1000, RULES)[0]) == (1, "probe")


def test_a_probe_whose_outcome_never_comes_has_failed():
    _, state = ask(opened_at_zero(), 1000, RULES)
    assert ask(state, 1000 + PROBE_LASTS_MS - 1, RULES) == ("hold", state)
    word, state = ask(state, 1000 + PROBE_LASTS_MS, RULES)
    assert (word, state.phase) == ("hold", "open")
    assert ask(state, 2000 + PROBE_LASTS_MS, RULES)[0] == "probe"


def test_how_long_the_next_probe_is_away():
    state = opened_at_zero()
    assert (wait_ms(Breaker(), 5, RULES), wait_ms(state, 400, RULES)) == (0, 600)
    _, state = ask(state, 1000, RULES)
    assert wait_ms(state, 1000, RULES) == PROBE_LASTS_MS


@pytest.mark.parametrize("stored", [None, 7, [], {}, {"phase": "ajar"}, {"phase": None}])
def test_a_state_that_nobody_can_read_is_a_closed_circuit(stored):
    assert Breaker.from_json(stored) == Breaker()


def test_a_state_survives_its_storing():
    state = opened_at_zero()
    assert Breaker.from_json(json.loads(json.dumps(state.as_json()))) == state
    assert Breaker.from_json({"phase": "open", "trips": "x", "more": 1}) == Breaker(phase="open")


states = st.builds(
    Breaker,
    phase=st.sampled_from(["closed", "open", "half_open"]),
    consecutive_failures=st.integers(0, 100),
    opened_at_ms=st.integers(0, 10**15),
    last_transition_ms=st.integers(0, 10**15),
    trips=st.integers(0, 100),
)


@given(states, st.integers(0, 10**15))
def test_no_state_can_stick(state, now):
    """Whoever asks again and again gets a probe, also when the clock was set back."""
    word, state = ask(state, now, RULES)
    deadline = now + PROBE_LASTS_MS + RULES.probe_after_ms
    while word == "hold":
        wait = wait_ms(state, now, RULES)
        now += max(1, wait)
        assert now <= deadline + 1
        word, state = ask(state, now, RULES)
    assert word in {"closed", "probe"}
    if word == "probe":
        assert ask(state, now, RULES)[0] == "hold"
        assert succeeded(state, now).phase == "closed"
        assert failed(state, now, RULES).phase == "open"


@given(st.lists(st.tuples(st.sampled_from(["ok", "fail", "ask"]), st.integers(0, 3000))))
def test_whatever_happens_one_probe_is_under_way_at_most(signals):
    state, now, probing = Breaker(), 0, False
    for signal, passed in signals:
        now += passed
        before = state
        if signal == "ask":
            word, state = ask(state, now, RULES)
            assert not (probing and word == "probe")
            probing = word == "probe" or (probing and state.phase == "half_open")
        else:
            state = succeeded(state, now) if signal == "ok" else failed(state, now, RULES)
            probing = probing and state.phase == "half_open"
        assert (before.phase, state.phase) not in {("closed", "half_open"), ("open", "closed")}
        assert state.trips - before.trips == (before.phase == "closed" and state.phase == "open")
