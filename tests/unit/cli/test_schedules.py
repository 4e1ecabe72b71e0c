import json

import pytest

from tests.unit.cli.runs import document, register

TRIGGERED = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: any, path: PATH}
triggers: [{name: hourly, kind: cron, cron: "0 * * * *"}]
workflow:
  - step: start
    tool: {kind: noop}
"""


def one(result):
    assert result.code == 0, result.err
    return json.loads(result.out)


@pytest.fixture(scope="module", autouse=True)
def _playbook(served):
    register(served, "timed/a")


@pytest.fixture
def nightly(remote):
    words = ("schedules", "create", "nightly", "timed/a", "--cron", "0 3 * * *")
    made = one(remote(*words, "--set", "n=2", "--timezone", "Europe/Rome", "-o", "json"))
    yield made
    remote("schedules", "delete", "nightly", "--yes")


def test_a_schedule_is_made_as_it_was_asked_for(remote, nightly):
    assert (nightly["path"], nightly["cron"], nightly["timezone"]) == (
        "timed/a", "0 3 * * *", "Europe/Rome",
    )  # fmt: skip
    assert nightly["payload"] == {"n": 2}
    assert int(nightly["schedule_id"]) > 2**53
    words = ("schedules", "create", "often", "timed/a@1", "--every", "600", "--paused")
    more = ("--overlap", "queue", "--catchup", "none", "--jitter", "3", "--start-at", "2h")
    often = one(remote(*words, *more, "--end-at", "2199-01-01", "--priority", "7", "--json"))
    assert often["interval_seconds"] == 600
    assert (often["version"], often["enabled"], often["overlap"]) == ("1", False, "queue")
    assert (often["catchup"], often["jitter_s"], often["priority"]) == ("none", 3, 7)
    assert often["end_at"].startswith("2199-01-01T00:00:00")
    assert often["start_at"] is not None
    assert one(remote("schedules", "delete", "often", "-y", "--json")) == {
        "schedule_id": often["schedule_id"],
        "status": "deleted",
    }


def test_schedules_are_listed_and_shown(remote, nightly):
    found = one(remote("schedules", "list", "--path", "timed/a", "-o", "json"))
    assert [item["name"] for item in found["items"]] == ["nightly"]
    assert found["next_cursor"] is None

    name = remote("schedules", "list", "--path", "timed/a", "-o", "name").out
    assert name == f"schedule/{nightly['schedule_id']}\n"
    assert one(remote("schedules", "get", name.strip(), "-o", "json"))["name"] == "nightly"
    assert "0 3 * * * Europe/Rome" in remote("schedules", "list").out
    assert one(remote("schedules", "list", "--paused", "--json"))["items"] == []
    assert remote("schedules", "list", "--paused", "--active").code == 2
    assert remote("schedules", "get", "nightlly") == (
        5,
        "",
        "error[not_found]: there is no schedule `nightlly`\nhint: did you mean `nightly`?\n",
    )
    assert remote("schedules", "get", "77").code == 5


@pytest.mark.usefixtures("nightly")
def test_a_schedule_is_paused_and_goes_on(remote):
    assert one(remote("schedules", "pause", "nightly", "--json"))["enabled"] is False
    assert " paused " in remote("schedules", "list", "--paused").out
    assert one(remote("schedules", "resume", "nightly", "--json"))["enabled"] is True


@pytest.mark.usefixtures("nightly")
def test_a_schedule_is_fired_by_hand(remote):
    name = remote("schedules", "trigger", "nightly", "-o", "name").out.strip()

    assert name.startswith("execution/")
    run = one(remote("executions", "get", name, "-o", "json"))
    assert (run["path"], run["workload"]["n"]) == ("timed/a", 2)


@pytest.mark.usefixtures("nightly")
def test_times_that_have_passed_are_run_once(remote):
    found = one(remote("schedules", "backfill", "nightly", "--from", "3d", "-o", "json"))
    assert [item["status"] for item in found["items"]] == ["started"] * 3
    again = remote("schedules", "backfill", "nightly", "--from", "3d", "--limit", "2", "-o", "name")
    assert again.out.split() == [f"execution/{i['execution_id']}" for i in found["items"][:2]]
    due = found["items"][1]["due_at"]
    assert again.err == f"there are more; go on with `--from {due}`\n"
    assert remote("schedules", "backfill", "nightly", "--from", "soon").code == 2
    assert remote("schedules", "backfill", "nightly").code == 2


def test_when_a_schedule_fires_next(remote, nightly):
    found = one(remote("schedules", "next", "nightly", "--count", "3", "-o", "json"))

    assert (found["schedule_id"], len(found["items"])) == (nightly["schedule_id"], 3)
    told = remote("schedules", "next", "nightly", "--count", "3").out.split()
    assert told == found["items"]


@pytest.mark.usefixtures("nightly")
def test_deleting_is_agreed_to(remote):
    assert remote("schedules", "delete", "nightly").code == 2
    assert remote("schedules", "get", "nightly").code == 0


def test_a_trigger_of_a_playbook_is_changed_there(remote, served):
    register(served, "", document(TRIGGERED, "timed/trigger"))
    (name,) = remote("schedules", "list", "--path", "timed/trigger", "-o", "name").out.split()
    code, _, err = remote("schedules", "delete", name, "--yes")

    assert code == 6
    assert err.startswith("error[in_use]: ")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--cron", "0 3 * * *", "--every", "60"),
        ("--every", "60", "--overlap", "skp"),
        ("--every", "60", "--catchup", "some"),
        ("--every", "60", "--start-at", "soon"),
    ],
)
def test_options_that_cannot_be(remote, words):
    assert remote("schedules", "create", "no", "timed/a", *words).code == 2


def test_what_the_server_refuses(remote, nightly):
    again = ("schedules", "create", nightly["name"], "timed/a", "--every", "600")

    assert remote(*again).code == 6
    assert remote("schedules", "create", "x", "timed/a", "--cron", "61 * * * *").code == 7
    assert remote("schedules", "create", "x", "timed/nowhere", "--every", "600").code == 5
