"""The rows of typical runs (engine.md 10), and what COMPLETED means."""

import pytest

from noetl.engine import events as ev
from tests.unit.engine.host import Host, boom, ok

COMMAND = ["command.claimed", "command.started", "call.done", "command.completed"]


def of(step: str, *names: str) -> list[str]:
    return [f"{name}({step})" for name in names]


def test_two_steps_in_line_are_sixteen_rows() -> None:
    host = Host("""
workflow:
  - {step: start, tool: {kind: python, code: "result = 1"}, next: {arcs: [{step: last}]}}
  - {step: last, tool: {kind: python, code: "result = 2"}}
""").run()
    one = ["step.enter", "command.issued", *COMMAND, "step.exit"]
    assert host.rows == [
        "playbook.started", *of("start", *one), *of("last", *one), "playbook.completed",
    ]  # fmt: skip
    assert len(host.rows) == 16


def test_a_set_adds_one_row_before_the_exit() -> None:
    host = Host("""
workflow:
  - {step: start, tool: {kind: python, code: "result = 1"}, set: {ctx.n: "{{ output.data + 1 }}"}}
""").run()
    assert host.rows[-3:] == ["ctx.updated(start)", "step.exit(start)", "playbook.completed"]
    assert host.state.ctx == {"n": 2}


def test_a_noop_runs_in_the_engine() -> None:
    host = Host(
        "workflow: [{step: start, tool: {kind: noop, result: '{{ n }}'}}]\nworkload: {n: 5}\n"
    ).run()
    assert host.rows == ["playbook.started", *of("start", "step.enter", "step.exit"),
                         "playbook.completed"]  # fmt: skip
    exit_ = host.log[2].event
    assert isinstance(exit_, ev.StepExited)
    assert exit_.result == 5


def test_an_empty_loop_finishes_at_once() -> None:
    host = Host("workflow: [{step: a, loop: {in: [], iterator: i}, tool: {kind: noop}}]\n").run()
    assert host.rows == ["playbook.started",
                         *of("a", "step.enter", "loop.started", "loop.done", "step.exit"),
                         "playbook.completed"]  # fmt: skip


def test_a_parallel_loop_keeps_its_limit_and_its_order() -> None:
    host = Host(
        """
workflow:
  - step: a
    loop: {in: [x, y, z], iterator: i, spec: {mode: parallel, max_in_flight: 2}}
    tool: {kind: python, code: "result = i"}
""",
        lambda command: ok(command.bindings["iter"]["item"]),
    )
    host.settle()
    assert host.rows[1:] == [
        *of("a", "step.enter", "loop.started"),
        *of("a/0", "command.issued"),
        *of("a/1", "command.issued"),
    ]
    second = host.open.pop(1)
    host.report(second)
    assert host.rows[5:] == [*of("a/1", *COMMAND), *of("a/2", "command.issued")]
    host.run()
    assert host.rows[-3:] == [*of("a", "loop.done", "step.exit"), "playbook.completed"]
    assert host.state.result == ["x", "y", "z"]


def test_an_exclusive_branch_skips_its_sibling() -> None:
    host = Host("""
workflow:
  - {step: a, next: {arcs: [{step: b, when: "{{ 1 > 0 }}"}, {step: c}]}}
  - {step: b}
  - {step: c}
""").run()
    skipped = [item.event for item in host.log if isinstance(item.event, ev.StepSkipped)]
    assert [(item.step, item.reason) for item in skipped] == [("c", "not_taken")]
    exit_ = host.log[2].event
    assert isinstance(exit_, ev.StepExited)
    assert [(arc.step, arc.value, arc.taken) for arc in exit_.routing.arcs] == [
        ("b", True, True), ("c", None, False),
    ]  # fmt: skip


def test_a_join_waits_for_every_branch_that_can_arrive() -> None:
    host = Host("""
workflow:
  - {step: a, next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: c}, {step: d, when: false}]}}
  - {step: b, tool: {kind: python, code: "1"}, next: {arcs: [{step: j}]}}
  - {step: c, tool: {kind: python, code: "1"}, next: {arcs: [{step: j}]}}
  - {step: d, next: {arcs: [{step: e}]}}
  - {step: e, next: {arcs: [{step: j}]}}
  - {step: j}
""").run()
    assert host.rows.count("step.enter(j)") == 1
    assert host.rows.index("step.enter(j)") > host.rows.index("step.exit(c)")
    assert [row for row in host.rows if "skipped" in row] == ["step.skipped(d)", "step.skipped(e)"]


def test_an_unhandled_error_fails_the_run() -> None:
    host = Host("""
workflow:
  - {step: a, tool: {kind: python, code: "1"}, next: {arcs: [{step: b}]}}
  - {step: b}
""", lambda _: boom()).run()  # fmt: skip
    assert host.rows[-4:] == [*of("a", "call.error", "command.failed", "step.exit"),
                              "playbook.failed"]  # fmt: skip
    assert isinstance(host.last, ev.PlaybookFailed)
    assert (host.last.failed_steps, host.last.error.message) == (("a",), "boom")


@pytest.mark.parametrize(
    "arc",
    [
        "{step: b, on: error}",
        "{step: b, on: any}",
        "{step: b, when: \"{{ event.name == 'call.error' }}\"}",
        "{step: b, when: \"{{ output.error.kind == 'python' }}\"}",
    ],
)
def test_a_handled_error_completes_the_run(arc: str) -> None:
    host = Host(f"""
workflow:
  - {{step: a, tool: {{kind: python, code: "1"}}, next: {{arcs: [{arc}]}}}}
  - {{step: b}}
""", lambda _: boom()).run()  # fmt: skip
    assert host.state.terminal == "COMPLETED"
    exit_ = next(item.event for item in host.log if isinstance(item.event, ev.StepExited))
    assert (exit_.outcome, exit_.handled) == ("FAILED", True)


def test_a_cycle_runs_its_exact_number_of_turns() -> None:
    host = Host("""
workflow:
  - {step: start, next: {arcs: [{step: t, set: {ctx.n: 0}}]}}
  - step: t
    tool: {kind: python, code: "1"}
    set: {ctx.n: "{{ ctx.n + 1 }}"}
    next: {arcs: [{step: t, when: "{{ ctx.n < 3 }}"}, {step: out}]}
  - {step: out}
""").run()
    assert host.rows.count("step.enter(t)") == 3
    assert host.rows.count("step.enter(out)") == 1
    assert (host.state.ctx, host.state.terminal) == ({"n": 3}, "COMPLETED")


def test_a_join_behind_a_cycle_is_not_entered_early() -> None:
    host = Host("""
workflow:
  - {step: start, next: {spec: {mode: inclusive}, arcs: [{step: t, set: {ctx.n: 0}}, {step: side}]}}
  - step: t
    tool: {kind: python, code: "1"}
    set: {ctx.n: "{{ ctx.n + 1 }}"}
    next: {arcs: [{step: t, when: "{{ ctx.n < 3 }}"}, {step: j}]}
  - {step: side, next: {arcs: [{step: j}]}}
  - {step: j, tool: {kind: noop, result: "{{ ctx.n }}"}}
""").run()
    assert host.rows.count("step.enter(j)") == 1
    assert host.rows.index("step.enter(j)") > len(host.rows) - 1 - host.rows[::-1].index(
        "step.exit(t)"
    )


def test_no_matching_arc_ends_the_branch_or_fails() -> None:
    body = "workflow: [{step: a, next: {arcs: [{step: b, when: false}]}}, {step: b}]\n"
    assert Host(body).run().state.terminal == "COMPLETED"
    strict = "executor: {spec: {no_next_is_error: true}}\n" + body
    failed = Host(strict).run().last
    assert isinstance(failed, ev.PlaybookFailed)
    assert failed.error.code == "no_arc_matched"


def test_an_arc_that_raises_fails_its_step() -> None:
    host = Host("""
workflow:
  - {step: a, next: {arcs: [{step: b, when: "{{ nowhere.x }}"}, {step: c, on: error}]}}
  - {step: b}
  - {step: c}
""").run()
    assert host.state.terminal == "COMPLETED"
    assert "step.enter(c)" in host.rows
    assert "step.enter(b)" not in host.rows


def test_a_refused_step_runs_no_tool_and_its_own_arc_is_followed() -> None:
    host = Host("""
workflow:
  - {step: a, spec: {policy: {admit: "{{ false }}"}}, tool: {kind: python, code: "1"},
     next: {arcs: [{step: b}]}}
  - {step: b}
""").run()
    assert host.calls == []
    assert host.rows == ["playbook.started", "step.skipped(a)",
                         *of("b", "step.enter", "step.exit"), "playbook.completed"]  # fmt: skip


def test_a_final_step_runs_once_after_success_and_after_failure() -> None:
    body = """
executor: {spec: {final_step: f}}
workflow:
  - {step: a, tool: {kind: python, code: "1"}}
  - {step: f, tool: {kind: noop, result: "{{ execution.outcome.status }}"}}
"""
    good, bad = Host(body).run(), Host(body, lambda _: boom()).run()
    assert (good.rows.count("step.enter(f)"), bad.rows.count("step.enter(f)")) == (1, 1)
    assert (good.state.terminal, bad.state.terminal) == ("COMPLETED", "FAILED")


def test_values_of_one_set_see_the_state_before_it() -> None:
    host = Host("""
workflow:
  - {step: a, set: {ctx.x: 1, ctx.y: 2}, next: {arcs: [{step: b}]}}
  - {step: b, set: {ctx.x: "{{ ctx.y }}", ctx.y: "{{ ctx.x }}", ctx.m.n: 3}}
""").run()
    assert host.state.ctx == {"x": 2, "y": 1, "m": {"n": 3}}


def test_a_command_carries_only_what_its_templates_name() -> None:
    host = Host("""
workload: {a: 1, canary: secret}
workflow:
  - {step: s, tool: {kind: noop, result: canary}, next: {arcs: [{step: t}]}}
  - {step: t, tool: {kind: python, code: "1", input: {a: "{{ a }}", b: "{{ ctx.z | default(1) }}"}}}
""")
    host.settle()
    assert host.open[0].bindings["workload"] == {"a": 1}
    assert "canary" not in str(host.open[0].bindings)
