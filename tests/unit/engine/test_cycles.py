"""Cycles: nested, shared, with joins inside and behind them."""

from __future__ import annotations

from noetl.engine import events as ev
from noetl.engine.program import prepare
from tests.unit.engine.host import Host, ok


def entered(host: Host) -> list[str]:
    return [item.event.step for item in host.log if isinstance(item.event, ev.StepEntered)]


def skipped(host: Host) -> list[str]:
    return [item.event.step for item in host.log if isinstance(item.event, ev.StepSkipped)]


NESTED = """
workflow:
  - step: a
    next: {arcs: [{step: b}]}
  - step: b
    tool: {kind: python, code: "1"}
    set: {ctx.n: "{{ (ctx.n | default(0)) + 1 }}"}
    next: {arcs: [{step: b, when: "{{ ctx.n % 3 != 0 }}"}, {step: c}]}
  - step: c
    next: {arcs: [{step: a, when: "{{ ctx.n < 9 }}"}, {step: end}]}
  - {step: end}
"""


def test_a_cycle_inside_a_cycle_turns_as_its_guards_say() -> None:
    host = Host(NESTED).run()
    assert entered(host) == ["a", "b", "b", "b", "c"] * 3 + ["end"]
    assert skipped(host) == []


def test_the_cycles_of_a_step_are_named_by_their_heads_innermost_first() -> None:
    program = prepare(Host(NESTED).playbook)
    assert {name: plan.cycles for name, plan in program.steps.items()} == {
        "a": ("a",), "b": ("b", "a"), "c": ("a",), "end": (),
    }  # fmt: skip
    assert [(arc.source, arc.target, arc.leaves) for arc in program.arcs if arc.leaves] == [
        ("b", "c", "b"), ("c", "end", "a"),
    ]  # fmt: skip


def test_an_arc_that_was_not_taken_before_a_turn_is_taken_after_it() -> None:
    body = """
workflow:
  - step: a
    set: {ctx.n: "{{ (ctx.n | default(0)) + 1 }}"}
    next: {arcs: [{step: b}]}
  - step: b
    next: {arcs: [{step: a, when: "{{ ctx.n < 3 }}"}, {step: d}]}
  - step: d
    next: {arcs: [{step: a, when: "{{ ctx.n < 5 }}"}]}
"""
    host = Host(body).run()
    assert entered(host) == ["a", "b"] * 3 + ["d", "a", "b", "d", "a", "b", "d"]
    assert skipped(host) == []


def test_a_join_in_a_cycle_waits_for_a_branch_that_turns_on_the_spot() -> None:
    body = """
workflow:
  - step: a
    next: {spec: {mode: inclusive}, arcs: [{step: poll}, {step: other}]}
  - step: poll
    tool: {kind: python, code: "1"}
    set: {ctx.n: "{{ (ctx.n | default(0)) + 1 }}"}
    next: {arcs: [{step: poll, when: "{{ ctx.n % 3 != 0 }}"}, {step: join}]}
  - step: other
    tool: {kind: python, code: "1"}
    next: {arcs: [{step: join}]}
  - step: join
    next: {arcs: [{step: a, when: "{{ ctx.n < 6 }}"}]}
"""
    for first in (0, -1):
        host = Host(body, lambda _: ok(1))
        host.settle()
        while host.open:
            host.report(host.open.pop(first))
        assert entered(host).count("join") == 2
        assert entered(host).count("poll") == 6
        assert host.state.steps["join"].came_from == ("poll", "other")
        assert host.state.terminal == "COMPLETED"


def test_a_join_behind_an_inner_cycle_is_not_entered_early() -> None:
    body = """
workflow:
  - step: a
    next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: join}]}
  - step: b
    tool: {kind: python, code: "1"}
    set: {ctx.n: "{{ (ctx.n | default(0)) + 1 }}"}
    next: {arcs: [{step: b, when: "{{ ctx.n < 4 }}"}, {step: c, when: "{{ workload.on }}"}]}
  - step: c
    next: {arcs: [{step: join}]}
  - {step: join}
workload: {on: false}
"""
    host = Host(body).run()
    assert entered(host) == ["a", "b", "b", "b", "b", "join"]
    assert skipped(host) == ["c"]
    assert entered(Host(body, payload={"on": True}).run())[-2:] == ["c", "join"]


def test_two_branches_that_go_back_to_one_step_give_it_a_visit_each() -> None:
    body = """
workflow:
  - step: a
    tool: {kind: python, code: "1"}
    set: {ctx.n: "{{ (ctx.n | default(0)) + 1 }}"}
    next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: c}]}
  - step: b
    tool: {kind: python, code: "1"}
    next: {arcs: [{step: a, when: "{{ ctx.n == 1 }}"}]}
  - step: c
    tool: {kind: python, code: "1"}
    next: {arcs: [{step: a, when: "{{ ctx.n == 1 }}"}]}
"""
    host = Host(body)
    host.settle()
    host.report(host.open.pop())
    first, second = host.open
    host.open.clear()
    host.report(first)
    host.report(second)
    assert host.state.steps["a"].queued_visits == 1
    host.run()
    assert host.state.terminal == "COMPLETED"
    visits = [item.event.visit for item in host.log
              if isinstance(item.event, ev.StepEntered) and item.event.step == "a"]  # fmt: skip
    assert visits == [1, 2, 3]


def test_a_step_that_failed_and_is_entered_again_by_an_arc_has_still_failed() -> None:
    body = """
executor: {spec: {policy: {failure: {mode: best_effort}}}}
workflow:
  - step: a
    set: {ctx.n: "{{ (ctx.n | default(0)) + 1 }}"}
    next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: c}]}
  - {step: b, tool: {kind: python, code: "1"}, next: {arcs: [{step: a, when: false}]}}
  - {step: c, tool: {kind: python, code: "1"}, next: {arcs: [{step: a, when: "{{ ctx.n < 2 }}"}]}}
"""

    def tools(command: ev.CommandIssued) -> object:
        if command.command_key == "b#1":
            return ev.Error(kind="python", code="x", message="first")
        return ok(1)

    host = Host(body, tools).run()
    assert (host.state.terminal, host.state.failed_steps) == ("FAILED", ["b"])
    assert host.state.steps["b"].status == "COMPLETED"


def test_a_step_that_failed_is_forgiven_when_it_is_tried_again_by_hand() -> None:
    body = """
executor: {spec: {policy: {failure: {mode: best_effort}}}}
workflow:
  - step: a
    next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: c}]}
  - {step: b, tool: {kind: python, code: "1"}}
  - {step: c, tool: {kind: wait, seconds: 5}}
"""
    outcomes = [ev.Error(kind="python", code="x", message="first"), ok(2)]
    host = Host(body, lambda _: outcomes.pop(0)).run()
    assert host.state.failed_steps == ["b"]
    host.post(ev.StepEntered(step="b", visit=2))
    assert (host.state.failed_steps, host.state.failure) == ([], None)
    host.run().fire("wait:c#1")
    assert host.state.terminal == "COMPLETED"


def test_arcs_of_steps_that_nothing_leads_to_make_nobody_wait() -> None:
    body = """
workflow:
  - {step: a, next: {arcs: [{step: c}]}}
  - {step: lonely, next: {arcs: [{step: c}]}}
  - {step: c, next: {arcs: [{step: end}]}}
"""
    host = Host(body).run()
    assert (entered(host), host.state.terminal) == (["a", "c"], "COMPLETED")
