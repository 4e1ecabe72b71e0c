import json

import pytest

from noetl.api.events import LogBatch, LogLine
from tests.unit.cli.runs import FAILING, NOOP, WAITING, start


@pytest.fixture(scope="module")
def ended(served):
    return start(served, "fixed/ended", labels={"team": "etl"})


@pytest.fixture(scope="module")
def failed(served):
    return start(served, "fixed/failed", FAILING)


@pytest.fixture
def waiting(served):
    return start(served, "runs/waiting", WAITING)


def ids(result):
    return [item["execution_id"] for item in json.loads(result.out)["items"]]


def test_runs_are_listed_with_the_newest_first(remote, ended, failed):
    code, out, err = remote("executions", "list", "-o", "json", "--path", "fixed/*")
    found = json.loads(out)

    assert (code, err, found["next_cursor"]) == (0, "", None)
    assert [item["execution_id"] for item in found["items"]] == sorted(
        (ended, failed), key=int, reverse=True
    )
    assert all(isinstance(item["execution_id"], str) for item in found["items"])


@pytest.mark.parametrize(
    "words",
    [
        ("--path", "fixed/ended"),
        ("--label", "team=etl"),
        ("--status", "completed", "--path", "fixed/*"),
        ("--text", "fixed/end"),
        ("--since", "1h", "--label", "team=etl"),
        ("--parent", "none", "--path", "fixed/ended"),
    ],
)
def test_a_filter_leaves_the_others_out(remote, ended, failed, words):
    assert ids(remote("executions", "list", *words, "-o", "json")) == [ended]
    assert failed


@pytest.mark.parametrize("words", [("--until", "1h"), ("--since", "2999-01-01T00:00:00Z")])
def test_nothing_is_a_list_too(remote, ended, words):
    assert json.loads(remote("executions", "list", *words, "-o", "json").out) == {
        "items": [],
        "next_cursor": None,
    }
    assert remote("executions", "list", *words) == (0, "", "no execution was found\n")
    assert ended


def test_a_list_is_paged_and_all_follows_the_pages(remote, served):
    for _ in range(3):
        start(served, "runs/paged")
    words = ("executions", "list", "--path", "runs/paged")
    first = json.loads(remote(*words, "--limit", "2", "-o", "json").out)

    assert (len(first["items"]), bool(first["next_cursor"])) == (2, True)
    assert len(ids(remote(*words, "--all", "-o", "json"))) == 3
    assert "there are more" in remote(*words, "--limit", "1").err


def test_a_name_leads_back_to_its_run(remote, ended):
    name = remote("executions", "list", "--path", "fixed/ended", "-o", "name").out.strip()

    assert name == f"execution/{ended}"
    assert json.loads(remote("executions", "get", name, "-o", "json").out)["status"] == "COMPLETED"
    assert remote("executions", "get", ended, "-o", "name").out == f"{name}\n"


def test_the_table_is_for_people(remote, ended):
    head, row = remote("executions", "list", "--path", "fixed/ended").out.splitlines()

    assert head.split()[:3] == ["EXECUTION", "STATUS", "PLAYBOOK"]
    assert row.split()[:3] == [ended, "COMPLETED", "fixed/ended@1"]
    assert "status: COMPLETED" in remote("executions", "get", ended).out


def test_the_newest_run_has_a_name(remote, served):
    first = start(served, "runs/latest")
    other = start(served, "runs/other")

    assert json.loads(remote("executions", "get", "@latest", "--json").out)["execution_id"] == other
    told = remote("executions", "get", "@latest:runs/latest", "--json")
    assert json.loads(told.out)["execution_id"] == first


def test_the_status_of_a_run(remote, ended):
    told = json.loads(remote("status", ended, "-o", "json").out)

    assert (told["execution_id"], told["status"]) == (ended, "COMPLETED")
    assert (told["current_step"], told["is_cancelled"]) == (None, False)
    assert told["progress"]["completed_steps"] == 2


# ------------------------------------------------------------------------------- events


def test_events_come_in_order(remote, ended):
    found = json.loads(remote("executions", "events", ended, "-o", "json").out)

    assert [row["seq"] for row in found["items"]] == list(range(1, len(found["items"]) + 1))
    assert found["items"][-1]["event_type"] == "playbook.completed"
    assert remote("executions", "events", ended).out.splitlines()[0].split()[0] == "SEQ"


def test_events_are_filtered_and_paged(remote, ended):
    words = ("executions", "events", ended, "-o", "json")

    steps = json.loads(remote(*words, "--type", "step.*").out)["items"]
    assert {row["event_type"] for row in steps} == {"step.enter", "step.exit"}
    assert {r["step"] for r in json.loads(remote(*words, "--step", "end").out)["items"]} == {"end"}
    assert json.loads(remote(*words, "--after", "2").out)["items"][0]["seq"] == 3
    page = json.loads(remote(*words, "--limit", "1").out)
    assert (len(page["items"]), bool(page["next_cursor"])) == (1, True)
    everything = json.loads(remote(*words, "--all").out)["items"]
    assert remote("executions", "events", ended, "-o", "name").out.splitlines() == [
        f"event/{row['event_id']}" for row in everything
    ]


@pytest.mark.parametrize("form", ["json", "yaml", "jsonl", "name"])
def test_followed_events_are_the_same(remote, ended, form):
    plain = remote("executions", "events", ended, "-o", form, "--all")

    assert remote("executions", "events", ended, "-f", "-o", form).out == plain.out


def test_followed_events_are_filtered(remote, ended):
    out = remote("executions", "events", ended, "-f", "--type", "step.*", "--step", "end").out

    assert [line.split()[2] for line in out.splitlines()] == ["step.enter", "step.exit"]


def test_without_a_format_the_tree_is_followed(remote, ended, failed):
    code, out, err = remote("executions", "events", ended, "-f")

    assert (code, out.split()[0]) == (0, "COMPLETED")
    assert "step end completed" in err
    assert remote("executions", "events", failed, "-f").out.startswith("FAILED fixed/failed ")


# --------------------------------------------------------------------------------- logs


@pytest.fixture(scope="module")
def wrote(served):
    execution_id = start(served, "runs/wrote", NOOP)
    lines = LogBatch(
        entries=tuple(
            LogLine(
                execution_id=execution_id, command_id="7", attempt=n, n=n, step=step,
                ts=f"2026-01-01T00:00:0{n}.000000Z", text=f"line \x1b {n}",
            )
            for n, step in ((1, "start"), (2, "end"))
        )
    )  # fmt: skip
    served.call(lambda client: client.log(lines))
    return execution_id


def test_lines_are_shown_with_step_and_attempt(remote, wrote):
    assert remote("executions", "logs", wrote).out == (
        "2026-01-01T00:00:01.000000Z start | line \\x1b 1\n"
        "2026-01-01T00:00:02.000000Z end #2 | line \\x1b 2\n"
    )


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ((), [1, 2]),
        (("--tail", "1"), [2]),
        (("--tail", "0"), []),
        (("--step", "start"), [1]),
        (("--since", "2026-01-01T00:00:02Z"), [2]),
        (("-f",), [1, 2]),
        (("-f", "--tail", "1"), [2]),
    ],
)
def test_lines_are_chosen(remote, wrote, words, numbers):
    as_json = remote("executions", "logs", wrote, *words, "-o", "json")
    as_lines = remote("executions", "logs", wrote, *words, "-o", "jsonl")

    assert [line["n"] for line in json.loads(as_json.out)["items"]] == numbers
    assert [json.loads(line)["n"] for line in as_lines.out.splitlines()] == numbers


# ------------------------------------------------------------------------------- cancel


def test_a_run_is_cancelled_once_and_again_is_no_error(remote, waiting):
    words = ("executions", "cancel", waiting, "--reason", "enough", "-o", "json")
    code, out, _ = remote(*words)

    assert (code, json.loads(out)["items"][0]["status"]) == (0, "CANCELLED")
    assert remote(*words).code == 0
    assert json.loads(remote("status", waiting, "--json").out)["is_cancelled"]


def test_a_run_that_has_ended_cannot_be_cancelled(remote, ended):
    code, out, err = remote("executions", "cancel", ended)

    assert (code, out) == (6, "")
    assert err.startswith("error[already_terminal]: ")


def test_every_run_that_is_named_is_tried(remote, ended, waiting):
    code, out, err = remote("executions", "cancel", ended, f"execution/{waiting}")

    assert code == 6
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [[waiting, "CANCELLED"]]
    assert f"{ended}: " in err
    done = remote("executions", "cancel", "77", ended, waiting, "-o", "json")
    items = json.loads(done.err)["error"]["details"]["items"]
    assert (done.code, done.out) == (5, "")
    assert [item.get("status") for item in items] == [None, None, "CANCELLED"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("get", "77"), 5),
        (("get", "@latest:no/where"), 5),
        (("get", "latest"), 2),
        (("events", "77"), 5),
        (("events", "77", "-f"), 5),
        (("logs", "77"), 5),
        (("cancel", "77"), 5),
        (("list", "--since", "soon"), 2),
        (("list", "--since", "999999999w"), 2),
        (("list", "--status", "nope"), 7),
        (("list", "--limit", "0"), 2),
    ],
)
def test_what_cannot_be_found_or_understood(remote, words, code):
    done = remote("executions", *words, "-o", "json")

    assert (done.code, done.out) == (code, "")
    assert set(json.loads(done.err)) == {"error"}
