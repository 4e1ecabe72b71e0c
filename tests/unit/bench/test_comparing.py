"""Records of before against records of now, and what the command makes of it."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from bench import __main__ as command
from bench.compare import changes, steps_back
from bench.limits import at_most
from bench.machine import machine
from bench.sampling import record
from bench.stack import environment
from bench.yardstick import beside, start_ms, unit_us

KNOWN = ("planted", "render")


def whole(made, **more):
    about = {
        "scenario": made["name"],
        "version": "1",
        "commit": "c",
        "at": "2026-01-01T00:00:00+00:00",
        "machine": machine(),
    }
    return about | made | more


def chain(ms, ratio):
    return whole(record("chain", [ms], unit="ms", ratios={"raw_commits": ratio}))


def test_the_ratio_to_a_raw_limit_is_compared_where_there_is_one():
    [change] = changes([chain(100.0, 8.0)], [chain(300.0, 8.4)])
    assert (change.of, change.is_worse) == ("ratios.raw_commits", False)
    [change] = changes([chain(100.0, 8.0)], [chain(100.0, 10.4)])
    assert (change.of, change.is_worse, round(change.factor, 2)) == (
        "ratios.raw_commits",
        True,
        1.3,
    )


def test_a_share_of_a_raw_limit_is_better_when_it_is_higher():
    def fanout(share):
        return whole(
            record(
                "fanout", [500.0], unit="items/s", better="higher",
                ratios={"of_raw_commits_serial": share},
            )
        )  # fmt: skip

    [change] = changes([fanout(0.2)], [fanout(0.15)])
    assert change.is_worse
    [change] = changes([fanout(0.2)], [fanout(0.3)])
    assert not change.is_worse


def test_a_time_without_a_raw_limit_does_not_hold_on_another_machine():
    other = machine() | {"cpu": "another"}
    before = [whole(record("x", [100.0], unit="ms"), machine=other)]
    assert changes(before, [whole(record("x", [900.0], unit="ms"))]) == []


def test_what_is_counted_holds_on_every_machine():
    other = machine() | {"cpu": "another"}
    before = [whole(record("footprint-server", [60.0], unit="MiB"), machine=other)]
    [change] = changes(before, [whole(record("footprint-server", [90.0], unit="MiB"))])
    assert (change.of, change.is_worse) == ("p50", True)


def test_growth_is_compared_as_growth_and_not_as_time():
    def grown(value):
        return whole(
            record("scale-loop-10000", [value], unit="of an item of 1000",
                   ratios={"raw_commits": 5.0})
        )  # fmt: skip

    [change] = changes([grown(1.0)], [grown(1.4)])
    assert (change.of, change.is_worse) == ("p50", True)


def test_only_what_is_worse_twice_is_a_step_back():
    first = changes([chain(100.0, 8.0)], [chain(130.0, 10.4)])
    calm = changes([chain(100.0, 8.0)], [chain(100.0, 8.1)])
    again = changes([chain(100.0, 8.0)], [chain(131.0, 10.5)])
    assert steps_back(first, calm) == []
    assert [change.name for change in steps_back(first, again)] == ["chain"]
    assert steps_back(calm, again) == []


@pytest.mark.parametrize(("second", "is_good"), [(10.5, False), (8.1, True)])
def test_a_worse_scenario_is_run_once_more(second, is_good, capsys):
    asked = []

    def again(name):
        asked.append(name)
        return [chain(100.0, second)]

    before = [chain(100.0, 8.0), whole(record("render", [1.0], unit="us"))]
    now = [chain(130.0, 10.4), whole(record("render", [1.0], unit="us"))]
    assert command.compared(before, now, again) is is_good
    assert asked == ["chain"]
    assert ("worse in two runs out of two: chain" in capsys.readouterr().err) is not is_good


def test_an_unchanged_tree_runs_nothing_again():
    def again(name):
        raise AssertionError(name)

    for ratio in (7.0, 7.9, 8.0, 8.8, 9.5):
        assert command.compared([chain(100.0, 8.0)], [chain(250.0, ratio)], again)


@pytest.fixture
def planted(monkeypatch):
    """A scenario of this test's own."""

    def plant(*made):
        module = ModuleType("bench.planted")
        module.records = lambda _repeat: [dict(one) for one in made]
        monkeypatch.setitem(sys.modules, "bench.planted", module)

    return plant


def test_a_wrong_result_exits_1_and_is_told(planted, capsys):
    planted(record("planted", [1.0], unit="ms", correct=False))
    assert command.main(["planted"], KNOWN) == 1
    assert "WRONG RESULT" in capsys.readouterr().err


def test_a_figure_beyond_its_floor_exits_1_and_a_missed_target_does_not(planted):
    planted(record("planted", [9.0], unit="ms", limits=[at_most("p50", 1.0, 10.0)]))
    assert command.main(["planted"], KNOWN) == 0
    planted(record("planted", [11.0], unit="ms", limits=[at_most("p50", 1.0, 10.0)]))
    assert command.main(["planted"], KNOWN) == 1


def test_a_scenario_that_breaks_exits_1_and_lets_the_others_run(planted, capsys):
    planted({"name": "half a record"})
    assert command.main(["planted", "render", "--repeat", "1"], KNOWN) == 1
    told = capsys.readouterr()
    assert "planted: FAILED" in told.err
    assert "render-lone" in told.out


def test_a_time_of_pure_python_is_told_beside_bare_python():
    made = beside(record("x", [2.0], unit="ms"), 100.0)
    assert made["ratios"] == {"raw_python": 20.0}
    ours = record("x", [2.0], unit="ms", ratios={"raw_commits": 3.0})
    assert beside(ours, 100.0) is ours
    assert "ratios" not in beside(record("x", [2.0], unit="MiB"), 100.0)
    assert unit_us() > 0
    assert start_ms() > 0


def test_faults_on_purpose_reach_the_stack_and_nothing_else_does(monkeypatch):
    monkeypatch.setenv("NOETL_FAILPOINTS", "server.append.before_commit=delay:1")
    monkeypatch.setenv("NOETL_PORT", "1")
    found = environment(Path("/nowhere"))
    assert found["NOETL_FAILPOINTS"] == "server.append.before_commit=delay:1"
    assert "NOETL_PORT" not in found
