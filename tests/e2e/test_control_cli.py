"""The installed `noetl` steers the full stack: catalog, schedules, pools, people, audit."""

import json
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep  # noqa: TID251 - a deadline of the test itself

import pytest

from noetl.cli.app import main
from tests.unit.cli.runs import NOOP, document

BIN = Path(sys.executable).parent
LATE_S = 30.0
GREET = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: any, path: PATH}
workload: {name: nobody}
workflow:
  - step: start
    input: {name: "{{ workload.name }}"}
    tool: {kind: python, code: "return {'hello': name}"}
"""


@pytest.fixture
def environment(full_stack, tmp_path):
    return {
        "PATH": f"{BIN}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "NOETL_SERVER_URL": full_stack.url,
        "NOETL_TOKEN": full_stack.token,
    }


@pytest.fixture
def noetl(environment, tmp_path, capsys, monkeypatch):
    """A command line of an admin, in this process; another token speaks for another one."""
    monkeypatch.chdir(tmp_path)
    for name in ("NOETL_OUTPUT", "NOETL_CONTEXT", "NOETL_HOME"):
        monkeypatch.delenv(name, raising=False)

    def run(*words, token=environment["NOETL_TOKEN"], code=0):
        for name, value in (environment | {"NOETL_TOKEN": token}).items():
            monkeypatch.setenv(name, value)
        ended = main(words)
        out, err = capsys.readouterr()
        assert ended == code, out + err
        assert token not in out + err
        if "json" in words:
            assert (out == "") is (code != 0)
            return json.loads(err if code else out)
        return out

    return run


def write(tmp_path, name, path, text=NOOP):
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(document(text, path))


def within(found, wanted):
    """What a question answers as soon as it is the wanted thing."""
    deadline = monotonic() + LATE_S
    while (answer := found()) != wanted:
        assert monotonic() < deadline, f"{answer} is not {wanted}"
        sleep(0.1)


def test_an_apply_does_what_its_dry_run_showed(noetl, tmp_path):
    write(tmp_path, "tree/gone.yaml", "control/tree/gone")
    write(tmp_path, "tree/kept.yaml", "control/tree/kept")
    write(tmp_path, "tree/old.yaml", "control/tree/old")
    tree = ("apply", "-f", "tree", "-R", "-o", "json")
    assert {item["action"] for item in noetl(*tree)["items"]} == {"create"}

    (tmp_path / "tree/gone.yaml").unlink()
    write(tmp_path, "tree/old.yaml", "control/tree/old", f"{NOOP}    desc: newer\n")
    write(tmp_path, "tree/new/one.yaml", "control/tree/new/one")
    pruned = (*tree, "--prune", "--prefix", "control/tree/")
    listed = ("catalog", "list", "--prefix", "control/tree/", "--versions", "-o", "name")
    before = noetl(*listed)
    plan = noetl(*pruned, "--dry-run=server")["items"]
    assert noetl(*listed) == before
    assert noetl(*pruned, code=2)["error"]["code"] == "confirmation_required"
    assert noetl(*listed) == before

    done = noetl(*pruned, "--yes")["items"]
    assert [{**item, "version": None} for item in done] == plan
    assert {item["path"].rpartition("tree/")[2]: item["action"] for item in done} == {
        "new/one": "create", "kept": "unchanged", "old": "update", "gone": "prune",
    }  # fmt: skip
    assert noetl("catalog", "list", "--prefix", "control/tree/", "-o", "name").split() == [
        "playbook/control/tree/kept@1",
        "playbook/control/tree/new/one@1",
        "playbook/control/tree/old@2",
    ]
    changed = noetl("diff", "control/tree/old@1", "control/tree/old@2", "--exit-code", code=7)
    assert changed.startswith("step end: changed desc\n")
    noetl("catalog", "export", "out", "--prefix", "control/tree/")
    assert noetl("diff", "-f", "out", "-R", "--exit-code") == ""


def test_a_version_is_promoted_run_and_put_away(noetl, full_stack, tmp_path):
    full_stack.serve()
    write(tmp_path, "g.yaml", "control/greet", GREET)
    noetl("apply", "-f", "g.yaml")
    write(tmp_path, "g.yaml", "control/greet", GREET.replace("'hello'", "'bye'"))
    noetl("apply", "-f", "g.yaml")
    noetl("catalog", "promote", "control/greet@1")
    run = ("exec", "control/greet", "--set", "name=Ada", "--wait", "-o", "json")

    assert noetl(*run)["result"] == {"hello": "Ada"}
    gone = noetl("catalog", "delete", "control/greet", "--yes", "-o", "json")
    assert (gone["deleted"], gone["archived"]) == ([2], [1])
    assert noetl(*run, code=5)["error"]["code"] == "unknown_path"
    noetl("catalog", "restore", "control/greet")
    assert noetl(*run)["status"] == "COMPLETED"


def test_a_run_starts_later(noetl, full_stack, tmp_path):
    full_stack.serve()
    write(tmp_path, "l.yaml", "control/later", GREET)
    noetl("apply", "-f", "l.yaml")
    words = ("exec", "control/later", "--label", "team=control", "--priority", "7", "-o", "json")

    assert noetl(*words, "--dry-run")["valid"] is True
    done = noetl(*words, "--start-at", "1s", "--wait")
    assert done["status"] == "COMPLETED"
    found = noetl("executions", "list", "--label", "team=control", "-o", "json")["items"]
    assert [(item["execution_id"], item["priority"]) for item in found] == [
        (done["execution_id"], 7)
    ]


def test_a_schedule_lives_and_dies(noetl, full_stack, tmp_path):
    full_stack.serve()
    write(tmp_path, "t.yaml", "control/timed", GREET)
    noetl("apply", "-f", "t.yaml")
    words = ("schedules", "create", "control-nightly", "control/timed", "--cron", "0 3 * * *")
    made = noetl(*words, "--set", "name=Ada", "-o", "json")
    name = ("control-nightly", "-o", "json")

    assert noetl("schedules", "list", "--path", "control/timed", "-o", "name") == (
        f"schedule/{made['schedule_id']}\n"
    )
    assert len(noetl("schedules", "next", *name, "--count", "4")["items"]) == 4
    fired = noetl("schedules", "trigger", *name)
    passed = noetl("schedules", "backfill", *name, "--from", "2d")["items"]
    assert [item["status"] for item in passed] == ["started"] * 2
    again = noetl("schedules", "backfill", *name, "--from", "2d")["items"]
    assert [item["execution_id"] for item in again] == [item["execution_id"] for item in passed]

    def status(item):
        return noetl("status", item["execution_id"], "-o", "json")["status"]

    for item in (fired, *passed):
        within(lambda item=item: status(item), "COMPLETED")
    assert noetl("schedules", "pause", *name)["enabled"] is False
    assert noetl("schedules", "resume", *name)["enabled"] is True
    noetl("schedules", "delete", *name, code=2)
    assert noetl("schedules", "delete", *name, "--yes")["status"] == "deleted"
    assert noetl("schedules", "get", *name, code=5)["error"]["code"] == "not_found"


def test_a_person_may_do_what_her_roles_say(noetl, tmp_path):
    write(tmp_path, "f.yaml", "control/finance/a")
    write(tmp_path, "o.yaml", "control/open/a")
    noetl("apply", "-f", "f.yaml", "-f", "o.yaml")
    noetl("roles", "put", "control-no-finance", "--grant", "deny:execute:control/finance/*")
    noetl("users", "create", "control-ada", "--role", "developer", "--role", "control-no-finance")
    made = noetl("token", "create", "laptop", "--user", "control-ada", "-o", "json")
    hers = {"token": made["token"]}

    assert noetl("whoami", "-o", "json", **hers)["account"] == "control-ada"
    noetl("exec", "control/open/a", **hers)
    refused = noetl("exec", "control/finance/a", "-o", "json", code=4, **hers)
    assert refused["error"]["code"] == "forbidden"
    assert noetl("users", "list", "-o", "json", code=4, **hers)["error"]["status"] == 403
    own = noetl("token", "list", "-o", "name", **hers)
    assert own == f"token/{made['token_id']}\n"

    gone = noetl("users", "update", "control-ada", "--deactivate", "-o", "json")
    assert gone["active"] is False
    noetl("token", "revoke", made["token_id"], "--yes")
    noetl("users", "delete", "control-ada", "--yes")
    noetl("roles", "delete", "control-no-finance", "--yes")

    rows = noetl("audit", "list", "--since", "10m", "--all", "-o", "json")
    told = {(row["action"], row["outcome"]) for row in rows["items"]}
    assert {("auth.token.created", "ok"), ("user.removed", "ok"), ("role.removed", "ok")} <= told
    assert made["token"] not in json.dumps(rows)
    assert noetl("audit", "verify", "-o", "json")["valid"] is True


def test_a_pool_ends_its_work(noetl, full_stack):
    full_stack.serve("control-spare", slots=2)
    listed = ("workers", "list", "--pool", "control-spare", "-o", "json")
    within(lambda: _status(noetl, listed), "ready")
    (worker,) = noetl(*listed)["items"]
    assert (worker["status"], worker["capacity"]) == ("ready", 2)

    noetl("pools", "drain", "control-spare", code=2)
    drained = noetl("pools", "drain", "control-spare", "--yes", "-o", "json")
    assert drained["workers"] == [worker["name"]]
    states = {"draining", ""}
    within(lambda: {_status(noetl, listed)} <= states, wanted=True)


def _status(noetl, listed):
    return next((item["status"] for item in noetl(*listed)["items"]), "")


def test_production_keeps_what_nobody_named(noetl, full_stack, tmp_path, environment):
    write(tmp_path, "p.yaml", "control/prod/a")
    noetl("apply", "-f", "p.yaml")
    (tmp_path / "token").write_text(full_stack.token)
    words = ("--server-url", full_stack.url, "--token-file", "token", "--use")
    noetl("context", "add", "live", *words)
    noetl("context", "mark-production", "live")
    for line in (
        ("catalog", "delete", "control/prod/a"),
        ("apply", "-f", "p.yaml", "--prune", "--prefix", "control/prod/"),
        ("executions", "cancel", "--filter", "--path", "control/prod/*"),
    ):
        done = subprocess.run(
            [BIN / "noetl", *line, "--yes"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if line[0] == "executions":
            assert done.returncode == 0, "no run was found, so nothing was asked"
            continue
        assert done.returncode == 2, done.stderr
        assert "production: live" in done.stderr
    noetl("catalog", "get", "control/prod/a")
    noetl("catalog", "delete", "control/prod/a", "--yes", "-c", "live")
    noetl("catalog", "get", "control/prod/a", code=5)
