"""A stack is backed up under load and restored into an empty home, which goes on with its runs."""

import json
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep  # noqa: TID251 - a deadline of the test itself

import pytest

BIN = Path(sys.executable).parent
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: slow, path: load/slow}
workload: {n: 0, pause_s: 0.05}
workflow:
  - step: start
    loop:
      in: [1, 2, 3, 4, 5, 6]
      iterator: item
    tool:
      kind: python
      input: {item: "{{ iter.item }}", pause_s: "{{ workload.pause_s }}"}
      code: |
        import time
        time.sleep(pause_s)
        result = {"item": item}
    next: {arcs: [{step: end}]}
  - step: end
    tool:
      kind: python
      input: {items: "{{ start.results }}", n: "{{ workload.n }}"}
      code: |
        result = {"n": n, "sum": sum(item["item"] for item in items)}
"""
RUNS = 40
LATE_S = 90.0


@pytest.fixture
def noetl(tmp_path):
    """The command in a folder of its own, with homes that are gone in the end."""
    environ = {
        "PATH": f"{BIN}:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }  # fmt: skip
    (tmp_path / "slow.yaml").write_text(PLAYBOOK)

    def run(*words, code=0):
        done = subprocess.run(
            [BIN / "noetl", *words], cwd=tmp_path, env=environ, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout

    yield run
    for home in ("first", "second"):
        subprocess.run(
            [BIN / "noetl", "down", "--home", home, "--wipe", "--yes"],
            cwd=tmp_path, env=environ, capture_output=True, check=False,
        )  # fmt: skip


def up(noetl, home):
    words = ("--detach", "--port", "auto", "--pools", "shared=2", "-o", "json")
    return json.loads(noetl("up", "--home", home, *words))["url"]


def statuses(noetl):
    words = ("executions", "list", "--all", "-c", "embedded", "-o", "json", "--path", "load/slow")
    items = json.loads(noetl(*words))["items"]
    return {item["execution_id"]: item["status"] for item in items}


@pytest.mark.timeout(300)
def test_a_backup_under_load_goes_on_in_an_empty_home(noetl, tmp_path):
    up(noetl, "first")
    noetl("register", "slow.yaml")
    lines = [json.dumps({"path": "load/slow", "payload": {"n": n}}) for n in range(RUNS)]
    (tmp_path / "starts.jsonl").write_text("\n".join(lines))
    noetl("exec", "--batch", "starts.jsonl")

    made = json.loads(noetl("db", "backup", "noetl.backup", "--home", "first", "-o", "json"))
    rows = {table["name"]: table["rows"] for table in made["tables"]}
    at_backup = statuses(noetl)
    noetl("down", "--home", "first", "--wipe", "--yes")

    assert rows["execution"] == RUNS
    assert "RUNNING" in at_backup.values()
    noetl("db", "restore", "noetl.backup", "--home", "second")
    noetl("db", "restore", "noetl.backup", "--home", "second", code=6)
    up(noetl, "second")
    noetl("db", "restore", "noetl.backup", "--home", "second", "--yes", "--force", code=6)
    deadline = monotonic() + LATE_S
    found = statuses(noetl)
    while set(found.values()) != {"COMPLETED"} and monotonic() < deadline:
        sleep(0.5)
        found = statuses(noetl)

    assert found == dict.fromkeys(at_backup, "COMPLETED")
    checked = json.loads(noetl("db", "check", "--home", "second", "-o", "json"))["items"]
    assert [one["name"] for one in checked if not one["is_ok"]] == []
    doctor = json.loads(noetl("doctor", "--home", "second", "-o", "json"))["items"]
    told = {one["name"]: one["verdict"] for one in doctor}
    assert {name: told[name] for name in ("database", "fsync", "schema", "clock", "bus")} == (
        dict.fromkeys(("database", "fsync", "schema", "clock", "bus"), "ok")
    )
    results = json.loads(
        noetl(
            "db", "query", "select count(distinct result::text) as n from execution",
            "--database-url", (tmp_path / "second/secrets/database.url").read_text().strip(),
            "-o", "json",
        )
    )  # fmt: skip
    assert results == {"status": "ok", "result": [{"n": RUNS}]}
