import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from noetl.api.problems import Problem
from noetl.cli.failures import Answered
from noetl.local.journal import read

FORMATS = ("json", "yaml", "jsonl")
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: t, path: t/main}\n"
FAILING = (
    HEAD
    + """\
workflow:
  - step: start
    tool:
      kind: python
      code: |
        print("about to fail")
        raise ValueError("no luck")
"""
)
QUICK = (
    HEAD
    + """\
workload: {n: 1, m: {a: 1}}
workflow:
  - step: start
    tool: {kind: noop}
result: "{{ workload }}"
"""
)
CHECKED = (
    HEAD
    + """\
inputs: {n: {type: integer, required: true}}
workflow: [{step: start, tool: {kind: noop}}]
"""
)
WAITING = HEAD + "workflow: [{step: start, tool: {kind: wait, seconds: 3600}}]\n"
FETCHING = (
    HEAD
    + """\
workflow:
  - step: start
    tool: {kind: http, url: 'http://127.0.0.1:9/x'}
result: "{{ start.data }}"
"""
)
SUITE = """\
apiVersion: noetl.io/v2
kind: PlaybookTest
metadata: {name: t, path: t}
spec: {file: t.yaml, cases: [{name: c, mocks: [{step: start, return: {n: 5}}]}]}
"""


class Answering(BaseHTTPRequestHandler):
    """Answers with the authorization that it was given."""

    def do_GET(self):
        said = self.headers.get("authorization", "")
        self.server.heard.append(said)
        body = json.dumps({"said": said}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def answering():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        server.heard = []
        server.url = f"http://127.0.0.1:{server.server_port}/x"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def write(tmp_path):
    def wrote(text, name="t.yaml"):
        (tmp_path / name).write_text(text)
        return name

    return wrote


def test_a_run_prints_its_status_and_result(noetl, hello):
    code, out, err = noetl("run", hello, "--set", "name=Ada")

    assert code == 0
    assert re.fullmatch(
        r'COMPLETED examples/hello \d+ in .* m?s\nresult:\n  message: "Hello, Ada!"\n', out
    )
    lines = [line.split(" ", 1) for line in err.splitlines()]
    assert [words.split()[:3] for _, words in lines] == [
        ["step", "start", "started"], ["step", "start", "completed"],
    ]  # fmt: skip
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}", time) for time, _ in lines)


def test_quiet_leaves_only_the_result(noetl, hello):
    code, out, err = noetl("run", hello, "-q")

    assert (code, err) == (0, "")
    assert out.startswith("COMPLETED ")


def test_json_is_exactly_the_documented_object(noetl, write):
    code, out, _ = noetl("run", write(QUICK), "-o", "json")
    shown = json.loads(out)

    assert code == 0
    assert shown == {
        "execution_id": shown["execution_id"],
        "status": "COMPLETED",
        "result": {"n": 1, "m": {"a": 1}},
        "error": None,
        "steps": {
            "start": {
                "status": "COMPLETED", "runs": 1, "attempts": 1,
                "duration_ms": shown["steps"]["start"]["duration_ms"],
                "result": {"status": "ok"}, "error": None,
            }
        },
        "duration_ms": shown["duration_ms"],
        "events_file": f".noetl/runs/{shown['execution_id']}.jsonl",
    }  # fmt: skip
    assert list(shown) == [
        "execution_id", "status", "result", "error", "steps", "duration_ms", "events_file",
    ]  # fmt: skip


def test_later_inputs_win(noetl, write):
    words = ("-i", write("n: 2\nm: {b: 2, c: 2}\n", "in.yaml"), "--payload", '{"m": {"c": 3}}', "--set-string", "n=4")  # fmt: skip  # noqa: E501 - one command line
    code, out, _ = noetl("run", write(QUICK), "-o", "json", *words)

    assert (code, json.loads(out)["result"]) == (0, {"n": "4", "m": {"a": 1, "b": 2, "c": 3}})


def test_a_failed_run_names_the_step_the_exception_and_the_line(noetl, write):
    code, out, err = noetl("run", write(FAILING), "-v")

    assert code == 3
    assert out.splitlines()[0].startswith("FAILED t/main ")
    assert out.splitlines()[1:4] == [
        "error: step start, python (exception)",
        "  ValueError: no luck",
        "  ValueError, line 2 of the code",
    ]
    assert "  at t.yaml:5" in out.splitlines()
    assert "start | about to fail" in err.splitlines()


@pytest.mark.parametrize("form", FORMATS)
def test_a_failed_run_is_data_all_the_same(noetl, write, form):
    code, out, err = noetl("run", write(FAILING), "-q", "-o", form)

    assert (code, err) == (3, "")
    assert "FAILED" in out


@pytest.mark.parametrize(
    ("words", "code"),
    [(("--set", "n=one"), "7"), ((), "7"), (("--payload", "[]"), "7"), (("--payload", "{"), "2")],
)
def test_inputs_that_the_playbook_refuses_end_with_7(noetl, write, words, code):
    done = noetl("run", write(CHECKED), *words, "-o", "json")

    assert (str(done.code), done.out) == (code, "")
    assert set(json.loads(done.err)) == {"error"}


def test_a_run_that_takes_too_long_is_cancelled(noetl, write):
    code, out, _ = noetl("run", write(WAITING), "--timeout", "0.05", "-o", "json")

    assert (code, json.loads(out)["status"]) == (8, "CANCELLED")


def test_the_log_goes_where_it_is_asked_for_and_is_read_back(noetl, write, tmp_path):
    code, out, _ = noetl("run", write(QUICK), "--events", "logs/a.jsonl", "-o", "json")
    events = read(tmp_path / "logs" / "a.jsonl")

    assert (code, json.loads(out)["events_file"]) == (0, "logs/a.jsonl")
    assert events[0].event.trigger["file"] == "t.yaml"
    assert type(events[-1].event).__name__ == "PlaybookCompleted"


def test_events_stream_to_stdout(noetl, write, tmp_path):
    code, out, _ = noetl("run", write(QUICK), "--events", "-", "-o", "jsonl", "-q")
    rows = [json.loads(line) for line in out.splitlines()]

    assert code == 0
    assert [row["event_type"] for row in rows] == [
        "playbook.started", "step.enter", "step.exit", "playbook.completed",
    ]  # fmt: skip
    assert not (tmp_path / ".noetl" / "runs").exists()


def test_a_stream_needs_lines(noetl, write):
    code, out, err = noetl("run", write(QUICK), "--events", "-")

    assert (code, out) == (2, "")
    assert err == "error[usage]: `--events -` needs `-o jsonl`\nhint: add `-o jsonl`\n"


def test_without_a_file_the_usual_names_are_tried(noetl, write):
    assert noetl("run").code == 2
    write(QUICK.replace("{n: 1,", "{n: 2,"), "main.yaml")
    assert json.loads(noetl("run", "-o", "json").out)["result"]["n"] == 2
    write(QUICK, "noetl.yaml")
    assert json.loads(noetl("run", "-o", "json").out)["result"]["n"] == 1


def test_what_is_no_playbook_is_refused(noetl, write, misspelt):
    assert noetl("run", misspelt).code == 7
    code, _, err = noetl("run", write(SUITE))
    assert code == 7
    assert err.splitlines()[0] == (
        "error[invalid_playbook]: t.yaml is a PlaybookTest, not a Playbook"
    )
    assert noetl("run", "nowhere.yaml").code == 5


def test_a_run_that_was_cut_short_goes_on(noetl, write, tmp_path):
    name = write(FAILING.replace('raise ValueError("no luck")', 'result = {"n": 1}'))
    whole = noetl("run", name, "--events", "log.jsonl", "-q", "-o", "json")
    log = tmp_path / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:4]) + lines[4][:20])

    code, out, err = noetl("run", "--resume", "log.jsonl", "-o", "json")

    shown = json.loads(out)
    assert (code, shown["result"]) == (0, {"n": 1})
    assert shown["execution_id"] == json.loads(whole.out)["execution_id"]
    assert shown["steps"]["start"]["attempts"] == 2
    assert [line.split(" ", 1)[1].split()[2] for line in err.splitlines()] == ["completed"]
    assert type(read(log)[-1].event).__name__ == "PlaybookCompleted"


def test_only_the_same_playbook_goes_on(noetl, write):
    name = write(QUICK)
    noetl("run", name, "--events", "log.jsonl")
    write(QUICK + "# more\n")

    code, out, err = noetl("run", "--resume", "log.jsonl")

    assert (code, out) == (6, "")
    assert err.startswith(
        "error[playbook_changed]: t.yaml is not the playbook that the log was made with\n"
    )


def test_a_damaged_log_is_named_with_its_line(noetl, write, tmp_path):
    noetl("run", write(QUICK), "--events", "log.jsonl")
    log = tmp_path / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(lines[0] + b"nonsense\n" + b"".join(lines[1:]))

    code, out, err = noetl("run", "--resume", "log.jsonl")

    assert (code, out) == (1, "")
    assert err.startswith("error[corrupt_log]: log.jsonl, line 2: the line is no event: ")
    assert noetl("run", "--resume", "none.jsonl").code == 5
    assert noetl("run", "--resume", ".").code == 1


def test_a_resumed_run_takes_no_inputs(noetl, write):
    noetl("run", write(QUICK), "--events", "log.jsonl")

    assert noetl("run", "--resume", "log.jsonl", "--set", "n=2").code == 2


@pytest.mark.parametrize(
    "mocks",
    [
        "- {step: start, return: {n: 5}}",
        "mocks: [{step: start, return: {n: 5}}]",
        SUITE,
    ],
)
def test_mocks_stand_in_for_tools(noetl, write, mocks):
    words = ("run", write(FETCHING), "--mock", write(mocks, "mocks.yaml"), "-o", "json")

    assert json.loads(noetl(*words).out)["result"] == {"n": 5}


def test_a_file_without_mocks_is_refused(noetl, write):
    code, _, err = noetl("run", write(FETCHING), "--mock", write("- {stp: start}", "m.yaml"))

    assert code == 7
    assert err.startswith("error[invalid_playbook]: m.yaml holds no mocks: ")


def test_a_log_that_cannot_be_written_is_said(noetl, write):
    write("", "file")
    code, out, err = noetl("run", write(QUICK), "--events", "file/log.jsonl")

    assert (code, out) == (1, "")
    assert err.startswith("error[events_write_failed]: the event log cannot be written: ")


@pytest.mark.parametrize(("status", "code"), [(401, 4), (404, 5), (409, 6), (422, 7), (503, 11), (418, 1)])  # fmt: skip  # noqa: E501 - one table
def test_an_answer_of_the_server_ends_with_the_code_of_its_status(status, code):
    problem = Problem(
        type="t", title="t", status=status, code="any_code", detail="no", errors=({"a": 1},)
    )
    failure = Answered(problem)

    assert failure.exit_code == code
    assert failure.as_json()["error"] == {
        "code": "any_code", "message": "no", "hint": failure.hint,
        "docs_url": "/docs/reference/errors#any_code", "status": status,
        "request_id": None, "details": {"diagnostics": [{"a": 1}]},
    }  # fmt: skip


def test_a_credential_is_used_and_never_shown(noetl, write, tmp_path, answering):
    write("{type: bearer, token: hunter2-and-more}", "token.yaml")
    text = FETCHING.replace("http://127.0.0.1:9/x'", f"{answering.url}', auth: shop")

    words = ("run", write(text), "--credential", "shop=token.yaml", "-o", "json", "-v")
    code, out, err = noetl(*words)

    assert (code, json.loads(out)["result"]["said"]) == (0, "***")
    assert answering.heard == ["Bearer hunter2-and-more"]
    log = b"".join(path.read_bytes() for path in (tmp_path / ".noetl" / "runs").iterdir())
    assert "hunter2" not in out + err + log.decode()


def test_a_credential_that_cannot_be_read_is_refused(noetl, write):
    assert noetl("run", write(QUICK), "--credential", "shop").code == 2
    assert noetl("run", write(QUICK), "--credential", "shop=env:SHOP").code == 2
    assert noetl("run", write(QUICK), "--credential", "shop=none.yaml").code == 5


SECRET = (
    HEAD
    + """\
keychain: [{name: shop, kind: static, map: {token: x}}]
workflow:
  - step: start
    tool: {kind: python, input: {t: "{{ keychain.shop.token }}"}, code: "result = [len(t), t]"}
"""
)


@pytest.mark.parametrize("value", ["s3cret-token", '{"token": "s3cret-token"}'])
def test_a_keychain_entry_takes_a_credential_of_its_name_from_a_variable(
    noetl, write, monkeypatch, value
):
    monkeypatch.setenv("SHOP_TOKEN", value)
    done = noetl("run", write(SECRET), "--credential", "shop=env:SHOP_TOKEN", "-o", "json")

    assert (done.code, json.loads(done.out)["result"]) == (0, [12, "***"])


def test_a_keychain_entry_without_a_credential_fails_its_step(noetl, write):
    text = SECRET.replace("static, map: {token: x}", "credential, credential: nowhere")
    done = noetl("run", write(text), "-o", "json")

    assert done.code == 3
    assert json.loads(done.out)["error"]["code"] == "keychain_missing"


def test_a_long_result_is_cut_for_people_and_whole_for_programs(noetl, write):
    text = (
        HEAD + "workflow: [{step: start, tool: {kind: noop}}]\nresult: '{{ range(100) | list }}'\n"
    )
    shown = noetl("run", write(text)).out

    assert "... 60 more lines; `-o json` shows all" in shown
    assert json.loads(noetl("run", write(text), "-o", "json").out)["result"] == list(range(100))


def test_a_handled_failure_is_shown_as_handled(noetl, write):
    text = (
        HEAD
        + """\
workflow:
  - step: start
    tool: {kind: python, code: "raise ValueError('no luck')"}
    next: {arcs: [{step: fix, on: error}]}
  - {step: fix, tool: {kind: noop, result: fixed}}
"""
    )
    done = noetl("run", write(text))

    assert done.code == 0
    assert done.out.startswith("COMPLETED t/main ")
    assert "handled: step start, python (exception): ValueError: no luck\n" in done.out
    assert re.search("step start failed .*, handled: ValueError: no luck", done.err)
