import json
from threading import Thread

import pytest

from noetl.api.client import Client
from noetl.api.executions import Control, StartedBatch
from noetl.api.http import NoAnswer
from noetl.cli import batch as batches
from tests.unit.cli.runs import FAILING, NOOP, WAITING, document, register


def test_a_start_is_told_at_once(remote, served):
    entry = register(served, "exec/a")
    code, out, err = remote("exec", "exec/a", "-o", "json")
    told = json.loads(out)
    execution_id = told.pop("execution_id")

    assert (code, err) == (0, "")
    assert told == {
        "status": "started", "commands_generated": 0, "catalog_id": entry.catalog_id,
        "path": "exec/a", "version": 1,
    }  # fmt: skip
    assert int(execution_id) > 2**53


def test_a_person_is_told_how_to_follow(remote, served):
    register(served, "exec/a")
    code, out, err = remote("exec", "exec/a")
    execution_id = out.split()[0]

    assert (code, out) == (0, f"{execution_id}  exec/a@1  started\n")
    assert err == f"follow it with `noetl executions events {execution_id} -f`\n"
    assert remote("exec", "exec/a", "-o", "name").out.startswith("execution/")


@pytest.mark.parametrize(
    "word", ["exec/r", "exec/r@1", "catalog://exec/r@1", "playbook/exec/r@1", "{catalog_id}"]
)
def test_a_playbook_has_many_names(remote, served, word):
    entry = register(served, "exec/r")
    told = remote("exec", word.format(catalog_id=entry.catalog_id), "-o", "json")

    assert json.loads(told.out)["catalog_id"] == entry.catalog_id


def test_a_version_is_named_once(remote, served):
    first = register(served, "exec/v")
    register(served, "exec/v", NOOP + "    desc: newer\n")

    assert json.loads(remote("exec", "exec/v", "-V", "1", "--json").out)["catalog_id"] == (
        first.catalog_id
    )
    assert json.loads(remote("exec", "exec/v@1", "-V", "1", "--json").out)["version"] == 1
    assert json.loads(remote("exec", "exec/v", "--json").out)["version"] == 2
    assert remote("exec", "exec/v@1", "-V", "2").code == 2


def test_a_file_is_registered_first(remote, tmp_path):
    (tmp_path / "f.yaml").write_text(document(NOOP, "exec/file"))
    code, out, err = remote("exec", "f.yaml", "--wait", "-o", "json")

    assert (code, err) == (0, "registered exec/file@1\n")
    assert json.loads(out)["status"] == "COMPLETED"
    assert remote("exec", "f.yaml", "--wait", "-o", "json").err == ""
    assert remote("exec", "f.yaml", "-V", "1").code == 2
    assert remote("exec", "nowhere.yaml").code == 5


def test_a_word_that_means_a_file_and_a_path_is_refused(remote, served, tmp_path):
    register(served, "exec/both")
    (tmp_path / "exec").mkdir()
    (tmp_path / "exec" / "both").write_text(document(NOOP, "exec/other"))

    code, _, err = remote("exec", "exec/both")
    assert code == 2
    assert err.endswith("hint: write `./exec/both` or `catalog://exec/both`\n")
    assert remote("exec", "catalog://exec/both").code == 0
    assert json.loads(remote("exec", "./exec/both", "--json").out)["path"] == "exec/other"


def test_inputs_pool_priority_and_labels_reach_the_run(remote, served):
    register(served, "exec/in")
    told = remote(
        "exec", "exec/in", "--set", "n=7", "--set-string", "t=7", "--payload", '{"a": {"b": 1}}',
        "--set", "a.c=2", "--pool", "gpu", "--priority", "9", "--label", "team=etl", "--json",
    )  # fmt: skip
    execution_id = json.loads(told.out)["execution_id"]
    found = served.call(lambda client: client.execution(execution_id))

    assert found.workload == {"n": 7, "t": "7", "a": {"b": 1, "c": 2}}
    assert (found.pool, found.priority, found.labels) == ("gpu", 9, {"team": "etl"})


def test_the_awaited_run_is_shown_as_run_shows_it(remote, served):
    register(served, "exec/w")
    code, out, err = remote("exec", "exec/w", "--wait", "-o", "json")
    document = json.loads(out)

    assert (code, err) == (0, "")
    assert list(document) == ["execution_id", "status", "result", "error", "steps", "duration_ms"]
    assert (document["status"], document["error"]) == ("COMPLETED", None)
    assert [(name, step["status"]) for name, step in document["steps"].items()] == [
        ("start", "COMPLETED"),
        ("end", "COMPLETED"),
    ]
    assert remote("exec", "exec/w", "--wait").out.startswith("COMPLETED exec/w ")
    assert remote("exec", "exec/w", "--wait", "-o", "name").out.startswith("execution/")


def test_follow_tells_each_step(remote, served):
    register(served, "exec/w")
    code, out, err = remote("exec", "exec/w", "--follow")

    assert (code, out.split()[0]) == (0, "COMPLETED")
    assert [line.split()[1:4] for line in err.splitlines()] == [
        ["step", "start", "started"],
        ["step", "start", "completed"],
        ["step", "end", "started"],
        ["step", "end", "completed"],
    ]
    assert remote("exec", "exec/w", "--follow", "-q").err == ""


def test_a_run_that_fails_ends_with_3(remote, served):
    register(served, "exec/fails", FAILING)
    code, out, _ = remote("exec", "exec/fails", "--wait", "-o", "json")
    document = json.loads(out)

    assert (code, document["status"]) == (3, "FAILED")
    assert document["error"]["step"] == "start"


def test_a_run_that_is_cancelled_ends_with_9(remote, served):
    register(served, "exec/cancelled", WAITING)
    told = remote("exec", "exec/cancelled", "--idempotency-key", "k-cancel", "--json")
    execution_id = json.loads(told.out)["execution_id"]
    done = []

    def cancel():
        served.call(lambda client: client.cancel(execution_id, Control(reason="enough")))
        done.append(execution_id)

    thread = Thread(target=cancel)
    thread.start()
    words = ("--idempotency-key", "k-cancel", "--wait", "-o", "json")
    code, out, _ = remote("exec", "exec/cancelled", *words)
    thread.join()

    assert (code, json.loads(out)["status"]) == (9, "CANCELLED")
    assert done == [json.loads(out)["execution_id"]]


def test_waiting_ends_after_its_time_and_the_run_goes_on(remote, served):
    register(served, "exec/slow", WAITING)
    code, out, err = remote("exec", "exec/slow", "--timeout", "0.05", "-o", "json")
    error = json.loads(err)["error"]
    execution_id = error["details"]["execution_id"]

    assert (code, out, error["code"]) == (8, "", "wait_timeout")
    assert error["hint"] == f"follow it with `noetl executions events {execution_id} -f`"
    assert served.call(lambda client: client.status(execution_id)).status == "RUNNING"


def test_a_key_starts_one_run(remote, served):
    register(served, "exec/key")
    told = [
        json.loads(remote("exec", "exec/key", "--idempotency-key", "k-1", "--json").out)
        for _ in range(2)
    ]

    assert [one["status"] for one in told] == ["started", "duplicate"]
    assert told[0]["execution_id"] == told[1]["execution_id"]
    done = remote("exec", "exec/key", "--idempotency-key", "k-1", "--set", "n=2", "-o", "json")
    assert (done.code, json.loads(done.err)["error"]["code"]) == (6, "dedup_conflict")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 2),
        (("exec/nowhere",), 5),
        (("exec/a", "--batch", "x"), 2),
        (("exec/a", "--label", "x"), 2),
        (("exec/a", "--set", "x"), 2),
        (("exec/a", "--priority", "10"), 2),
        (("exec/a", "--idempotency-key", "a b"), 2),
        (("exec/a", "--idempotency-key", "é"), 2),
    ],
)
def test_what_cannot_be_started(remote, served, words, code):
    register(served, "exec/a")
    done = remote("exec", *words, "-o", "json")

    assert (done.code, done.out) == (code, "")


def test_inputs_that_do_not_fit_end_with_7(remote, served):
    register(served, "exec/pool")

    assert remote("exec", "exec/pool", "--pool", "no pool").code == 7


def test_an_event_too_large_for_a_stream_is_fetched(remote, served, tmp_path):
    register(served, "exec/large")
    (tmp_path / "in.json").write_text(json.dumps({"text": "x" * 100_000}))
    execution_id = json.loads(remote("exec", "exec/large", "-i", "in.json", "--json").out)[
        "execution_id"
    ]
    rows = remote("executions", "events", execution_id, "-f", "-o", "jsonl").out.splitlines()

    assert len(json.loads(rows[0])["context"]["workload"]["text"]) == 100_000
    assert remote("exec", "exec/large", "-i", "in.json", "--wait").code == 0


# ------------------------------------------------------------------------------ batches


def batch(*lines):
    return "".join(f"{json.dumps(line) if isinstance(line, dict) else line}\n" for line in lines)


def test_a_batch_starts_one_run_per_line(remote, served, tmp_path):
    register(served, "exec/batch")
    lines = [{"path": "exec/batch", "payload": {"n": n}} for n in range(3)]
    (tmp_path / "b.jsonl").write_text(batch(lines[0], "", *lines[1:]))
    code, out, err = remote("exec", "--batch", "b.jsonl", "-o", "jsonl")
    found = [json.loads(line) for line in out.splitlines()]

    assert (code, err) == (0, "")
    assert [(one["index"], one["status"]) for one in found] == [(n, "started") for n in range(3)]
    assert len({one["execution_id"] for one in found}) == 3


def test_a_refused_line_keeps_no_other_out(remote, served):
    register(served, "exec/batch")
    text = batch(
        {"path": "exec/batch"}, "{", {"path": "exec/none"}, {"x": 1}, {"path": "exec/batch"}
    )
    code, out, err = remote("exec", "--batch", "-", "-o", "json", stdin=text.encode())
    found = json.loads(out)["items"]

    assert (code, err) == (7, "3 of 5 lines of <stdin> were refused\n")
    assert [one["status"] for one in found] == ["started", "error", "error", "error", "started"]
    assert [one["index"] for one in found] == list(range(5))
    assert [found[n]["error"]["code"] for n in (1, 2, 3)] == [
        "bad_json",
        "unknown_path",
        "bad_json",
    ]
    assert "unknown_path: " in remote("exec", "--batch", "-", stdin=text.encode()).out


def test_a_large_file_goes_in_chunks(remote, served):
    register(served, "exec/batch")
    text = batch(*[{"path": "exec/batch"}] * 1001)
    out = remote("exec", "--batch", "-", "-o", "jsonl", "-vv", stdin=text.encode())

    assert [json.loads(line)["index"] for line in out.out.splitlines()] == list(range(1001))
    assert out.err.count("POST /api/execute/batch 200") == 2


def test_a_run_may_start_later(remote, served):
    register(served, "exec/later")
    run = json.loads(remote("exec", "exec/later", "--start-at", "1h", "--json").out)
    status = json.loads(remote("status", run["execution_id"], "--json").out)["status"]

    assert (run["status"], status) == ("started", "PENDING")
    assert remote("exec", "exec/later", "--start-at", "later").code == 2
    assert remote("exec", "exec/later", "--start-at", "2199-01-01").code == 7


def test_a_dry_run_starts_nothing(remote, served, tmp_path):
    register(served, "exec/dry")
    found = json.loads(remote("exec", "exec/dry", "--set", "n=5", "--dry-run", "--json").out)

    assert (found["valid"], found["entry_step"]) == (True, "start")
    assert found["workload"]["n"] == 5
    assert served.call(lambda client: client.executions(path="exec/dry")).items == ()
    strict = NOOP.replace("workload: {n: 1}", "inputs: {n: {type: integer, required: true}}")
    register(served, "exec/strict", strict)
    code, out, err = remote("exec", "exec/strict", "--dry-run", "-o", "json")
    assert (code, out) == (7, "")
    assert json.loads(err)["error"]["code"] == "invalid_workload"
    (tmp_path / "f.yaml").write_text(document(NOOP, "exec/unregistered"))
    assert remote("exec", "./f.yaml", "--dry-run").code == 2
    assert remote("catalog", "get", "exec/unregistered").code == 5
    assert remote("exec", "exec/dry", "--dry-run", "--wait").code == 2


@pytest.mark.parametrize("form", ["json", "jsonl", "name", "table"])
def test_what_a_batch_has_started_is_told_though_the_rest_fails(
    remote, served, tmp_path, monkeypatch, form
):
    register(served, "exec/cut")
    (tmp_path / "runs.jsonl").write_text('{"path": "exec/cut"}\n' * 2)
    asked, known = Client.execute_batch, []

    async def failing(self, bodies):
        if known:
            raise NoAnswer("the server went away")
        known.extend((await asked(self, bodies)).results)
        return StartedBatch(count=1, started=1, duplicates=0, failed=0, results=tuple(known))

    monkeypatch.setattr(batches, "MOST_ITEMS", 1)
    monkeypatch.setattr(Client, "execute_batch", failing)
    code, out, err = remote("exec", "--batch", "runs.jsonl", "-o", form)

    assert code == 10
    assert known[0].execution_id in (err if form == "json" else out)
