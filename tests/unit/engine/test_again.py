"""A failed step that is tried again by hand: what its failure had ruled out is open again."""

from __future__ import annotations

from noetl.engine import events as ev
from noetl.engine.fold import fold
from noetl.engine.snapshot import dump, load
from noetl.engine.state import State
from tests.unit.engine.host import Host, boom, ok

HEAD = "executor: {spec: {policy: {failure: {mode: best_effort}}}}\nworkflow:\n"
PY = '{kind: python, code: "1"}'
SLOW = "  - {step: slow, tool: {kind: wait, seconds: 60}}\n"
FAN = f"""{HEAD}  - step: start
    next: {{spec: {{mode: inclusive}}, arcs: [{{step: b}}, {{step: slow}}]}}
{SLOW}"""


def failing_once(name: str):
    seen: list[str] = []

    def tools(command: ev.CommandIssued) -> object:
        seen.append(command.step)
        is_first = command.step == name and seen.count(name) == 1
        return boom("first") if is_first else ok(command.command_key)

    return tools


def again(host: Host, step: str) -> Host:
    """Try a step again, as the server does it."""
    own = host.state.step(step)
    host.post(ev.StepEntered(step=step, visit=own.visit + 1, from_=own.came_from))
    return host.run()


def entered(host: Host) -> list[str]:
    return [item.event.step for item in host.log if isinstance(item.event, ev.StepEntered)]


def is_replayable(host: Host) -> bool:
    """Whether log and snapshot give the state of the run."""
    program = host.state.program
    state = State(program=program)
    for item in host.log:
        fold(state, item)
    kept = load(program, dump(host.state))
    return dump(state) == dump(host.state) == dump(kept)


def test_what_followed_on_the_failed_step_runs_after_its_second_visit() -> None:
    body = f"""{FAN}  - {{step: b, tool: {PY}, next: {{arcs: [{{step: c}}]}}}}
  - {{step: c, tool: {PY}, next: {{arcs: [{{step: d}}]}}}}
  - {{step: d, tool: {PY}}}
"""
    host = Host(body, failing_once("b")).run()
    assert host.state.failed_steps == ["b"]
    assert [host.state.steps[name].status for name in "cd"] == ["SKIPPED", "SKIPPED"]
    again(host, "b")
    assert entered(host) == ["start", "b", "slow", "b", "c", "d"]
    assert is_replayable(host)
    host.fire("wait:slow#1")
    assert (host.state.terminal, host.state.failed_steps) == ("COMPLETED", [])


def test_a_second_failure_rules_the_same_out_again() -> None:
    body = f"""{FAN}  - {{step: b, tool: {PY}, next: {{arcs: [{{step: c}}]}}}}
  - {{step: c, tool: {PY}}}
"""
    host = Host(body, lambda _: boom("always")).run()
    again(host, "b")
    assert (host.state.failed_steps, host.state.steps["c"].status) == (["b"], "SKIPPED")
    host.fire("wait:slow#1")
    assert (host.state.terminal, entered(host)) == ("FAILED", ["start", "b", "slow", "b"])


def test_a_join_that_ran_without_the_branch_does_not_run_twice() -> None:
    body = f"""{HEAD}  - step: start
    next:
      spec: {{mode: inclusive}}
      arcs: [{{step: a}}, {{step: b}}, {{step: slow}}]
{SLOW}  - {{step: a, tool: {PY}, next: {{arcs: [{{step: join}}]}}}}
  - {{step: b, tool: {PY}, next: {{arcs: [{{step: join}}]}}}}
  - {{step: join, tool: {PY}}}
"""
    host = Host(body, failing_once("b")).run()
    assert entered(host).count("join") == 1
    again(host, "b")
    assert entered(host).count("join") == 1
    host.fire("wait:slow#1")
    assert host.state.terminal == "COMPLETED"


def test_a_join_that_still_waits_takes_the_branch_in() -> None:
    body = f"""{HEAD}  - step: start
    next: {{spec: {{mode: inclusive}}, arcs: [{{step: b}}, {{step: slow}}]}}
  - {{step: slow, tool: {{kind: wait, seconds: 60}}, next: {{arcs: [{{step: join}}]}}}}
  - {{step: b, tool: {PY}, next: {{arcs: [{{step: join}}]}}}}
  - {{step: join, tool: {PY}}}
"""
    host = Host(body, failing_once("b")).run()
    again(host, "b")
    host.fire("wait:slow#1").run()
    (join,) = [item.event for item in host.log
               if isinstance(item.event, ev.StepEntered) and item.event.step == "join"]  # fmt: skip
    assert sorted(join.from_) == ["b", "slow"]
    assert host.state.terminal == "COMPLETED"


def test_a_step_inside_a_cycle_lets_the_way_out_be_taken() -> None:
    body = f"""{FAN}  - step: b
    tool: {PY}
    next: {{arcs: [{{step: b, when: "{{{{ false }}}}"}}, {{step: out}}]}}
  - {{step: out, tool: {PY}}}
"""
    host = Host(body, failing_once("b")).run()
    assert host.state.steps["out"].status == "SKIPPED"
    again(host, "b")
    assert entered(host) == ["start", "b", "slow", "b", "out"]
    assert is_replayable(host)


def test_the_limit_of_a_visit_holds_for_the_second_one() -> None:
    body = f"{FAN}  - {{step: b, spec: {{timeout: 5m}}, tool: {PY}}}\n"
    outcomes: list[object] = [boom("first")]
    host = Host(body, lambda _: outcomes.pop()).run()
    host.post(ev.StepEntered(step="b", visit=2))
    assert "step_timeout:b#2" in host.state.timers
    outcomes.append(ok(1))
    host.run()
    assert (host.state.steps["b"].status, "step_timeout:b#2" in host.state.timers) == (
        "COMPLETED", False,
    )  # fmt: skip
