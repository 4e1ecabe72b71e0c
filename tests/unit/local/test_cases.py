import asyncio

import pytest

from noetl.dsl.documents.testcase import PlaybookTest
from noetl.dsl.parse import read
from noetl.local.cases import Subject, Trial, play
from noetl.local.journal import read as read_log
from noetl.local.virtual import VirtualLoop
from noetl.local.workshop import workshop
from tests.unit.local.stage import playbook

SUITE = """\
apiVersion: noetl.io/v2
kind: PlaybookTest
metadata: {name: t, path: t}
spec:
  file: t.yaml
  cases:
"""
WAITING = playbook("- step: ask\n  tool: {kind: wait, callback: true, timeout: 2d}")
PYTHON = playbook(
    """\
- step: start
  tool: {kind: python, input: {n: '{{ workload.n }}'}, code: 'result = n + 1'}
  set: {ctx.big: "{{ 'x' * 70000 }}"}"""
)


@pytest.fixture
def judge(tmp_path):
    def judged(text, *cases, **more):
        lines = "".join(f"    {line}\n" for case in cases for line in case.splitlines())
        found = read(SUITE + lines, PlaybookTest).spec.cases
        subject = Subject(file="t.yaml", text=text, folder=tmp_path)
        trials = [
            Trial(subject=subject, case=case, folder=tmp_path, log=tmp_path / f"{case.name}.jsonl")
            for case in found
        ]

        async def main():
            async with workshop(slots=2) as shop:
                return [await play(trial, shop, **more) for trial in trials]

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(main())

    return judged


def test_python_really_runs_and_large_values_can_be_asserted(judge):
    (verdict,) = judge(
        PYTHON,
        "- name: a\n  payload: {n: 1}\n"
        "  expect: {result: 2, assert: ['{{ ctx.big | length == 70000 }}', '{{ start == 2 }}']}",
    )

    assert verdict.faults == ()
    assert (verdict.line, verdict.events_file) == (7, None)


def test_every_case_begins_at_the_same_moment_and_alone(judge):
    case = "- name: {}\n  payload: {{n: 1}}"
    first, second = judge(PYTHON, case.format("a"), case.format("b"))

    assert first.run.started_at == second.run.started_at == "2026-01-01T00:00:00.000000Z"
    assert first.run.execution_id == second.run.execution_id


def test_a_wait_that_nobody_answers_ends_by_virtual_time(judge):
    (verdict,) = judge(WAITING, "- name: a\n  expect: {error: {step: ask}}")

    assert verdict.faults == ()
    assert round(verdict.duration_ms / 1000) == 2 * 86_400


def test_a_case_that_never_ends_is_given_up(judge, tmp_path):
    text = playbook("- step: ask\n  tool: {kind: wait, callback: true}")
    (verdict,) = judge(text, "- name: a\n  mocks: [{step: ask, hang: true}]", limit_s=0.5)

    assert verdict.faults == ("the case did not end within 0.5 s (waiting in: ask)",)
    assert verdict.run.status == "RUNNING"
    assert verdict.events_file == tmp_path / "a.jsonl"
    assert len(read_log(verdict.events_file)) == verdict.run.events


def test_a_start_that_is_refused_is_a_fault_without_a_log(judge):
    text = playbook(
        "- step: s\n  tool: {kind: noop}", inputs="{n: {type: integer, required: true}}"
    )
    (verdict,) = judge(text, "- name: a")

    assert verdict.faults[0].startswith("refused: ")
    assert (verdict.run, verdict.events_file) == (None, None)
