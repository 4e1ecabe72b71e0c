"""Timeouts of steps and runs, pauses, queues, and the bounds of a run."""

from __future__ import annotations

from noetl.engine import events as ev
from noetl.engine.moments import between_ms
from noetl.engine.status import current_steps, progress_of, status_of
from noetl.engine.why import why
from tests.unit.engine.host import Host, boom, ok

SLOW = """
workflow:
  - step: start
    tool: {kind: python, code: "1"}
    spec: {timeout: 5m}
    next: {arcs: [{step: late, on: error}, {step: good}]}
  - {step: late, tool: {kind: noop, result: "{{ start._error.code }}"}}
  - {step: good}
"""


def test_a_step_timeout_cancels_its_commands_and_an_arc_may_handle_it() -> None:
    host = Host(SLOW)
    host.settle()
    issued = host.state.commands["start#1"].issued
    assert issued.deadline == host.state.timers["step_timeout:start#1"].due_at
    host.fire("step_timeout:start#1")
    assert "command.cancelled(start)" in host.rows
    assert host.state.terminal == "COMPLETED"
    assert host.state.steps["start"].result.error["code"] == "step_timeout"
    assert host.state.steps["late"].result.data == "step_timeout"
    late = ev.CallDone(step="start", command_key="start#1", attempt=1, result=1)
    host.post(late)
    assert host.state.steps["good"].status == "SKIPPED"


def test_a_step_that_ends_in_time_takes_its_timer_with_it() -> None:
    host = Host(SLOW).run()
    assert (host.state.terminal, host.state.timers) == ("COMPLETED", {})
    assert "timer.cancelled" in host.rows


def test_a_step_timeout_of_a_loop_keeps_the_results_so_far() -> None:
    body = """
workflow:
  - step: start
    loop: {in: 3, iterator: i, spec: {mode: parallel, max_in_flight: 2}}
    tool: {kind: python, code: "1"}
    spec: {policy: {lifecycle: {timeout_s: 60}}}
"""
    host = Host(body)
    host.settle()
    host.report(host.open.pop(0))
    host.fire("step_timeout:start#1")
    assert host.state.terminal == "FAILED"
    assert host.state.steps["start"].result.data == [1, None, None]
    assert host.rows.count("command.cancelled(start/2)") == 1


def test_a_deadline_counts_from_the_start_of_the_run() -> None:
    body = """
workflow:
  - step: start
    tool: {kind: wait, seconds: 50}
    next: {arcs: [{step: b}]}
  - {step: b, tool: {kind: python, code: "1"}, spec: {policy: {lifecycle: {deadline_s: 60}}}}
"""
    host = Host(body).run().fire("wait:start#1")
    due = host.state.timers["step_timeout:b#1"].due_at
    assert between_ms(host.state.started_at, due) == 60_000


def test_an_execution_timeout_ends_the_run() -> None:
    body = """
executor: {spec: {timeout: 1h}}
workflow:
  - {step: start, tool: {kind: python, code: "1"}}
"""
    host = Host(body)
    host.settle()
    assert host.state.timers["execution_timeout:run"].kind == "execution_timeout"
    host.fire("execution_timeout:run")
    assert (host.state.terminal, host.state.failure.code) == ("FAILED", "execution_timeout")
    assert Host(body).run().state.terminal == "COMPLETED"


def test_a_pause_holds_everything_and_extends_limits() -> None:
    host = Host(SLOW)
    host.settle()
    due = host.state.timers["step_timeout:start#1"].due_at
    host.post(ev.ExecutionPaused(by="me", reason="lunch"))
    assert status_of(host.state) == "PAUSED"
    assert [item["code"] for item in why(host.state)] == ["paused", "unclaimed", "timer"]
    host.report(host.open.pop(0))
    assert host.log[-1].event.__class__ is ev.CallDone
    host.passed_ms += 600_000
    host.post(ev.ExecutionResumed(by="me"))
    set_again = [item.event for item in host.log if isinstance(item.event, ev.TimerSet)][1]
    assert between_ms(due, set_again.due_at) >= 600_000
    assert host.state.terminal == "COMPLETED"


def test_a_queued_run_begins_when_it_is_admitted() -> None:
    queued = Host("workflow:\n  - {step: start, tool: {kind: python, code: '1'}}\n", is_queued=True)
    queued.settle()
    assert (queued.rows, status_of(queued.state)) == (
        ["playbook.started", "execution.queued"], "PENDING",
    )  # fmt: skip
    assert why(queued.state) == [{"code": "concurrency_queue", "concurrency_key": None}]
    queued.post(ev.ExecutionAdmitted())
    assert status_of(queued.state) == "RUNNING"
    assert queued.run().state.terminal == "COMPLETED"


def test_the_status_and_the_progress_of_a_run_are_told_in_one_place() -> None:
    host = Host(SLOW)
    assert status_of(host.state) == "RUNNING"
    host.settle()
    assert current_steps(host.state) == ("start",)
    host.run()
    assert progress_of(host.state) == {
        "total_steps": 2, "completed_steps": 2, "running_steps": 0, "failed_steps": 0,
        "skipped_steps": 1,
    }  # fmt: skip
    assert (status_of(host.state), current_steps(host.state)) == ("COMPLETED", ())


def test_a_run_with_too_many_events_ends() -> None:
    body = """
executor: {spec: {policy: {limits: {max_events: 20}}}}
workflow:
  - step: start
    next: {arcs: [{step: start}]}
"""
    host = Host(body).run()
    assert (host.state.terminal, host.state.failure.code) == ("FAILED", "event_limit")


def test_ctx_holds_so_many_keys_and_no_more() -> None:
    body = """
workflow:
  - {step: start, tool: {kind: python, code: "1"}}
"""
    many = {f"k{number}": 1 for number in range(10_001)}
    host = Host(body, lambda _: ok(1, ctx=many)).run()
    assert (host.state.terminal, host.state.failure.code) == ("FAILED", "ctx_limit")
    few = {f"k{number}": 1 for number in range(10_000)}
    assert Host(body, lambda _: ok(1, ctx=few)).run().state.terminal == "COMPLETED"


def test_a_result_that_breaks_its_schema_fails_the_run() -> None:
    body = """
output: {value: {n: "{{ start.n }}"}, schema: {properties: {n: {type: integer}}}}
workflow:
  - {step: start, tool: {kind: python, code: "1"}}
"""
    host = Host(body, lambda _: ok({"n": "many"})).run()
    assert (host.state.terminal, host.state.failure.code) == ("FAILED", "output_schema")
    assert "/n" in host.state.failure.message
    assert Host(body, lambda _: ok({"n": 3})).run().state.result == {"n": 3}


def test_an_admission_or_a_limit_without_a_value_fails_its_step() -> None:
    for spec in ('{policy: {admit: "{{ nothing.here }}"}}', '{timeout: "{{ nothing.here }}"}'):
        body = f"""
workflow:
  - {{step: start, tool: {{kind: python, code: "1"}}, spec: {spec}}}
"""
        host = Host(body).run()
        assert (host.state.terminal, host.state.failure.kind) == ("FAILED", "template")
        assert host.state.failed_steps == ["start"]


def test_an_unhandled_failure_cancels_what_waits() -> None:
    body = """
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}
  - {step: a, tool: {kind: python, code: "1"}}
  - {step: b, tool: {kind: wait, seconds: 3600}}
"""
    host = Host(body, lambda _: boom()).run()
    assert host.state.terminal == "FAILED"
    assert host.state.steps["b"].status == "CANCELLED"
