"""A run that is failing: what is open is closed, nothing begins, and the final step still runs."""

from __future__ import annotations

import pytest

from noetl.engine import events as ev
from noetl.engine.decide import decide
from tests.unit.engine.host import Host, boom, ok

TWO = """
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}
  - {step: a, tool: {kind: python, code: "1"}, SPEC next: {arcs: [{step: after}]}}
  - {step: b, tool: {kind: python, code: "1"}}
  - {step: after, tool: {kind: python, code: "1"}}
"""


def claimed(host: Host) -> None:
    host.settle()
    for command in host.open:
        named = {"step": command.step, "command_key": command.command_key, "attempt": 1}
        host.append(
            ev.CommandClaimed(**named, worker_id="w"),
            ev.CommandStarted(**named),
        )
    host.open.clear()


def done(step: str, **more: object) -> ev.CallDone:
    return ev.CallDone(step=step, command_key=f"{step}#1", attempt=1, result=1, **more)


def failed(step: str) -> ev.CallError:
    return ev.CallError(step=step, command_key=f"{step}#1", attempt=1, error=boom(step))


def test_reports_of_a_failure_and_a_success_in_one_batch_end_the_run() -> None:
    for batch in ([failed("b"), done("a")], [done("a"), failed("b")]):
        host = Host(TWO.replace("SPEC", ""))
        claimed(host)
        host.post(*batch)
        assert host.state.terminal == "FAILED"
        assert host.state.steps["a"].status == "COMPLETED"
        assert "step.enter(after)" not in host.rows


def test_a_visit_that_had_only_begun_is_cancelled() -> None:
    host = Host(TWO.replace("SPEC", ""))
    claimed(host)
    host.append(failed("b"), done("a"))
    while host.state.failure is None:
        host.append(*decide(host.state))
    host.settle()
    assert host.state.terminal == "FAILED"
    body = """
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}
  - {step: a, loop: {in: "{{ nothing.here }}", iterator: i}, tool: {kind: python, code: "1"}}
  - {step: b, tool: {kind: python, code: "1"}}
"""
    host = Host(body).run()
    assert (host.state.terminal, host.state.steps["b"].status) == ("FAILED", "CANCELLED")
    assert host.calls == []


def test_a_limit_that_passes_while_the_run_is_failing_cancels_and_follows_no_arc() -> None:
    host = Host(TWO.replace("SPEC", "spec: {timeout: 5m},"))
    claimed(host)
    host.post(failed("b"))
    assert host.state.terminal is None
    host.fire("step_timeout:a#1")
    assert host.state.terminal == "FAILED"
    assert host.rows[-2:] == ["command.cancelled(a)", "playbook.failed"]


def test_a_limit_that_passed_with_the_failure_still_counts() -> None:
    for batch in (["step_timeout:a#1"], ["execution_timeout:run"]):
        host = Host("executor: {spec: {timeout: 1h}}" + TWO.replace("SPEC", "spec: {timeout: 5m},"))
        claimed(host)
        host.append(failed("b"), *(ev.TimerFired(timer_key=key) for key in batch))
        host.settle()
        assert host.state.terminal == "FAILED"


CURSOR = """
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: rows}, {step: b}]}
  - step: rows
    loop:
      iterator: i
      cursor: {kind: sqlite, path: jobs.db, claim: select 1}
      spec: {mode: cursor, frame: {max_rows: 2, row_concurrency: 2}}
    tool: {kind: python, code: "1"}
    spec: {timeout: 5m}
    next: {arcs: [{step: late, on: error}]}
  - {step: b, tool: {kind: python, code: "1"}}
  - {step: late}
"""


def rows_claimed() -> Host:
    host = Host(CURSOR, lambda command: ok({"rows": [1, 2]} if command.is_claim else 1))
    host.settle()
    host.report(next(command for command in host.open if command.is_claim))
    host.open = [command for command in host.open if not command.is_claim]
    return host


def test_a_step_timeout_of_a_cursor_ends_it_with_its_frames() -> None:
    host = rows_claimed()
    host.fire("step_timeout:rows#1")
    assert host.state.steps["rows"].status == "FAILED"
    assert host.state.agenda == {}
    assert "frame:rows#1/f0" not in host.state.timers
    assert host.run().state.terminal == "COMPLETED"
    assert host.state.steps["late"].status == "COMPLETED"


def test_a_cursor_whose_run_is_failing_takes_the_timers_of_its_frames_with_it() -> None:
    host = rows_claimed()
    for command in host.open:
        if command.step == "rows":
            named = {"step": "rows", "command_key": command.command_key, "attempt": 1}
            host.append(ev.CommandClaimed(**named, worker_id="w"))
    host.append(ev.CommandClaimed(step="b", command_key="b#1", worker_id="w", attempt=1))
    host.post(failed("b"))
    host.post(ev.TimerFired(timer_key="frame:rows#1/f0"))
    assert host.state.terminal is None
    for index in (0, 1):
        key = f"rows#1/f0/i{index}"
        host.post(ev.CallDone(step="rows", command_key=key, attempt=1))
    assert (host.state.terminal, host.state.timers) == ("FAILED", {})
    assert "frame.committed(rows)" not in host.rows


def test_a_frame_that_expires_with_the_report_of_its_row_is_cancelled_once() -> None:
    host = rows_claimed()
    host.post(
        ev.CallDone(step="rows", command_key="rows#1/f0/i0", attempt=1),
        ev.TimerFired(timer_key="frame:rows#1/f0"),
    )
    closed = [row for row in host.rows if row.startswith("command.c") and "rows/0" in row]
    assert closed == ["command.completed(rows/0)"]


@pytest.mark.parametrize(
    ("tool", "rest"),
    [
        ('{kind: python, code: "1"}', ""),
        ("{kind: wait, seconds: 5}", ""),
        ('{kind: python, code: "1"}', "loop: {in: 3, iterator: i}, "),
        ('{kind: python, code: "1"}', "spec: {timeout: 5m}, "),
    ],
)
def test_the_final_step_runs_in_full_after_a_failure(tool: str, rest: str) -> None:
    body = f"""
executor: {{spec: {{final_step: clean}}}}
workflow:
  - {{step: start, tool: {{kind: python, code: "1"}}}}
  - {{step: clean, {rest}tool: {tool}, set: {{ctx.told: "{{{{ execution.outcome.status }}}}"}}}}
"""
    host = Host(body, lambda command: boom() if command.step == "start" else ok(1)).run()
    if "wait:clean#1" in host.state.timers:
        host.fire("wait:clean#1")
    assert (host.state.terminal, host.state.ctx) == ("FAILED", {"told": "FAILED"})
    assert host.state.steps["clean"].status == "COMPLETED"
    assert host.state.failed_steps == ["start"]


def test_the_final_step_has_its_limit_and_its_admission() -> None:
    body = """
executor: {spec: {final_step: clean}}
workflow:
  - {step: start}
  - {step: clean, tool: {kind: python, code: "1"}, spec: SPEC, next: {arcs: [{step: start}]}}
"""
    host = Host(body.replace("SPEC", "{timeout: 5m}"))
    host.settle()
    host.fire("step_timeout:clean#1")
    assert (host.state.terminal, host.state.failure.code) == ("FAILED", "step_timeout")
    host = Host(body.replace("SPEC", "{policy: {admit: false}}")).run()
    assert (host.state.terminal, host.rows.count("step.enter(start)")) == ("COMPLETED", 1)
    assert "step.skipped(clean)" in host.rows
    host = Host(body.replace("SPEC", "{}")).run()
    assert (host.state.terminal, host.rows.count("step.enter(start)")) == ("COMPLETED", 1)


def test_the_limit_of_visits_leaves_room_for_the_final_step() -> None:
    body = """
executor: {spec: {final_step: clean, policy: {limits: {max_steps: 1}}}}
workflow:
  - {step: start}
  - {step: clean}
"""
    assert Host(body).run().state.terminal == "COMPLETED"


def test_a_report_that_no_wait_expects_changes_nothing() -> None:
    host = Host("workflow:\n  - {step: start, tool: {kind: wait, seconds: 5}}\n").run()
    host.post(done("start"))
    assert host.state.terminal is None
    host.fire("wait:start#1")
    assert host.state.result["until"]
    host = Host(TWO.replace("SPEC", ""))
    claimed(host)
    host.append(ev.CommandClaimed(step="a", command_key="a#1", worker_id="thief", attempt=1))
    assert host.state.commands["a#1"].worker_id == "w"


def test_a_loop_tells_its_errors_in_the_order_of_its_items() -> None:
    body = """
workflow:
  - step: start
    loop: {in: 3, iterator: i, spec: {mode: parallel, max_in_flight: 3}}
    tool: {kind: python, code: "1"}
    spec: {policy: {failure: {mode: best_effort}}}
"""
    host = Host(body, lambda command: ok(1) if command.index == 1 else boom())
    host.settle()
    while host.open:
        host.report(host.open.pop())
    assert [told["index"] for told in host.state.steps["start"].result.errors] == [0, 2]


def test_a_cursor_that_cannot_claim_has_failed_whatever_its_rows_gave() -> None:
    body = """
workflow:
  - step: start
    loop:
      iterator: i
      cursor: {kind: sqlite, path: jobs.db, claim: select 1}
      spec: {mode: cursor, frame: {max_rows: 2, max_attempts: 1}}
    tool: {kind: python, code: "1"}
    spec: {policy: {failure: {mode: best_effort}}}
"""

    def tools(command: ev.CommandIssued) -> object:
        if command.is_claim:
            return ok({"rows": [1, 2]}) if command.frame == 0 else boom("no database")
        return ok(1) if command.index else boom("a row")

    host = Host(body, tools).run()
    assert (host.state.terminal, host.state.failure.message) == ("FAILED", "no database")


def test_an_ending_loop_waits_for_what_is_still_running() -> None:
    body = """
workflow:
  - step: start
    loop: {in: 4, iterator: i, spec: {mode: parallel, max_in_flight: 3}}
    tool: {kind: python, code: "1"}
"""
    host = Host(body)
    host.settle()
    keys = [command.command_key for command in host.open]
    host.append(
        *(
            ev.CommandClaimed(step="start", command_key=key, worker_id="w", attempt=1)
            for key in keys
        ),
        ev.ExecutionPaused(),
        ev.CallDone(step="start", command_key=keys[0], attempt=1, result="a"),
        ev.CallError(step="start", command_key=keys[1], attempt=1, error=boom()),
        ev.ExecutionResumed(),
    )
    host.settle()
    assert "loop.done(start)" not in host.rows
    host.post(ev.CallDone(step="start", command_key=keys[2], attempt=1, result="c"))
    assert host.state.terminal == "FAILED"
    assert host.state.steps["start"].result.data == ["a", None, "c", None]
