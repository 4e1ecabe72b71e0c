"""What waits without a slot: children, waits, callbacks, retries of the engine's own tools."""

from __future__ import annotations

import json

import pytest

from noetl.engine import events as ev
from noetl.engine.moments import later
from noetl.engine.rows import from_row, to_row
from noetl.engine.why import why
from tests.unit.engine.host import Host, boom

CHILD = """
workflow:
  - step: start
    tool: {kind: playbook, path: demo/child, input: {n: "{{ workload.n }}"}}
    next: {arcs: [{step: after}]}
  - {step: after, tool: {kind: noop, result: "{{ start }}"}}
workload: {n: 3}
"""


def requested(host: Host) -> list[ev.ExecutionRequested]:
    return [item.event for item in host.log if isinstance(item.event, ev.ExecutionRequested)]


def test_a_sub_playbook_gives_the_rows_of_the_chapter_and_its_result() -> None:
    host = Host(CHILD).run()
    (asked,) = requested(host)
    assert (asked.path, asked.workload, asked.pool, asked.child_key) == (
        "demo/child", {"n": 3}, "shared", "start#1/c0",
    )  # fmt: skip
    assert host.state.commands["start#1"].pool is None
    assert host.open == []
    host.returns("start#1/c0", {"sum": 6})
    assert host.rows[1:8] == [
        "step.enter(start)", "command.issued(start)", "execution.requested(start)",
        "command.parked(start)", "execution.returned", "command.completed(start)",
        "step.exit(start)",
    ]  # fmt: skip
    assert host.state.terminal == "COMPLETED"
    assert host.state.steps["start"].result.child_execution_id == "77"
    assert host.state.steps["after"].result.data == {"sum": 6}


def test_a_child_that_fails_fails_its_step() -> None:
    host = Host(CHILD).run().returns("start#1/c0", error=boom("no"))
    assert host.state.terminal == "FAILED"
    assert host.state.failure.kind == "child_failed"
    assert (host.state.failure.code, host.state.failure.message) == ("python_error", "no")


def test_a_child_that_nobody_waits_for_is_done_when_it_is_started() -> None:
    body = CHILD.replace("path: demo/child,", "path: demo/child, wait: false,")
    host = Host(body).run()
    assert [item.is_awaited for item in requested(host)] == [False]
    host.post(
        ev.ExecutionReturned(child_key="start#1/c0", child_execution_id="77", outcome="STARTED")
    )
    assert host.state.steps["start"].result.data == {"execution_id": "77", "status": "started"}
    assert host.state.terminal == "COMPLETED"


def test_several_children_run_together_and_return_in_their_order() -> None:
    body = """
workflow:
  - step: start
    tool: {kind: playbooks, items: [{path: a, input: {x: 1}}, {path: "b@2"}]}
"""
    host = Host(body).run()
    assert [(item.path, item.version) for item in requested(host)] == [("a", None), ("b", "2")]
    host.returns("start#1/c1", "second")
    assert host.state.terminal is None
    host.returns("start#1/c0", "first")
    assert host.state.result == ["first", "second"]


def test_one_failed_child_of_several_fails_the_task_after_the_others_ended() -> None:
    body = """
workflow:
  - step: start
    tool: {kind: playbooks, items: [{path: a}, {path: b}]}
"""
    host = Host(body).run().returns("start#1/c0", error=boom("first"))
    assert host.state.terminal is None
    host.returns("start#1/c1", 2)
    assert (host.state.terminal, host.state.failure.message) == ("FAILED", "first")
    good = Host(body.replace("items:", "best_effort: true, items:")).run()
    good.returns("start#1/c0", error=boom("first")).returns("start#1/c1", 2)
    assert (good.state.terminal, good.state.result) == ("COMPLETED", [None, 2])


def test_the_timeout_of_a_child_fails_the_task_and_a_later_return_changes_nothing() -> None:
    body = CHILD.replace("path: demo/child,", "path: demo/child, timeout: 30s,")
    host = Host(body).run()
    assert host.state.timers["park_deadline:start#1"].kind == "park_deadline"
    host.fire("park_deadline:start#1")
    assert (host.state.terminal, host.state.failure.code) == ("FAILED", "child_timeout")
    before = host.state.failure
    host.returns("start#1/c0", 1)
    assert (host.state.failure, host.state.children) == (before, {})


def test_rules_of_a_child_are_applied_by_the_engine_with_a_durable_retry() -> None:
    body = """
workflow:
  - step: start
    tool:
      kind: playbook
      path: demo/child
      set: {ctx.seen: "{{ output.data }}"}
      spec: {policy: {rules: [
        {when: "{{ output.status == 'error' }}",
         then: {do: retry, attempts: 2, delay: 5, jitter: 0}}]}}
"""
    host = Host(body).run().returns("start#1/c0", error=boom())
    assert host.rows[-2:] == ["command.parked(start)", "timer.set(start)"]
    host.fire("retry:start#1")
    assert [item.child_key for item in requested(host)] == ["start#1/c0", "start#1/c0~2"]
    host.returns("start#1/c0~2", 9)
    assert (host.state.terminal, host.state.ctx, host.state.result) == (
        "COMPLETED", {"seen": 9}, 9,
    )  # fmt: skip
    again = Host(body).run().returns("start#1/c0", error=boom())
    again.fire("retry:start#1").returns("start#1/c0~2", error=boom("twice"))
    assert (again.state.terminal, again.state.failure.message) == ("FAILED", "twice")


def test_a_loop_over_children_keeps_their_order_and_its_limit() -> None:
    body = """
workflow:
  - step: start
    loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, max_in_flight: 2}}
    tool: {kind: playbook, path: demo/child, input: {n: "{{ n }}"}}
"""
    host = Host(body).run()
    assert [item.workload for item in requested(host)] == [{"n": 1}, {"n": 2}]
    host.returns("start#1/i1/c0", "b").returns("start#1/i0/c0", "a").returns("start#1/i2/c0", "c")
    assert host.state.result == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("wait", "due_ms"),
    [("seconds: 90", 90_000), ("seconds: 2m", 120_000), ('seconds: "{{ workload.s }}"', 7_000)],
)
def test_a_wait_is_a_timer_and_no_worker(wait: str, due_ms: int) -> None:
    host = Host(
        f"workload: {{s: 7}}\nworkflow:\n  - {{step: start, tool: {{kind: wait, {wait}}}}}\n"
    )
    host.run()
    assert host.open == []
    timer = host.state.timers["wait:start#1"]
    parked = next(item for item in host.log if isinstance(item.event, ev.CommandParked))
    assert timer.due_at == later(parked.created_at, due_ms)
    host.fire("wait:start#1")
    assert host.state.terminal == "COMPLETED"
    assert host.state.result == {"until": timer.due_at}


def test_a_wait_until_a_time_that_has_passed_is_due_at_once() -> None:
    host = Host('workflow:\n  - {step: start, tool: {kind: wait, until: "2020-01-01T00:00:00Z"}}\n')
    host.run()
    assert host.state.timers["wait:start#1"].due_at <= host.state.now
    host = Host('workflow:\n  - {step: start, tool: {kind: wait, until: "tomorrow"}}\n').run()
    assert (host.state.terminal, host.state.failure.code) == ("FAILED", "invalid_config")


def test_a_callback_ends_its_wait_once() -> None:
    host = Host("workflow:\n  - {step: start, tool: {kind: wait, callback: true, timeout: 1h}}\n")
    host.run()
    assert [item["code"] for item in why(host.state)] == ["callback"]
    assert "park_deadline:start#1" in host.state.timers
    done = ev.CallDone(step="start", command_key="start#1", attempt=1, result={"ok": True})
    host.post(done)
    assert (host.state.terminal, host.state.result) == ("COMPLETED", {"ok": True})
    late = Host("workflow:\n  - {step: start, tool: {kind: wait, callback: true, timeout: 1h}}\n")
    late.run().fire("park_deadline:start#1")
    assert (late.state.terminal, late.state.failure.code) == ("FAILED", "callback_timeout")


def parked(**more: object) -> ev.CommandParked:
    return ev.CommandParked(
        step="start", command_key="start#1", attempt=1, checkpoint={"task": "b"}, **more
    )


PIPELINE = """
workflow:
  - step: start
    tool:
      - {name: a, kind: python, code: "1"}
      - {name: b, kind: playbook, path: demo/child}
"""


def test_a_child_in_a_pipeline_is_asked_for_and_its_outcome_handed_over() -> None:
    host = Host(PIPELINE)
    host.settle()
    (command,) = host.open
    host.open.clear()
    host.append(
        ev.CommandClaimed(step="start", command_key="start#1", worker_id="w", attempt=1),
        ev.CommandStarted(step="start", command_key="start#1", attempt=1),
    )
    request = {"children": [{"path": "demo/child", "workload": {"x": 1}}], "many": False,
               "wait": True, "best_effort": False, "timeout_s": 60}  # fmt: skip
    host.post(parked(reason="child", task="b", request=request))
    (asked,) = requested(host)
    assert (asked.workload, asked.child_key) == ({"x": 1}, "start#1/c0")
    host.returns("start#1/c0", 5)
    resumed = host.log[-1].event
    assert isinstance(resumed, ev.CommandResumed)
    assert (resumed.attempt, resumed.checkpoint) == (2, {"task": "b"})
    assert resumed.awaited == {"execution_id": "77", "status": "ok", "data": 5}
    assert "park_deadline:start#1" not in host.state.timers
    assert host.state.commands["start#1"].status == "PENDING"
    assert command.kind == "python"


def test_a_wait_and_a_callback_in_a_pipeline_come_back_with_their_outcome() -> None:
    host = Host(PIPELINE)
    host.settle()
    host.append(ev.CommandClaimed(step="start", command_key="start#1", worker_id="w", attempt=1))
    host.post(parked(reason="retry", task="b", request={"wait_ms": 5_000}))
    host.fire("wait:start#1")
    assert host.log[-1].event.awaited["status"] == "ok"
    other = Host(PIPELINE)
    other.settle()
    other.append(ev.CommandClaimed(step="start", command_key="start#1", worker_id="w", attempt=1))
    other.post(parked(reason="callback", task="b", request={"timeout_s": 5}))
    other.post(ev.CallDone(step="start", command_key="start#1", attempt=1, result=8))
    assert other.log[-1].event.awaited == {"status": "ok", "data": 8}


def test_a_bad_payload_of_a_child_is_a_failure_of_its_step() -> None:
    items = json.dumps([{"input": {}}])
    tool = '{kind: playbooks, items: "{{ workload.i }}"}'
    host = Host(f"workload: {{i: {items}}}\nworkflow:\n  - {{step: start, tool: {tool}}}\n").run()
    assert (host.state.terminal, host.state.failure.code) == ("FAILED", "invalid_config")


def test_a_child_of_a_pipeline_is_read_like_any_other_and_its_event_can_be_stored() -> None:
    host = Host(PIPELINE)
    host.settle()
    host.append(ev.CommandClaimed(step="start", command_key="start#1", worker_id="w", attempt=1))
    children = [{"path": "demo/child", "version": 3}, {"path": "demo/other@2"}]
    request = {"children": children, "many": True, "wait": True}
    host.post(parked(reason="child", task="b", request=request))
    asked = requested(host)
    assert [(item.path, item.version) for item in asked] == [
        ("demo/child", "3"), ("demo/other", "2"),
    ]  # fmt: skip
    for item in host.log:
        assert from_row(json.loads(json.dumps(to_row(item)))) == item
