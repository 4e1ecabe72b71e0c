import json
import shutil
from xml.etree import ElementTree as ET

import pytest

from noetl.cli.suites import is_wanted
from noetl.local.journal import read
from tests.unit.cli.conftest import EXAMPLES

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: tally, path: demo/tally}
workload: {limit: 3}
workflow:
  - step: fetch
    tool:
      kind: http
      url: https://api.example.com/count
      spec: {retry: {attempts: 3, delay: 60, backoff: fixed}}
    set: {ctx.n: "{{ output.data.n }}"}
    next:
      spec: {mode: exclusive}
      arcs:
        - {step: store, when: "{{ output.data.n > workload.limit }}"}
        - {step: drop}
  - step: store
    tool: {kind: shell, command: store it}
  - step: drop
    tool: {kind: noop}
"""
SUITE = """\
apiVersion: noetl.io/v2
kind: PlaybookTest
metadata: {name: tally_test, path: demo/tally_test}
spec:
  playbook: demo/tally
  cases:
"""
PASSING = """\
    - name: retries once, then stores
      mocks:
        - {step: fetch, sequence: [{raise: {kind: server_error, status: 503}}, {return: {n: 7}}]}
        - {step: store, return: {row_count: 1}}
      expect:
        status: COMPLETED
        steps: {store: COMPLETED, drop: SKIPPED}
        calls: {fetch: 2, drop: 0}
        ctx: {n: 7}
        result: {row_count: 1}
        assert: ["{{ store.row_count == 1 }}"]
        max_events: 60
"""
FAILING = """\
    - name: forgets a mock
      mocks:
        - {step: fetch, return: {n: 7}}
      expect: {result: {row_count: 1}}
"""
CRASHING = """\
    - name: loses its worker twice
      mocks:
        - {step: fetch, sequence: [{crash: true}, {crash: true}, {return: {n: 1}}]}
      expect: {steps: {drop: COMPLETED}, calls: {fetch: 3}}
    - name: hangs until its time is up
      mocks:
        - {step: fetch, hang: true}
      expect: {error: {kind: timeout, step: fetch}}
"""


@pytest.fixture
def suite(tmp_path):
    def write(*cases):
        (tmp_path / "tally.yaml").write_text(PLAYBOOK)
        (tmp_path / "tally.test.yaml").write_text(SUITE + "".join(cases))
        return "tally.test.yaml"

    return write


def test_a_suite_that_passes(noetl, suite):
    code, out, err = noetl("test", suite(PASSING, CRASHING))

    assert (code, err) == (0, "3 cases passed\n")
    assert [line.rpartition(" (")[0] for line in out.splitlines()] == [
        "✔ tally.test.yaml: retries once, then stores",
        "✔ tally.test.yaml: loses its worker twice",
        "✔ tally.test.yaml: hangs until its time is up",
    ]


def test_a_case_that_fails_shows_the_difference_the_steps_and_the_log(noetl, suite, tmp_path):
    code, out, err = noetl("test", suite(FAILING))
    log = ".noetl/tests/tally-test-forgets-a-mock.jsonl"

    assert code == 7
    assert err.splitlines()[0] == "error[test_failed]: 1 of 1 case failed"
    lines = out.splitlines()
    assert lines[0].startswith("✖ tally.test.yaml:7: forgets a mock (")
    remedy = "(mock the step, or add `shell` to `allow`)"
    cause = "(step `store`: config: `store` calls `shell`, and no mock answers)"
    assert lines[1:5] == [
        f"    unmocked_tool: step `store` calls `shell`, which is not mocked {remedy}",
        f"    status: expected COMPLETED, found FAILED {cause}",
        "    result: expected a map, found null",
        f"    demo/tally@1  {lines[4].split()[1]}   FAILED 00:00",
    ]
    assert lines[-1] == f"    events: {log}"
    assert type(read(tmp_path / log)[-1].event).__name__ == "PlaybookFailed"


def test_an_allowed_kind_runs_for_real(noetl, suite):
    allowed = FAILING.replace(
        "expect: {result: {row_count: 1}}", "allow: shell\n      expect: {error: {step: store}}"
    )

    assert noetl("test", suite(allowed), "-q") == (0, "", "")


def test_the_results_as_data(noetl, suite):
    code, out, err = noetl("test", suite(PASSING, FAILING), "-o", "json", "--coverage")
    shown = json.loads(out)

    assert (code, err, shown["passed"], shown["failed"]) == (7, "", 1, 1)
    assert [list(case) for case in shown["cases"]] == [
        ["file", "name", "line", "passed", "duration_ms", "status", "faults", "events_file"]
    ] * 2
    assert shown["coverage"] == [
        {
            "file": "tally.yaml", "percent": 60.0, "steps": 3, "arcs": 2,
            "steps_not_entered": ["drop"], "arcs_not_taken": ["fetch -> drop"],
        }
    ]  # fmt: skip
    lines = noetl("test", "-o", "jsonl").out.splitlines()
    assert [json.loads(line)["passed"] for line in lines] == [True, False]


def test_coverage_lists_what_is_missing_and_may_fail(noetl, suite):
    name = suite(PASSING)
    code, out, _ = noetl("test", name, "--coverage")

    assert code == 0
    assert out.splitlines()[1:] == [
        " 60.0 %  tally.yaml",
        "         step not entered: drop",
        "         arc not taken: fetch -> drop",
    ]
    code, _, err = noetl("test", name, "--min", "61", "-q")
    assert code == 7
    assert err.splitlines()[0] == "error[test_failed]: tally.yaml is covered to 60 %"
    assert noetl("test", name, "--min", "60").code == 0


def test_cases_of_several_suites_add_up_to_the_coverage_of_a_playbook(noetl, suite, tmp_path):
    suite(PASSING)
    (tmp_path / "more.test.yaml").write_text(SUITE + CRASHING)

    assert noetl("test", "--coverage").out.splitlines()[-1] == "100.0 %  tally.yaml"


def test_junit_for_build_servers(noetl, suite, tmp_path):
    noetl("test", suite(PASSING, FAILING), "--junit", "report.xml")
    root = ET.fromstring((tmp_path / "report.xml").read_text())  # noqa: S314 - our own file

    (found,) = root
    assert (found.attrib["name"], found.attrib["tests"], found.attrib["failures"]) == (
        "tally.test.yaml", "2", "1",
    )  # fmt: skip
    assert [case.attrib["name"] for case in found] == [
        "retries once, then stores", "forgets a mock",
    ]  # fmt: skip
    (failure,) = found[1]
    assert failure.attrib["message"].startswith("unmocked_tool: ")
    assert noetl("test", "--junit", "none/report.xml").code == 1


def test_cases_are_chosen_by_name(noetl, suite):
    name = suite(PASSING, CRASHING)

    assert "1 case passed" in noetl("test", name, "-k", "HANGS").err
    assert "2 cases passed" in noetl("test", name, "-k", "hangs or twice").err
    code, _, err = noetl("test", name, "-k", "nothing")
    assert (code, err.splitlines()[0]) == (
        5, "error[file_not_found]: no case is named like `nothing`",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "is_so"),
    [
        ("", True), ("retr", True), ("retries and stores", True), ("not stores", False),
        ("other or stores", True), ("retries and not slow", True), ("retries and slow", False),
    ],
)  # fmt: skip
def test_an_expression_of_words(expression, is_so):
    assert is_wanted(expression, "tally.test.yaml Retries once, then stores") is is_so


def test_what_is_no_test_is_refused(noetl, suite, tmp_path):
    assert noetl("test").code == 5
    suite(PASSING)
    assert noetl("test", "tally.yaml").code == 7
    (tmp_path / "bad.test.yaml").write_text(SUITE + "    - {nme: x}\n")
    assert noetl("test", "bad.test.yaml").code == 7
    (tmp_path / "bad.test.yaml").write_text((SUITE + PASSING).replace("demo/tally\n", "demo/no\n"))
    code, _, err = noetl("test", "bad.test.yaml")
    assert code == 5
    assert "there is no playbook `demo/no`" in err


def test_a_refused_start_fails_the_case(noetl, suite, tmp_path):
    name = suite(PASSING)
    text = PLAYBOOK.replace("workload:", "inputs: {n: {type: integer, required: true}}\nworkload:")
    (tmp_path / "tally.yaml").write_text(text)
    code, out, _ = noetl("test", name)

    assert code == 7
    assert "    refused: " in out


def test_an_unmocked_child_is_found_beside_the_file_and_run(noetl, tmp_path):
    for name in ("subplaybook_parent.yaml", "subplaybook_child.yaml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    (tmp_path / "p.test.yaml").write_text(
        SUITE.replace("playbook: demo/tally", "file: subplaybook_parent.yaml")
        + "    - name: really runs\n      expect: {result: {lines: 2, gross_cents: 2162}}\n"
    )

    assert noetl("test", "p.test.yaml").code == 0


def test_a_stored_log_is_decided_again(noetl, suite, tmp_path):
    suite(PASSING)
    (tmp_path / "mocks.yaml").write_text(
        "- {step: fetch, return: {n: 7}}\n- {step: store, return: {row_count: 1}}\n"
    )
    noetl("run", "tally.yaml", "--mock", "mocks.yaml", "--events", "log.jsonl")

    code, out, err = noetl("test", "--replay", "log.jsonl")
    assert (code, out) == (0, "")
    assert err.endswith(" decisions of 1 run are the same\n")
    shown = json.loads(noetl("test", "--replay", "log.jsonl", "-o", "json").out)
    assert (shown["runs"], shown["difference"]) == (1, None)

    log = tmp_path / "log.jsonl"
    log.write_text(log.read_text().replace('"row_count":1', '"row_count":2', 1))
    code, _, err = noetl("test", "--replay", "log.jsonl")
    assert code == 7
    assert "the log has step.exit of store, today it is step.exit of store" in err


def test_an_edited_condition_is_found_in_a_stored_log(noetl, suite, tmp_path):
    suite(PASSING)
    (tmp_path / "mocks.yaml").write_text(
        "- {step: fetch, return: {n: 7}}\n- {step: store, return: {row_count: 1}}\n"
    )
    noetl("run", "tally.yaml", "--mock", "mocks.yaml", "--events", "log.jsonl")

    (tmp_path / "tally.yaml").write_text(PLAYBOOK + "# changed\n")
    assert noetl("test", "--replay", "log.jsonl").code == 0
    (tmp_path / "tally.yaml").write_text(PLAYBOOK.replace("n > workload.limit", "n > 70"))
    code, _, err = noetl("test", "--replay", "log.jsonl")
    assert code == 7
    assert ": the log has step.exit of fetch, today it is step.exit of fetch with other " in err
