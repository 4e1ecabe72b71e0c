import pytest

from noetl.dsl.documents.testcase import PlaybookTest
from noetl.dsl.parse import read
from noetl.local.steps import Run, StepRun
from noetl.local.verdicts import Played, Verdict, faults_of

SUITE = """\
apiVersion: noetl.io/v2
kind: PlaybookTest
metadata: {{name: t, path: t}}
spec: {{file: t.yaml, cases: [{{name: c, expect: {expect}}}]}}
"""
ERROR = {"kind": "timeout", "code": "timeout", "message": "too slow", "step": "store"}


def played(**more):
    steps = {
        "fetch": StepRun(name="fetch", status="COMPLETED", runs=1, issued=1),
        "store": StepRun(name="store", status="FAILED", runs=2),
        "each": StepRun(name="each", status="COMPLETED", runs=1, total=5),
    }
    facts = {"status": "COMPLETED", "result": {"n": 7, "list": [1]}, "events": 12} | more
    run = Run(
        execution_id="7", path="t", version=1, started_at="", steps=steps,
        status=facts["status"], result=facts["result"], error=facts.get("error"),
        events=facts["events"],
    )  # fmt: skip
    return Played(
        run=run,
        ctx={"n": 7, "more": 1},
        calls={"fetch": 2},
        unmocked=more.get("unmocked", {}),
        scope={"fetch": {"n": 7}},
    )


def faults(expect, **more):
    case = read(SUITE.format(expect=expect), PlaybookTest).spec.cases[0]
    return faults_of(case, played(**more))


@pytest.mark.parametrize(
    "expect",
    [
        "{}",
        "{status: COMPLETED, result: {n: 7}, ctx: {n: {$gt: 6}}, max_events: 12}",
        "{result: {n: 7, list: [1]}, exact: true}",
        "{steps: {fetch: COMPLETED, store: FAILED, never: SKIPPED}}",
        "{calls: {fetch: 2, store: 2, each: 5, never: 0}}",
        "{assert: ['{{ fetch.n == 7 }}', true]}",
    ],
)
def test_what_is_as_expected_gives_no_fault(expect):
    assert faults(expect) == ()


@pytest.mark.parametrize(
    ("expect", "fault"),
    [
        ("{status: FAILED}", "status: expected FAILED, found COMPLETED"),
        ("{result: {n: '7'}}", 'result/n: expected "7", found 7'),
        ("{result: [1]}", 'result: expected a list, found {"n": 7, "list": [1]}'),
        ("{result: {n: 7}, exact: true}", "result/list: not expected"),
        ("{ctx: {n: 8}}", "ctx/n: expected 8, found 7"),
        ("{steps: {fetch: SKIPPED}}", "steps.fetch: expected SKIPPED, found COMPLETED"),
        ("{calls: {fetch: 1}}", "calls.fetch: expected 1, found 2"),
        ("{assert: '{{ fetch.n == 8 }}'}", "assert: `{{ fetch.n == 8 }}` does not hold"),
        ("{assert: [false]}", "assert: false never holds"),
        ("{max_events: 11}", "max_events: expected at most 11, found 12"),
    ],
)
def test_each_difference_is_one_sentence(expect, fault):
    assert faults(expect) == (fault,)


def test_a_condition_that_cannot_be_evaluated_is_a_fault():
    (fault,) = faults("{assert: '{{ nothing.x == 1 }}'}")

    assert fault.startswith("assert: `{{ nothing.x == 1 }}` cannot be evaluated: ")


def test_an_expected_error_expects_a_failed_run():
    failed = {"status": "FAILED", "error": ERROR}

    assert faults("{error: {kind: timeout, step: store, message_matches: slow$}}", **failed) == ()
    assert faults("{error: {kind: auth, step: fetch, message_matches: quick}}", **failed) == (
        "error.kind: expected auth, found timeout",
        "error.step: expected fetch, found store",
        'error.message: expected text that matches quick, found "too slow"',
    )
    assert faults("{error: {kind: auth}}") == (
        "status: expected FAILED, found COMPLETED",
        "error.kind: expected auth, found no error",
    )


def test_an_unexpected_failure_tells_its_error():
    assert faults("{}", status="FAILED", error=ERROR) == (
        "status: expected COMPLETED, found FAILED (step `store`: timeout: too slow)",
    )


def test_a_tool_without_a_mock_is_a_fault_even_if_the_run_went_well():
    remedy = "mock the step, or add `http` to `allow`"
    assert faults("{}", unmocked={"fetch": "http"}) == (
        f"unmocked_tool: step `fetch` calls `http`, which is not mocked ({remedy})",
    )


def test_a_verdict_as_plain_data():
    verdict = Verdict(name="c", line=7, faults=("x",), duration_ms=12.4, run=played().run)

    assert verdict.as_json() == {
        "name": "c", "line": 7, "passed": False, "duration_ms": 12, "status": "COMPLETED",
        "faults": ["x"], "events_file": None,
    }  # fmt: skip
