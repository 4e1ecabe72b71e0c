import asyncio

import pytest

from noetl.api.problems import Refused
from noetl.engine import events as ev
from noetl.local.journal import Journal, LogUnwritable
from noetl.local.launch import Job, check_same, digest_of, finish, root_of
from noetl.local.run import Stack
from noetl.local.watch import Watch
from tests.unit.local.stage import Stage, playbook
from tests.unit.local.story import log, started


@pytest.fixture
def stage(tmp_path):
    def make(workflow, mocks, **more):
        return Stage(playbook(workflow, **more), mocks, tmp_path)

    return make


def test_a_run_comes_to_its_end_and_is_told_as_json(stage):
    finished, _, _ = stage(
        "- step: start\n  tool: {kind: python, code: '1'}", "- {step: start, return: {n: 1}}"
    ).play()

    assert finished.as_json() == {
        "execution_id": finished.run.execution_id,
        "status": "COMPLETED",
        "result": {"n": 1},
        "error": None,
        "steps": {
            "start": {
                "status": "COMPLETED", "runs": 1, "attempts": 1, "duration_ms": 0,
                "result": {"n": 1}, "error": None,
            },
        },
        "duration_ms": 0,
        "events_file": None,
    }  # fmt: skip


def test_time_that_is_up_cancels_the_run(stage):
    finished, _, _ = stage(
        "- step: start\n  tool: {kind: python, code: '1'}", "- {step: start, return: 1, delay: 1h}"
    ).play(timeout_s=60)

    assert (finished.ending, finished.run.status) == ("timeout", "CANCELLED")
    assert finished.run.reason == "not done within 60 s"
    assert finished.run.steps["start"].status == "CANCELLED"


def test_every_pool_that_a_step_names_has_a_worker(stage):
    finished, watch, _ = stage(
        "- step: start\n  tool: {kind: python, code: '1'}\n  spec: {pool: gpu}\n"
        "  next: {arcs: [{step: b}]}\n"
        "- step: b\n  tool: {kind: python, code: '1'}",
        "- {step: start, return: 1}\n- {step: b, return: 2}",
    ).play()

    assert finished.run.result == 2
    assert list(watch.pools) == ["gpu", "shared"]


def test_a_lost_worker_is_replaced_and_the_work_done_again(stage):
    finished, watch, mocks = stage(
        "- step: start\n  tool: {kind: python, code: '1'}",
        "- {step: start, sequence: [{crash: true}, {return: 1}]}",
    ).play()

    assert (finished.run.status, finished.run.steps["start"].attempts) == ("COMPLETED", 2)
    assert mocks.calls == {"start": 2}
    assert [type(item.event) for item in watch.events if isinstance(item.event, ev.CommandLost)]


def test_large_results_are_shown_whole_up_to_a_limit(stage):
    big = "x" * 100_000
    mocks = f"- {{step: start, return: {{t: {big}}}}}"
    made = stage("- step: start\n  tool: {kind: python, code: '1'}", mocks)

    assert made.play()[0].run.result == {"t": big}
    shown = made.play(most_output=1000)[0].run.result
    assert shown["ref"].startswith("noetl://execution/")


def test_a_refused_start_is_raised_as_it_is(stage):
    made = stage(
        "- step: start\n  tool: {kind: python, code: '1'}",
        "- {step: start, return: 1}",
        inputs="{n: {type: integer, required: true}}",
    )

    with pytest.raises(Refused) as caught:
        made.play()
    assert caught.value.problem.status == 422


def test_a_child_that_nobody_awaits_is_waited_for_all_the_same(stage, tmp_path):
    (tmp_path / "child.yaml").write_text(
        playbook("- step: start\n  tool: {kind: wait, seconds: 60}", path="t/child")
    )
    _, watch, _ = stage(
        "- step: start\n  tool: {kind: playbook, path: t/child, wait: false}",
        "- {step: none, return: 1}",
    ).play()

    assert sorted(run.path for run in watch.runs.by_id.values()) == ["t/child", "t/main"]
    assert [run.status for run in watch.runs.by_id.values()] == ["COMPLETED", "COMPLETED"]


def test_a_log_that_cannot_be_written_ends_the_run(tmp_path):
    (tmp_path / "file").write_text("")

    async def main():
        watch = Watch(Journal(tmp_path / "file" / "log.jsonl"))
        with pytest.raises(LogUnwritable):
            watch.commit(log(started()))
        running = Stack(None, watch, None)
        with pytest.raises(LogUnwritable):
            await finish(running, Job(file="t", text=""), asyncio.Event())

    asyncio.run(main())


def test_the_newest_run_that_is_nobodys_child_is_the_one_to_go_on_with():
    child = started("9", parent_execution_id="8", parent_key="x")
    events = [*log(started("7")), *log(started("8"), run="8"), *log(child, run="9")]

    assert root_of(events).execution_id == "8"


def test_a_log_knows_its_playbook():
    root = started(trigger={"kind": "local", "file": "t.yaml", "digest": digest_of("text")})
    check_same(root, "t.yaml", "text")

    with pytest.raises(Exception, match="is not the playbook that the log was made with"):
        check_same(root, "t.yaml", "text ")
