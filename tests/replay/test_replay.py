"""Histories fold to the state they had, and the engine takes the decisions that it took."""

from __future__ import annotations

import dataclasses
import json

import msgspec
import pytest

from noetl.engine import events as ev
from noetl.engine.decide import _TURNS as TURNS
from noetl.engine.fold import _RULES as RULES
from noetl.engine.fold import fold
from noetl.engine.rows import from_row, to_row
from noetl.engine.status import status_of
from tests.e2e.table import EXAMPLES
from tests.e2e.test_examples import PLAYBOOKS
from tests.replay.cases import keys
from tests.replay.logs import FOLDER, case_of, digest, kinds, load, names, text_of
from tests.replay.planted import Arm, arms, by_length, holding, is_seen, without
from tests.replay.replay import Differs, replay

NO_FOLD = {"command.late", "engine.error", "step.progress"} | set(ev.OF_SUBSCRIPTIONS)
"""Types of events that tell something and change nothing."""
LEAST = 350
MOST_BYTES = 1_500_000
"""Of all logs that lie compressed."""
# Each of these would be a fact of the machine that a log was recorded on.
OF_A_MACHINE = ("/root/", "/home/", "site-packages", "pytest-", "/usr/lib")


def test_there_are_enough_logs_and_they_are_small() -> None:
    assert len(names()) >= LEAST
    assert sum(path.stat().st_size for path in FOLDER.rglob("*.gz")) < MOST_BYTES


def test_every_example_and_every_case_of_both_wirings_has_a_log() -> None:
    """`python -m tests.replay --record` records what is missing."""
    known = {case_of(name) for name in names()}
    assert [key for key in keys() if key not in known] == []


def test_a_case_has_a_name_of_its_own() -> None:
    assert len(set(keys())) == len(keys())


def test_every_example_that_is_a_playbook_is_a_case() -> None:
    told = {key.partition("/")[2].partition(".")[0] for key in keys() if key.startswith("examples")}
    names = {path.relative_to(EXAMPLES).with_suffix("").as_posix() for path in PLAYBOOKS}
    assert names - told == set()


def test_the_logs_hold_every_type_of_event() -> None:
    of_runs = set(ev.KINDS) - set(ev.OF_SUBSCRIPTIONS)
    assert of_runs - kinds([load(name) for name in names()]) == set()


@pytest.mark.parametrize("name", names())
def test_a_log_comes_to_the_same_by_the_same_decisions(name: str) -> None:
    """Its events fold to the state they had, and the engine decides again what it decided."""
    log = load(name)
    state = log.begun()
    for item in log.rows:
        fold(state, item)
    assert (status_of(state), digest(state)) == (log.status, log.final)
    state, _ = replay(log)
    assert digest(state) == log.final
    for item in log.rows:
        assert from_row(json.loads(json.dumps(to_row(item)))) == item


def test_no_log_tells_of_the_machine_that_it_was_recorded_on() -> None:
    assert [
        (name, word) for name in names() for word in OF_A_MACHINE if word in text_of(name)
    ] == []


# ---------------------------------------------------------------------------- it can fail


def test_every_other_type_of_event_is_folded() -> None:
    told = {str(kind.__struct_config__.tag) for kind in RULES}
    assert set(ev.KINDS) - told == NO_FOLD


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.__name__)
def test_a_rule_of_the_fold_that_is_gone_is_seen(kind: type, monkeypatch) -> None:
    monkeypatch.delitem(RULES, kind)
    assert is_seen(holding(str(kind.__struct_config__.tag)))


@pytest.mark.parametrize("arm", arms(), ids=str)
def test_an_arm_of_a_fold_that_is_gone_is_seen(arm: Arm) -> None:
    logs = [*holding("timer.fired"), *holding("timer.set")]
    assert arm.module.endswith("timers"), "say which logs show this arm"
    with without(arm):
        assert is_seen(logs)
    assert not is_seen(logs[:5])


@pytest.mark.parametrize("turn", TURNS)
def test_a_turn_of_the_decisions_that_is_gone_is_seen(turn: str, monkeypatch) -> None:
    monkeypatch.delitem(TURNS, turn)
    assert is_seen(by_length())


def test_a_decision_that_is_missing_is_found() -> None:
    log = load("chain-0")
    kept = [item for item in log.rows if not isinstance(item.event, ev.CtxUpdated)]
    with pytest.raises(Differs, match=r"chain-0/\d+"):
        replay(dataclasses.replace(log, rows=kept))


def test_a_decision_that_differs_is_found() -> None:
    log = load("chain-0")
    place, found = next(
        (place, item)
        for place, item in enumerate(log.rows)
        if isinstance(item.event, ev.StepExited)
    )
    other = msgspec.structs.replace(found.event, result="another")
    log.rows[place] = msgspec.structs.replace(found, event=other)
    with pytest.raises(Differs, match=f"chain-0/{place + 1}"):
        replay(log)
