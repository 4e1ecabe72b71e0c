"""Runs that go on: after a pause, and as a fork of a run that was in the middle of something."""

from __future__ import annotations

import json

import pytest

from noetl.engine import events as ev
from noetl.engine.moments import between_ms
from tests.unit.engine.forking import snapshot_at
from tests.unit.engine.host import Host, boom, ok

LIMITED = """
executor: {spec: {timeout: 1h}}
workflow:
  - step: start
    tool: {kind: python, code: "1"}
    spec: {timeout: 5m}
    next: {arcs: [{step: more}]}
  - {step: more, tool: {kind: python, code: "1"}, spec: {timeout: 5m}}
"""
NAMED = {"step": "start", "command_key": "start#1", "attempt": 1}
HOUR_MS = 3_600_000


def due(host: Host, key: str) -> str:
    return host.state.timers[key].due_at


def paused() -> Host:
    host = Host(LIMITED)
    host.settle()
    host.open.clear()
    host.append(ev.CommandClaimed(**NAMED, worker_id="w"))
    return host.post(ev.ExecutionPaused(by="me"))


def test_limits_are_extended_also_when_a_command_parked_during_the_pause() -> None:
    host = paused()
    before = due(host, "step_timeout:start#1")
    host.post(ev.CommandParked(**NAMED, reason="retry", delay_ms=5_000))
    host.passed_ms += HOUR_MS
    host.post(ev.ExecutionResumed(by="me"))
    assert between_ms(before, due(host, "step_timeout:start#1")) >= HOUR_MS
    assert "retry:start#1" in host.state.timers
    assert host.state.agenda == {}


def test_a_limit_that_begins_after_the_pause_is_not_extended_by_it() -> None:
    host = paused()
    host.post(ev.CallDone(**NAMED))
    host.passed_ms += HOUR_MS
    host.post(ev.ExecutionResumed(by="me"))
    assert between_ms(host.state.now, due(host, "step_timeout:more#1")) <= 300_000


def test_a_limit_that_fires_together_with_the_end_of_a_pause_leaves_nothing_undone() -> None:
    host = Host(LIMITED.replace("executor: {spec: {timeout: 1h}}", ""))
    host.settle()
    host.post(ev.ExecutionPaused(by="me"))
    host.post(ev.ExecutionResumed(by="me"), ev.TimerFired(timer_key="step_timeout:start#1"))
    assert (host.state.terminal, host.state.failure.code) == ("FAILED", "step_timeout")


# ---------------------------------------------------------------------------- forks


def forked(body: str, source: Host, seq: int, tools: object = None) -> Host:
    host = Host(body, tools, forked_from={"execution_id": "1", "seq": seq})
    snapshot = json.loads(json.dumps(snapshot_at(source.state.program, source.log, seq)))
    host.append(ev.StateRestored(source={"execution_id": "1"}, snapshot=snapshot))
    return host


ONE = "workflow:\n  - {step: start, tool: {kind: python, code: '1'}}\n"


def test_a_fork_of_a_run_that_was_queued_begins() -> None:
    source = Host(ONE, is_queued=True)
    source.settle()
    for seq in (1, 2):
        assert forked(ONE, source, seq).run().calls == ["start#1"]


def test_a_fork_of_a_run_that_has_ended_goes_on_just_before_its_end() -> None:
    source = Host(ONE).run()
    fork = forked(ONE, source, len(source.log)).run()
    assert (fork.state.terminal, fork.state.result, fork.calls) == ("COMPLETED", 1, [])
    assert isinstance(fork.last, ev.PlaybookCompleted)
    cancelled = Host(ONE)
    cancelled.settle()
    cancelled.post(ev.PlaybookCancelled(by="me"))
    fork = forked(ONE, cancelled, len(cancelled.log)).run()
    assert (fork.state.terminal, fork.calls) == ("COMPLETED", ["start#1"])


def test_a_fork_of_a_run_that_is_failing_issues_nothing() -> None:
    body = """
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}
  - {step: a, tool: {kind: python, code: "1"}}
  - {step: b, tool: {kind: python, code: "1"}}
"""
    source = Host(body, lambda _: boom())
    source.settle()
    source.append(ev.CommandClaimed(step="b", command_key="b#1", worker_id="w", attempt=1))
    source.report(source.open.pop(0))
    assert source.state.terminal is None
    fork = forked(body, source, len(source.log)).run()
    assert (fork.state.terminal, fork.calls) == ("FAILED", [])
    assert fork.state.steps["b"].status == "CANCELLED"


CURSOR = """
workflow:
  - step: start
    loop:
      iterator: i
      cursor: {kind: sqlite, path: jobs.db, claim: select 1}
      spec: {mode: cursor, max_in_flight: 2, frame: {max_rows: 2, row_concurrency: 2}}
    tool: {kind: python, code: "1"}
    spec: {timeout: 5m, policy: {lifecycle: {deadline_s: 7200}}}
"""


def rows(command: ev.CommandIssued) -> object:
    if command.is_claim:
        return ok({"rows": [1, 2] if (command.frame or 0) < 3 else []})
    return ok(1)


def test_a_fork_in_the_middle_of_a_cursor_drains_it() -> None:
    source = Host(CURSOR, rows).run()
    for seq in range(1, len(source.log)):
        fork = forked(CURSOR, source, seq, rows).run()
        assert fork.state.result == {"cursor": "drained", "frames": 5, "rows": 6}, seq


def test_a_fork_inside_of_a_step_timeout_begins_after_it() -> None:
    body = """
workflow:
  - step: start
    loop: {in: 3, iterator: i, spec: {mode: parallel, max_in_flight: 3}}
    tool: {kind: wait, seconds: 900}
    spec: {timeout: 5m}
    next: {arcs: [{step: late, on: error}]}
  - {step: late}
"""
    source = Host(body).run().fire("step_timeout:start#1")
    at = next(item.seq for item in source.log if isinstance(item.event, ev.CommandCancelled))
    for seq in range(at, len(source.log)):
        fork = forked(body, source, seq).run()
        assert (fork.state.terminal, fork.state.steps["late"].status) == ("COMPLETED", "COMPLETED")


@pytest.mark.parametrize("spec", ['{timeout: "{{ ctx.limit }}"}', "{policy: {lifecycle: {}}}"])
def test_a_fork_whose_limit_has_no_value_any_more_says_so_or_has_none(spec: str) -> None:
    body = f"""
workflow:
  - {{step: start, set: {{ctx.limit: 5m}}, next: {{arcs: [{{step: a}}]}}}}
  - {{step: a, tool: {{kind: python, code: "1"}}, spec: {spec}}}
"""
    source = Host(body)
    source.settle()
    fork = Host(body, forked_from={"execution_id": "1", "seq": 1})
    snapshot = snapshot_at(source.state.program, source.log, len(source.log))
    overrides = {"ctx": {"limit": "soon"}}
    fork.append(ev.StateRestored(source={}, snapshot=snapshot, overrides=overrides))
    fork.run()
    assert fork.state.terminal == ("FAILED" if "limit" in spec else "COMPLETED")


def test_a_fork_whose_snapshot_is_not_at_hand_is_left_as_it_is() -> None:
    host = Host(ONE, forked_from={"execution_id": "1", "seq": 1})
    host.append(ev.StateRestored(source={"execution_id": "1"}))
    assert host.state.agenda == {}


def test_a_loop_that_goes_on_in_a_fork_does_without_a_limit_that_has_no_value() -> None:
    body = """
workflow:
  - {step: start, set: {ctx.limit: 5m}, next: {arcs: [{step: a}]}}
  - step: a
    loop: {in: 2, iterator: i}
    tool: {kind: python, code: "1"}
    spec: {timeout: "{{ ctx.limit }}"}
"""
    source = Host(body)
    source.settle()
    fork = Host(body, forked_from={"execution_id": "1", "seq": 1})
    snapshot = snapshot_at(source.state.program, source.log, len(source.log))
    overrides = {"ctx": {"limit": "soon"}}
    fork.append(ev.StateRestored(source={}, snapshot=snapshot, overrides=overrides))
    assert (fork.run().state.terminal, fork.state.timers) == ("COMPLETED", {})
