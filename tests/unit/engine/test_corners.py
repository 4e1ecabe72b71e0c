"""Loop sources, arcs and results that have no value, reasons to wait, and items that are stale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from noetl.dsl.playbook.document import Executor, ExecutorSpec
from noetl.dsl.template import render
from noetl.dsl.views import Reference
from noetl.engine import events as ev
from noetl.engine.bindings import Bindings
from noetl.engine.cursor import claim_step
from noetl.engine.decide import decide
from noetl.engine.loop import MOST_ITEMS, BadSource, items_of
from noetl.engine.program import prepare
from noetl.engine.rows import from_row, to_row
from noetl.engine.scope import Results
from noetl.engine.status import progress_of
from noetl.engine.why import MOST_REASONS, why
from tests.unit.engine.host import Host, boom, ok

ONE = "workflow:\n  - {step: start, tool: {kind: python, code: '1'}}\n"
NAMED: dict[str, Any] = {"step": "start", "command_key": "start#1", "attempt": 1}


@pytest.mark.parametrize(
    ("source", "items"),
    [
        ([1, 2], [1, 2]),
        ({"a": 1}, [{"key": "a", "value": 1}]),
        (2, [0, 1]),
        ("[1, 2]", [1, 2]),
        ("a, b,", ["a", "b"]),
        ("a\nb, c\n", ["a", "b, c"]),
        ("7", ["7"]),
    ],
)
def test_a_source_becomes_items_by_its_type(source: object, items: list[object]) -> None:
    assert items_of(source) == items


@pytest.mark.parametrize("source", [None, True, 1.5, -1, MOST_ITEMS + 1])
def test_a_source_that_is_none_is_refused(source: object) -> None:
    with pytest.raises(BadSource):
        items_of(source)


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ("{step: start, loop: {in: '{{ 1.5 }}', iterator: i}, tool: {kind: noop}}", "loop_source"),
        ("{step: start, set: {ctx.a: '{{ nothing.here }}'}}", "undefined"),
        ("{step: start, tool: {kind: noop, result: '{{ nothing.here }}'}}", "undefined"),
        ("{step: start, next: {arcs: [{step: end, when: '{{ nothing.here }}'}]}}", "undefined"),
        (
            "{step: start, next: {spec: {on_no_match: fail}, arcs: [{step: end, when: false}]}}",
            "no_arc_matched",
        ),
    ],
)
def test_a_step_that_cannot_be_evaluated_fails_with_its_reason(steps: str, code: str) -> None:
    host = Host(f"workflow:\n  - {steps}\n").run()
    assert (host.state.terminal, host.state.failed_steps) == ("FAILED", ["start"])
    assert code in host.state.failure.code


CURSOR = """
workflow:
  - step: start
    loop:
      iterator: i
      cursor: {kind: sqlite, path: jobs.db, claim: select 1}
      spec: {mode: cursor, frame: {max_rows: 2, SPEC}}
    tool: {kind: python, code: "1"}
"""


@pytest.mark.parametrize("spec", ["max_seconds: '{{ nothing.here }}'", "max_seconds: '{{ [] }}'"])
def test_a_cursor_whose_limits_have_no_value_fails_its_step(spec: str) -> None:
    host = Host(CURSOR.replace("SPEC", spec)).run()
    assert (host.state.terminal, host.state.failed_steps) == ("FAILED", ["start"])


def test_only_a_cursor_has_a_claim() -> None:
    with pytest.raises(ValueError, match="no cursor"):
        claim_step(Host(ONE).playbook.workflow[0])


def test_a_refused_admission_follows_the_arcs_that_can_be_evaluated() -> None:
    body = """
workflow:
  - step: start
    spec: {policy: {admit: {rules: [{when: false, then: {allow: true}},
      {when: "{{ 1 == 1 }}", then: {allow: false}}]}}}
    next: {arcs: [{step: a, when: "{{ nothing.here }}"}, {step: b, on: error}, {step: c}]}
  - {step: a}
  - {step: b}
  - {step: c}
"""
    host = Host(body).run()
    assert host.state.terminal == "COMPLETED"
    assert [name for name, step in host.state.steps.items() if step.status == "COMPLETED"] == ["c"]
    assert progress_of(host.state)["skipped_steps"] == 3


def test_an_arc_may_show_a_long_value_as_its_truth() -> None:
    body = """
workload: {long: LONG, map: {a: 1}}
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: end, when: "{{ workload.long }}"},
      {step: end, when: "{{ workload.map }}"}, {step: end, when: "{{ 'x' }}"}]}
"""
    host = Host(body.replace("LONG", "x" * 300)).run()
    (left,) = [item.event for item in host.log if isinstance(item.event, ev.StepExited)]
    assert [arc.value for arc in left.routing.arcs] == [True, True, "x"]


@pytest.mark.parametrize(
    ("written", "result"),
    [("output: {value: 3}", 3), ("result: {a: '{{ start }}'}", {"a": 1})],
)
def test_a_run_returns_what_is_written(written: str, result: object) -> None:
    assert Host(f"{written}\n{ONE}").run().state.result == result


def test_a_result_that_cannot_be_rendered_or_checked_fails_the_run() -> None:
    host = Host("result: '{{ nothing.here }}'\n" + ONE).run()
    assert (host.state.terminal, host.state.failure.kind) == ("FAILED", "template")
    host = Host("output: {value: 1, schema: {type: nonsense}}\n" + ONE).run()
    assert (host.state.terminal, host.state.failure.code) == ("FAILED", "output_schema")
    assert Host("workflow:\n  - {step: start}\n").run().state.result is None


def test_why_tells_of_workers_timers_and_children_and_not_of_everything() -> None:
    host = Host(ONE)
    host.settle()
    host.append(ev.CommandClaimed(**NAMED, worker_id="w", lease_until="soon"))
    assert why(host.state) == [
        {"code": "running", "step": "start", "command_id": "3", "command_key": "start#1",
         "attempt": 1, "worker_id": "w", "lease_until": "soon"}
    ]  # fmt: skip
    host.post(ev.CommandParked(**NAMED, reason="retry", delay_ms=5))
    assert [item["code"] for item in why(host.state)] == ["retry"]
    child = Host("workflow:\n  - {step: start, tool: {kind: playbook, path: x}}\n").run()
    assert [item["child_key"] for item in why(child.state)] == ["start#1/c0"]
    many = "{in: 999, iterator: i, spec: {mode: parallel, max_in_flight: 500}}"
    host = Host(
        f"workflow:\n  - {{step: start, loop: {many}, tool: {{kind: python, code: '1'}}}}\n"
    )
    host.settle()
    assert len(why(host.state)) == MOST_REASONS
    host.post(ev.PlaybookCancelled())
    assert why(host.state) == []


def test_an_item_of_the_agenda_that_nothing_follows_from_is_passed_over() -> None:
    host = Host(ONE)
    host.settle()
    for item in (("frame", "start", 1), ("claim", "start", 1), ("loop", "start")):
        host.state.push(*item)
    assert decide(host.state) == []
    assert host.run().state.terminal == "COMPLETED"


def test_results_are_a_map_of_all_steps() -> None:
    assert Results(Host(ONE).state)["start"] is None
    host = Host(ONE.replace("code:", "template: false, code:")).run()
    results = Results(host.state)
    assert (list(results), len(results), "start" in results, "end" in results) == (
        ["start"], 1, True, False,
    )  # fmt: skip
    with pytest.raises(KeyError):
        results["end"]


def test_a_lost_worker_is_replaced_until_its_command_has_lost_too_many() -> None:
    host = Host(ONE)
    host.settle()
    for attempt in (1, 2, 3):
        named = {**NAMED, "attempt": attempt}
        host.append(ev.CommandClaimed(**named, worker_id="w"))
        host.post(ev.CommandLost(**named), ev.CommandLost(**named))
    assert (host.state.terminal, host.state.failure.code) == ("FAILED", "lease_exhausted")
    once = Host(ONE.replace("tool:", "spec: {idempotent: false}, tool:"))
    once.settle()
    once.append(ev.CommandClaimed(**NAMED, worker_id="w"), ev.CommandStarted(**NAMED))
    once.post(ev.CommandLost(**NAMED))
    assert (once.state.terminal, once.state.failure.code) == ("FAILED", "worker_lost")


def test_a_refused_callback_is_a_failure_with_its_reason() -> None:
    host = Host("workflow:\n  - {step: start, tool: {kind: wait, callback: true}}\n").run()
    host.post(ev.CallError(**NAMED, error=boom("no", kind="http")))
    assert (host.state.failure.kind, host.state.failure.message) == ("http", "no")


def test_tools_of_the_engine_may_write_too_much_or_ask_for_nothing() -> None:
    child = "{kind: playbook, path: x, set: {ctx.a: 1}}"
    host = Host(f"workflow:\n  - {{step: start, tool: {child}}}\n").run()
    host.append(
        ev.CtxUpdated(step="start", cause="x", ctx={f"k{number}": 1 for number in range(10_000)})
    )
    assert host.returns("start#1/c0", 1).state.failure.code == "ctx_limit"
    written = Host("workflow:\n  - {step: start, set: {ctx.a: 1}}\n")
    written.append(
        ev.CtxUpdated(step="start", cause="x", ctx={f"k{number}": 1 for number in range(10_000)})
    )
    assert written.run().state.failure.code == "ctx_limit"
    for items, told in (("{{ [] }}", "no child"), ("{{ 3 }}", "list")):
        body = f"workflow:\n  - {{step: start, tool: {{kind: playbooks, items: '{items}'}}}}\n"
        assert told in Host(body).run().state.failure.message
    body = """
workload: {i: [{path: x, input: 3}]}
workflow:
  - {step: start, tool: {kind: playbooks, items: "{{ workload.i }}"}}
"""
    assert "a map" in Host(body).run().state.failure.message


def test_a_wait_of_a_pipeline_may_name_its_end() -> None:
    host = Host("workflow:\n  - step: start\n    tool: [{name: a, kind: wait, seconds: 1}]\n")
    host.settle()
    host.open.clear()
    until = "2026-01-02T00:00:00.000000Z"
    host.post(ev.CommandParked(**NAMED, reason="retry", request={"until": until}))
    assert host.state.timers["wait:start#1"].due_at == until


def test_events_that_nothing_expects_change_nothing() -> None:
    host = Host(ONE)
    host.settle()
    before = dict(host.state.commands)
    host.post(
        ev.PlaybookStarted(execution_id="2", path="x", version=1, catalog_id="1", workload={}),
        ev.ExecutionAdmitted(),
        ev.ExecutionResumed(),
        ev.TimerFired(timer_key="nothing"),
        ev.CommandCompleted(step="start", command_key="start#9"),
        ev.CommandCancelled(step="start", command_key="start#9", reason="x"),
        ev.EngineFailed(message="x"),
        ev.FrameDispatched(step="start", visit=1, frame=0),
        ev.FrameCommitted(step="start", visit=1, frame=0, rows=0),
        ev.FrameFailed(step="start", visit=1, frame=0, error=boom()),
    )
    assert (host.state.commands, host.state.execution_id) == (before, "1")
    host.post(ev.ExecutionPaused(), ev.ExecutionPaused(), ev.ExecutionResumed())
    assert host.run().state.terminal == "COMPLETED"


def test_a_body_run_by_the_engine_may_end_its_loop() -> None:
    rule = "{else: {then: {do: break, loop: true}}}"
    tool = f"{{kind: playbook, path: x, spec: {{policy: {{rules: [{rule}]}}}}}}"
    body = f"workflow:\n  - {{step: start, loop: {{in: 3, iterator: i}}, tool: {tool}}}\n"
    host = Host(body).run().returns("start#1/i0/c0", 5)
    assert (host.state.terminal, host.state.result) == ("COMPLETED", [5, None, None])


def test_a_claim_that_gives_no_rows_closes_its_lane() -> None:
    host = Host(CURSOR.replace(", SPEC", ""), lambda _: ok("nothing")).run()
    assert host.state.result == {"cursor": "drained", "frames": 1, "rows": 0}


def test_the_steps_of_a_run_are_counted_by_how_they_ended() -> None:
    body = """
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: c, when: false}]}
  - {step: a, tool: {kind: python, code: "1"}}
  - {step: b, tool: {kind: python, code: "1"}}
  - {step: c}
"""
    host = Host(body, lambda _: boom())
    host.settle()
    assert progress_of(host.state) == {
        "total_steps": 3, "completed_steps": 1, "running_steps": 2, "failed_steps": 0,
        "skipped_steps": 1,
    }  # fmt: skip
    host.run()
    assert progress_of(host.state) == {
        "total_steps": 3, "completed_steps": 1, "running_steps": 0, "failed_steps": 1,
        "skipped_steps": 1,
    }  # fmt: skip


def test_a_command_binds_nothing_for_names_that_nobody_knows_yet() -> None:
    body = """
workflow:
  - step: start
    input: {a: "{{ result | default(0) }}", b: "{{ unknown | default(0) }}"}
    tool: {kind: python, template: true, code: "print({{ workload.n }})"}
workload: {n: 4}
"""
    host = Host(body)
    host.settle()
    assert host.open[0].bindings.keys() == {"execution", "step", "workload"}
    assert host.open[0].priority == host.state.commands["start#1"].priority == 5


@pytest.mark.parametrize(
    ("tool", "bound"),
    [
        ("{kind: gateway, operation: progress, progress: 0.5}", {"request_id": "r-1"}),
        ("[{noop: {kind: noop}}, {tell: {kind: gateway, data: 1}}]", {"request_id": "r-1"}),
        ("{kind: gateway, request_id: '{{ workload.other }}'}", {"other": "r-2"}),
    ],
)
def test_word_for_the_client_brings_its_request_along(tool: str, bound: dict[str, str]) -> None:
    workload = "workload: {request_id: r-1, other: r-2, callback_token: '***'}\n"
    host = Host(f"{workload}workflow: [{{step: start, tool: {tool}}}]")
    host.settle()
    assert host.open[0].bindings["workload"] == bound


def test_a_frame_that_expires_between_two_rows_is_taken_up_at_once() -> None:
    def tools(command: ev.CommandIssued) -> object:
        return ok([1, 2] if command.frame == 0 else []) if command.is_claim else ok(1)

    host = Host(CURSOR.replace(", SPEC", ""), tools)
    host.settle()
    host.report(host.open.pop(0))
    row = host.open.pop(0)
    host.append(ev.CallDone(step="start", command_key=row.command_key, attempt=1))
    host.append(*decide(host.state))
    host.post(ev.TimerFired(timer_key="frame:start#1/f0"))
    assert "frame.failed(start)" in host.rows
    assert host.run().state.terminal == "COMPLETED"


def test_a_playbook_whose_entry_is_missing_has_nothing_to_follow() -> None:
    playbook = Host(ONE).playbook
    spec = ExecutorSpec(entry_step="nowhere")
    program = prepare(replace(playbook, executor=Executor(spec=spec)))
    assert (program.entry, program.steps["start"].incoming, program.inside) == ("nowhere", [], {})


def test_a_row_keeps_its_cause_its_time_and_its_reference() -> None:
    reference = {"ref": "noetl://x", "store": "memory"}
    row = {
        "execution_id": "1", "seq": 2, "event_id": "2", "prev_event_id": "1",
        "created_at": "2026-01-01T00:00:00Z", "parent_event_id": "1", "event_time": "then",
        "event_type": "playbook.completed", "step": "playbook", "node_name": "playbook",
        "result": {"status": "COMPLETED", "reference": reference},
    }  # fmt: skip
    recorded = from_row(row)
    assert recorded.event == ev.PlaybookCompleted(reference=Reference(**reference))
    again = to_row(recorded)
    assert (again["parent_event_id"], again["event_time"]) == ("1", "then")
    assert again["result"]["reference"]["ref"] == "noetl://x"
    assert "context" not in again["result"]


def test_an_item_that_lies_elsewhere_is_read_by_its_iterator() -> None:
    step = Host("workflow:\n  - {step: start, loop: {in: 1, iterator: i}}\n").playbook.workflow[0]
    there = Reference(ref="noetl://x", store="memory")
    bindings = Bindings(
        step, {"iter": {"index": 0, "total": 1}}, "1", {"iter.item": there}, {there.ref: 7}
    )
    assert render("{{ i }}", bindings.scope(keychain={})) == 7


def test_a_step_that_no_rule_is_about_is_admitted() -> None:
    rules = "{rules: [{when: '{{ 1 == 2 }}', then: {allow: false}}]}"
    body = f"workflow:\n  - {{step: start, spec: {{policy: {{admit: {rules}}}}}}}\n"
    assert Host(body).run().state.steps["start"].status == "COMPLETED"
