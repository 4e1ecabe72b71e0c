import json

import pytest

from tests.unit.cli.runs import FAILING, NOOP, WAITING, finish, start


@pytest.fixture
def waiting(served):
    return start(served, "steered/waiting", WAITING)


@pytest.fixture
def ended(served):
    return start(served, "steered/ended", NOOP)


def test_a_run_is_paused_and_goes_on(remote, waiting):
    paused = remote("executions", "pause", waiting, "--reason", "night", "-o", "json")
    assert json.loads(paused.out)["status"] == "PAUSED"
    assert remote("executions", "pause", waiting, "-o", "name").out == f"execution/{waiting}\n"
    assert json.loads(remote("executions", "resume", waiting, "--json").out)["status"] == "RUNNING"
    assert remote("executions", "resume", waiting).code == 0


def test_a_run_that_has_ended_is_not_paused(remote, ended):
    code, out, err = remote("executions", "pause", ended)

    assert (code, out) == (6, "")
    assert err.startswith("error[")


def test_a_run_is_ended_by_hand_only_when_somebody_agrees(remote, waiting):
    words = ("executions", "finalize", waiting, "--status", "completed", "--result", '{"a": 1}')
    code, out, err = remote(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error[confirmation_required]: ")

    assert json.loads(remote(*words, "--yes", "--json").out)["status"] == "COMPLETED"
    found = json.loads(remote("executions", "get", waiting, "--json").out)
    assert (found["status"], found["result"]) == ("COMPLETED", {"a": 1})
    assert remote("executions", "finalize", waiting, "--status", "FAILED", "-y").code == 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--status", "LOST"), "a run does not end as `LOST`"),
        (("--result", "{"), "`--result` is not JSON"),
    ],
)
def test_an_ending_that_is_none_is_a_usage_error(remote, waiting, words, said):
    code, _, err = remote("executions", "finalize", waiting, *words, "-y")

    assert code == 2
    assert said in err


def test_a_rerun_has_the_same_inputs_or_edited_ones(remote, served):
    source = start(served, "steered/inputs", NOOP, payload={"n": 1, "m": {"a": 1, "b": 2}})
    same = json.loads(remote("executions", "rerun", source, "--json").out)
    edited = json.loads(
        remote("executions", "rerun", source, "--set", "m.a=7", "--version", "latest", "--json").out
    )
    found = [
        json.loads(remote("executions", "get", one["execution_id"], "--json").out)
        for one in (same, edited)
    ]

    assert [one["workload"] for one in found] == [
        {"n": 1, "m": {"a": 1, "b": 2}},
        {"n": 1, "m": {"a": 7, "b": 2}},
    ]
    assert {one["rerun_of"] for one in found} == {source}
    name = remote("executions", "rerun", source, "-o", "name").out
    assert name.startswith("execution/")


def test_a_fork_goes_on_from_the_state_that_replay_shows(remote, served):
    source = start(served, "steered/forked", WAITING)
    finish(served, source, {"answer": 41})
    before = json.loads(remote("executions", "events", source, "--all", "--json").out)
    words = ("executions", "fork", source, "--step", "start", "--set", "n=5")
    forked = json.loads(remote(*words, "--json").out)
    found = json.loads(remote("executions", "get", forked["execution_id"], "--json").out)

    assert found["forked_from"]["execution_id"] == source
    assert (found["status"], found["workload"]["n"]) == ("RUNNING", 5)
    assert json.loads(remote("executions", "events", source, "--all", "--json").out) == before


def test_a_fork_with_an_edited_result_completes(remote, served, tmp_path):
    source = start(served, "steered/edited", FAILING)
    (tmp_path / "result.json").write_text('{"answer": 42}')
    at = json.loads(remote("executions", "get", source, "--json").out)["last_seq"]
    words = ("--set-state", "x=1", "--set-result", "start=@result.json")
    forked = remote("executions", "fork", source, "--at", "1", *words, "--json")

    assert forked.code == 0, forked.err
    assert at > 1


def test_where_a_fork_begins_is_said_once(remote, ended):
    for words in ((), ("--at", "1", "--step", "start")):
        code, _, err = remote("executions", "fork", ended, *words)
        assert code == 2
        assert "exactly one of them" in err


def test_many_runs_are_counted_then_cancelled(remote, served):
    runs = [start(served, "steered/bulk", WAITING) for _ in range(3)]
    words = ("executions", "cancel", "--filter", "--path", "steered/bulk")
    code, out, err = remote(*words)
    assert (code, out) == (2, "")
    assert err == "error[confirmation_required]: cancel 3 runs?\nhint: add `--yes`\n"

    done = remote(*words, "--yes", "-o", "name")
    assert sorted(done.out.split()) == sorted(f"execution/{one}" for one in runs)
    assert {json.loads(remote("status", one, "--json").out)["status"] for one in runs} == {
        "CANCELLED"
    }
    again = remote(*words, "--yes", "-o", "json")
    assert (again.code, json.loads(again.out)["items"]) == (0, [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no run is named"),
        (("--path", "x"), "need `--filter`"),
        (("7", "--filter"), "exclude each other"),
        (("--filter", "--no-cascade"), "exclude each other"),
        (("--filter", "--status", "COMPLETED"), "has ended"),
    ],
)
def test_which_runs_are_meant_is_clear(remote, words, said):
    code, _, err = remote("executions", "cancel", *words)

    assert code == 2
    assert said in err
