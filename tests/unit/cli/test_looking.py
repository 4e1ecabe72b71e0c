import json

import pytest

from noetl.cli.looking import told
from tests.unit.cli.runs import FAILING, NOOP, WAITING, finish, start


@pytest.fixture
def waiting(served):
    return start(served, "looked/waiting", WAITING, execution_pool="nobody")


def test_why_names_the_reason_and_the_command_that_helps(remote, waiting):
    code, out, _ = remote("executions", "why", waiting)

    assert code == 0
    assert out.startswith("RUNNING: ")
    assert "[waiting_for_worker]" in out
    assert "noetl worker --pool nobody" in out
    found = json.loads(remote("executions", "why", waiting, "--json").out)
    assert [one["code"] for one in found["reasons"]] == ["waiting_for_worker"]
    assert remote("executions", "why", waiting, "-o", "name").out == f"execution/{waiting}\n"


def test_a_paused_run_is_resumed_by_the_command_that_why_names(remote, waiting):
    remote("executions", "pause", waiting)
    lines = remote("executions", "why", waiting).out.splitlines()
    (act,) = [line.strip() for line in lines if "executions resume" in line]

    assert act == f"noetl executions resume {waiting}"
    assert remote(*act.split()[1:]).code == 0


def test_a_reason_is_one_sentence_without_power_over_the_terminal():
    found = {
        "execution_id": "7", "status": "RUNNING", "summary": "waits",
        "reasons": [{"code": "x", "step": "a\x1b", "since": "now", "detail": "d", "hint": "h"}],
    }  # fmt: skip

    assert list(told(found)) == ["RUNNING: waits", "- step a\\x1b: d (since now) [x]", "  h"]


def test_the_state_after_any_event_is_shown(remote, served):
    run = start(served, "looked/replayed", NOOP)
    last = json.loads(remote("executions", "replay", run, "--json").out)
    first = json.loads(remote("executions", "replay", run, "--at", "1", "--json").out)

    assert (last["execution_id"], first["event_count"]) == (run, 1)
    assert last["event_count"] > 1
    assert last["state_digest"] != first["state_digest"]
    assert remote("executions", "replay", run, "-o", "name").out == f"execution/{run}\n"


# ---------------------------------------------------------------------------------- diff


def test_a_run_is_the_same_as_itself(remote, served):
    run = start(served, "looked/same", NOOP)
    code, out, _ = remote("executions", "diff", run, run, "--exit-code", "--json")
    found = json.loads(out)

    assert (code, found["is_same"], found["differs"]) == (0, True, [])
    assert [step["step"] for step in found["steps"]] == ["start", "end"]


def test_two_runs_differ_in_input_result_and_steps(remote, served):
    first = start(served, "looked/first", WAITING, payload={"n": 1})
    finish(served, first, {"a": 1})
    second = start(served, "looked/second", WAITING, payload={"n": 2})
    finish(served, second, {"a": 2})
    failed = start(served, "looked/failed", FAILING)

    found = json.loads(remote("executions", "diff", first, second, "--json").out)
    assert found["differs"] == ["workload", "result"]
    assert found["steps"][0]["differs"] == ["result"]
    code, out, err = remote("executions", "diff", first, failed, "--exit-code")
    assert code == 7
    assert err.startswith("error[runs_differ]: ")
    head, run, *_ = out.splitlines()
    assert head.split() == ["STEP", "FIRST", "SECOND", "TIME", "DIFFERS"]
    assert run.split()[:3] == ["(run)", "COMPLETED", "FAILED"]
    assert remote("executions", "diff", first, failed, "-o", "name").out.startswith("step/start\n")


def test_a_step_that_only_one_run_has_is_absent_in_the_other(remote, served):
    first = start(served, "looked/two", NOOP)
    second = start(served, "looked/one", WAITING)
    found = json.loads(remote("executions", "diff", first, second, "--json").out)

    (end,) = [step for step in found["steps"] if step["step"] == "end"]
    assert (end["second"]["status"], end["differs"]) == ("ABSENT", ["status", "input", "result"])
