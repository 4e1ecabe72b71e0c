"""Histories fold to the state they had, and the engine takes the decisions that it took."""

from __future__ import annotations

import dataclasses
import json

import msgspec
import pytest

from noetl.engine import events as ev
from noetl.engine.fold import fold
from noetl.engine.rows import from_row, to_row
from noetl.engine.status import status_of
from tests.replay.logs import digest, kinds, load, names
from tests.replay.replay import Differs, replay

NOT_FOLDED = {"engine.error"}
LEAST = 50


def test_there_are_enough_logs() -> None:
    assert len(names()) >= LEAST


def test_the_logs_hold_every_event_that_is_folded() -> None:
    found = kinds([load(name) for name in names()])
    assert set(ev.KINDS) - NOT_FOLDED - found == set()


@pytest.mark.parametrize("name", names())
def test_a_log_folds_to_the_state_it_had(name: str) -> None:
    log = load(name)
    state = log.begun()
    for item in log.rows:
        fold(state, item)
    assert (status_of(state), digest(state)) == (log.status, log.final)


@pytest.mark.parametrize("name", names())
def test_the_same_decisions_are_taken_again(name: str) -> None:
    log = load(name)
    state, decided = replay(log)
    assert digest(state) == log.final
    assert decided > 0


@pytest.mark.parametrize("name", names())
def test_a_row_survives_the_trip_through_its_event(name: str) -> None:
    for item in load(name).rows:
        assert from_row(json.loads(json.dumps(to_row(item)))) == item


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
