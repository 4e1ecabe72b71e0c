"""Values that lie elsewhere: what is bound by reference, and what the engine asks for."""

from __future__ import annotations

from noetl.dsl.views import Reference, Unreadable
from noetl.engine import events as ev
from noetl.engine.decide import Need, decide
from noetl.engine.work import item_at
from tests.unit.engine.host import Host, boom, ok

BIG = Reference(ref="noetl://big", store="memory", size=70_000, extracted={"row_count": 3})


def python(step: str, code: str = "1", **more: str) -> str:
    rest = "".join(f", {key}: {value}" for key, value in more.items())
    return f"  - {{step: {step}, tool: {{kind: python, code: {code!r}}}{rest}}}\n"


def test_a_condition_on_a_large_result_asks_for_it_once_and_one_on_its_summary_does_not() -> None:
    body = "workflow:\n" + python(
        "start", next='{arcs: [{step: end, when: "{{ WHAT }}"}]}'
    ) + python("end")  # fmt: skip
    host = Host(body.replace("WHAT", "output.data.row_count == 3"), lambda _: ok(reference=BIG))
    host.run()
    assert (host.calls, host.objects) == (["start#1", "end#1"], {})
    host = Host(body.replace("WHAT", "output.data.rows[0] == 1"), lambda _: ok(reference=BIG))
    host.stored = {BIG.ref: {"rows": [1]}}
    host.run()
    assert (host.calls, list(host.objects)) == (["start#1", "end#1"], [BIG.ref])
    assert (host.state.terminal, host.state.reference) == ("COMPLETED", BIG)


def test_a_command_brings_references_instead_of_large_values() -> None:
    body = "workflow:\n" + python("start", next="{arcs: [{step: end}]}") + (
        "  - {step: end, input: {a: '{{ start.rows }}', b: '{{ ctx.big }}', c: '{{ ctx.deep.x }}',"
        " d: '{{ small }}', e: '{{ result }}', f: '{{ n }}', g: '{{ steps }}',"
        " h: '{{ workload }}'},"
        " tool: {kind: python, code: '1'}}\nworkload: {n: 4}\n"
    )  # fmt: skip
    host = Host(body, lambda _: ok(reference=BIG))
    host.settle()
    deep = Reference(ref="noetl://deep", store="memory")
    host.append(
        ev.CtxUpdated(
            step="start",
            cause="x",
            ctx={"small": 1, "deep.y": 2},
            refs={"big": BIG, "deep.x": deep},
        )
    )
    host.report(host.open.pop(0))
    (command,) = host.open
    assert command.refs == {"ctx.big": BIG, "ctx.deep.x": deep, "steps.start": BIG}
    assert command.bindings["ctx"] == {"deep": {"y": 2}, "small": 1}
    assert command.bindings["steps"] == {"start": {"form": "single", "status": "ok"}, "end": None}
    assert (command.bindings["workload"], command.bindings["routed_by"]) == ({"n": 4}, "start")


def test_a_template_of_the_engine_reads_ctx_from_where_it_lies() -> None:
    body = "workflow:\n" + python("start") + "result: '{{ ctx.deep.x }}'\n"
    host = Host(body)
    host.settle()
    host.append(ev.CtxUpdated(step="start", cause="x", refs={"deep.x": BIG}))
    host.stored = {BIG.ref: 9}
    assert host.run().state.result == 9


def test_items_come_from_their_chunk() -> None:
    host = Host("workflow:\n" + python("start", loop="{in: 2, iterator: i}"))
    chunk = Reference(ref="noetl://chunk", store="memory")
    host.append(*decide(host.state))
    host.append(
        ev.LoopStarted(
            step="start", visit=1, total=2, mode="sequential", max_in_flight=1, items_ref=(chunk,)
        )
    )
    assert decide(host.state) == Need((chunk,))
    host.stored = {chunk.ref: ["a", "b"]}
    host.settle()
    assert host.open[0].bindings["iter"] == {"item": "a", "index": 0, "total": 2}
    loop = host.state.steps["start"].loop
    assert loop is not None
    assert item_at(loop, 1, host.objects) == "b"
    assert host.run().state.result == [1, 1]


def test_large_results_of_iterations_and_children_stay_where_they_are() -> None:
    shown = {"row_count": 3, "_ref": BIG.ref, "_store": "memory", "_size": 70_000}
    body = "workflow:\n" + python("start", loop="{in: 1, iterator: i}")
    assert Host(body, lambda _: ok(reference=BIG)).run().state.result == [shown]
    plain = Reference(ref="noetl://plain", store="memory")
    host = Host(body, lambda _: ok(reference=plain)).run()
    assert host.state.result == [{"_ref": plain.ref, "_store": "memory", "_size": None}]
    child = "workflow:\n  - {step: start, tool: {kind: playbook, path: x, set: {ctx.a: SET}}}\n"
    host = Host(child.replace("SET", '"{{ output.data.rows }}"')).run()
    host.stored = {BIG.ref: {"rows": [7]}}
    returned = ev.ExecutionReturned(
        child_key="start#1/c0", child_execution_id="7", outcome="COMPLETED", reference=BIG
    )
    host.post(returned)
    assert (host.state.ctx, host.state.reference) == ({"a": [7]}, BIG)


def test_the_outcome_of_a_child_in_a_pipeline_is_handed_over_by_reference() -> None:
    body = """
workflow:
  - step: start
    tool: [{name: a, kind: playbook, path: x}, {name: b, kind: python, code: "1"}]
"""
    host = Host(body)
    host.settle()
    request = {"children": [{"path": "x"}], "many": False, "wait": True}
    named = {"step": "start", "command_key": "start#1", "attempt": 1}
    host.post(ev.CommandParked(**named, reason="child", request=request))
    returned = ev.ExecutionReturned(
        child_key="start#1/c0", child_execution_id="7", outcome="COMPLETED", reference=BIG
    )
    host.post(returned)
    assert host.last.awaited == {"execution_id": "7", "status": "ok", "reference": BIG}


def test_rows_of_a_frame_are_read_from_where_they_lie() -> None:
    body = """
workflow:
  - step: start
    loop:
      iterator: i
      cursor: {kind: sqlite, path: jobs.db, claim: select 1}
      spec: {mode: cursor, frame: {max_rows: 3, row_concurrency: 3}}
    tool: {kind: python, code: "1"}
"""
    seen: list[object] = []

    def tools(command: ev.CommandIssued) -> object:
        if command.is_claim:
            return ok(reference=BIG) if command.frame == 0 else ok([])
        seen.append(command.bindings["iter"]["item"])
        return ok(1)

    host = Host(body, tools)
    host.stored = {BIG.ref: {"rows": [1, 2, 3]}}
    host.run()
    assert (seen, host.state.result["rows"]) == ([1, 2, 3], 3)


def test_a_result_that_lies_elsewhere_is_read_for_its_schema() -> None:
    body = "output: {schema: {type: array}}\nworkflow:\n" + python("start")
    host = Host(body, lambda _: ok(reference=BIG))
    host.stored = {BIG.ref: {"rows": []}}
    assert host.run().state.failure.code == "output_schema"


def test_a_command_carries_all_that_is_known_of_a_step() -> None:
    body = """
executor: {spec: {policy: {failure: {mode: best_effort}}}}
workflow:
  - step: start
    loop: {in: 2, iterator: i}
    tool: {kind: python, code: "1"}
    spec: {policy: {failure: {mode: best_effort}}}
    set: {step.seen: 1}
    next: {arcs: [{step: child}]}
  - {step: child, tool: {kind: playbook, path: x}, next: {arcs: [{step: bad}]}}
  - {step: bad, tool: {kind: python, code: "1"}, next: {arcs: [{step: end, on: error}]}}
  - {step: end, tool: {kind: python, code: 'context["start"]; context["child"]; context.get("bad");
      context["workload"]; context["variables"]; context["nobody"]'}}
"""

    def tools(command: ev.CommandIssued) -> object:
        return boom() if command.index == 0 or command.step == "bad" else ok(1)

    host = Host(body, tools).run().returns("start#1/c0", 5).returns("child#1/c0", 5)
    while host.open[0].step != "end":
        host.report(host.open.pop(0))
    steps = host.open[0].bindings["steps"]
    assert steps["start"]["writes"] == {"seen": 1}
    assert steps["start"]["stats"] == {"total": 2, "success": 1, "failed": 1}
    assert [told["index"] for told in steps["start"]["errors"]] == [0]
    assert steps["child"]["child_execution_id"] == "77"
    assert steps["bad"]["error"]["code"] == "python_error"
    assert "nobody" not in steps


def test_ctx_with_a_value_by_reference_reads_as_a_whole() -> None:
    host = Host('result: "{{ ctx }}"\nworkflow: [{step: start}]\n')
    host.append(ev.CtxUpdated(step="start", cause="set", ctx={"small": 1}, refs={"big": BIG}))
    host.stored = {BIG.ref: {"rows": [1]}}
    host.settle()
    assert host.state.result == {"small": 1, "big": {"rows": [1]}}


GONE = Unreadable("result_gone", "it is gone")


def test_an_object_that_is_gone_fails_its_reader() -> None:
    body = "workflow:\n" + python(
        "start", next='{arcs: [{step: end, when: "{{ output.rows[0] == 1 }}"}]}'
    ) + python("end")  # fmt: skip
    host = Host(body, lambda _: ok(reference=BIG))
    host.stored = {BIG.ref: GONE}
    host.run()
    assert (host.state.terminal, host.state.failed_steps) == ("FAILED", ["start"])
    assert (host.state.failure.kind, host.state.failure.code) == ("storage_access", "result_gone")


def test_items_that_are_gone_fail_the_loop_and_its_open_work_is_cancelled() -> None:
    loop = "{in: 3, iterator: i, spec: {mode: parallel, max_in_flight: 2}}"
    host = Host("workflow:\n" + python("start", loop=loop))
    host.append(
        ev.StepEntered(step="start", visit=1),
        ev.LoopStarted(step="start", visit=1, total=3, mode="parallel", max_in_flight=2,
                       items_ref=(BIG,)),
    )  # fmt: skip
    host.stored = {BIG.ref: ["a", "b", "c"]}
    host.settle()
    host.objects[BIG.ref] = GONE
    host.report(host.open.pop(0))
    assert (host.state.terminal, host.state.failure.code) == ("FAILED", "result_gone")
    assert "command.cancelled(start/1)" in host.rows
