"""Acceptance of the engine chapter, through the API of the real server with real tools."""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from noetl.api.executions import Control, Finalize, Fork
from noetl.api.problems import Refused
from tests.e2e.sites import TAKER, Full, Local, compare


@pytest.fixture(params=["local", "stack"])
def opened(request, tmp_path, tmp_path_factory, worker_id):
    """How a site is opened: in this process or on the full stack; what ran must be the same."""
    if request.param == "local":
        taker = request.config.stash.get(TAKER, None)
        where = Local(tmp_path, None if taker is None else taker(request.node))
    else:
        where = Full(request.getfixturevalue("full_stack"))
    yield where.opened
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    case = re.sub(r"\W+", "_", request.node.name.replace(request.param, "", 1))
    compare(where, case, shared / "endings")


@pytest.fixture
def answering():
    """A server of the test that is broken on purpose."""

    class Broken(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(500)
            self.end_headers()
            self.wfile.write(b"out of order")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Broken)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


FAILING = {
    "python": ("{kind: python, code: \"raise ValueError('no')\"}", "python"),
    "http": ("{kind: http, url: URL}", "server_error"),
    "sql": ("{kind: sqlite, path: a.db, command: select * from nowhere}", "db_error"),
    "rule": ("{kind: python, code: 'result = 1', spec: {policy: {rules: [{then: {do: fail}}]}}}",
             "policy"),
}  # fmt: skip


@pytest.mark.parametrize("what", FAILING)
async def test_a_failure_that_nothing_handles_fails_the_run_and_names_the_step(
    opened, answering, what
):
    tool, kind = FAILING[what]
    body = f"workflow:\n  - step: start\n    tool: {tool.replace('URL', answering)}\n"
    async with opened() as site:
        found = await site.run(body)

    assert (found.status, found.error["kind"], found.error["step"]) == ("FAILED", kind, "start")
    assert found.failed_steps == ("start",)


@pytest.mark.parametrize("what", FAILING)
async def test_the_same_failure_with_an_error_arc_completes_and_is_shown_as_handled(
    opened, answering, what
):
    tool, _ = FAILING[what]
    body = f"""workflow:
  - step: start
    tool: {tool.replace("URL", answering)}
    next: {{arcs: [{{step: fix, on: error}}]}}
  - {{step: fix, tool: {{kind: noop, result: fixed}}}}
"""
    async with opened() as site:
        found = await site.run(body)
        rows = await site.rows(found.execution_id)

    (left,) = [r for r in rows if r["event_type"] == "step.exit" and r["step"] == "start"]
    assert (found.status, found.error) == ("COMPLETED", None)
    assert (left["status"], left["context"]["handled"]) == ("FAILED", True)
    assert rows[-1]["event_type"] == "playbook.completed"


async def test_a_parallel_loop_keeps_its_limit_and_its_order(opened):
    body = """workflow:
  - step: start
    loop: {in: 100, iterator: i, spec: {mode: parallel, max_in_flight: 4}}
    tool: {kind: python, input: {i: "{{ i }}"}, code: "result = i * i"}
"""
    async with opened() as site:
        found = await site.run(body)
        rows = await site.rows(found.execution_id)

    assert found.result == [i * i for i in range(100)]
    open_, most = 0, 0
    for row in rows:
        open_ += row["event_type"] == "command.issued"
        open_ -= row["event_type"] in {"command.completed", "command.failed"}
        most = max(most, open_)
    assert (open_, most) == (0, 4)


async def test_a_sequential_loop_sees_what_the_iteration_before_wrote(opened):
    body = """workflow:
  - step: start
    loop: {in: 5, iterator: i}
    tool:
      kind: python
      input: {sum: "{{ ctx.sum | default(0) }}", i: "{{ i }}"}
      code: "result = sum + i"
      set: {ctx.sum: "{{ output.data }}"}
"""
    async with opened() as site:
        found = await site.run(body)

    assert (found.result, found.ctx) == ([0, 1, 3, 6, 10], {"sum": 10})


LEAF = """workflow:
  - {step: start, tool: {kind: python, input: {n: "{{ workload.n }}"}, code: "result = n + 1"}}
"""
MIDDLE = """workflow:
  - step: start
    tool:
      - {name: a, kind: python, code: "result = 1"}
      - {name: c, kind: playbook, path: t/leaf, input: {n: "{{ workload.n }}"}}
"""


async def test_with_one_slot_a_child_of_a_child_completes(opened):
    async with opened(slots=1) as site:
        await site.register("leaf", LEAF)
        await site.register("middle", MIDDLE)
        found = await site.run(
            "workflow:\n  - {step: start, tool: {kind: playbook, path: t/middle, input: {n: 5}}}\n"
        )

    assert (found.status, found.result) == ("COMPLETED", {"a": 1, "c": 6})


async def test_a_child_that_fails_fails_its_parent_and_a_cancelled_parent_takes_it_along(opened):
    waiting = "workflow:\n  - {step: start, tool: {kind: wait, seconds: 3600}}\n"
    async with opened() as site:
        await site.register("broken", "workflow:\n  - {step: start, tool: {kind: python, code: "
                            "\"raise ValueError('x')\"}}\n")  # fmt: skip
        failed = await site.run(
            "workflow:\n  - {step: start, tool: {kind: playbook, path: t/broken}}\n", "a"
        )
        await site.register("waiting", waiting)
        parent = await site.start(
            "workflow:\n"
            "  - step: start\n"
            "    next: {spec: {mode: inclusive}, arcs: [{step: kept}, {step: left}]}\n"
            "  - {step: kept, tool: {kind: playbook, path: t/waiting, wait: false}}\n"
            "  - {step: left, tool: {kind: playbook, path: t/waiting}}\n",
            "b",
        )
        children = await site.children(parent, 2)
        for child in children.values():
            await site.saw(child, lambda row: row["event_type"] == "timer.set")
        await site.saw(parent, lambda row: row["event_type"] == "execution.returned")
        await site.client.cancel(parent, Control(reason="enough"))
        left = await site.ended(children["left#1/c0"])
        kept = await site.client.execution(children["kept#1/c0"])
        await site.client.cancel(kept.execution_id, Control(reason="the test is over"))

    assert (failed.error["kind"], failed.error["step"]) == ("child_failed", "start")
    assert (left.status, kept.status) == ("CANCELLED", "RUNNING")


@pytest.mark.parametrize(("length", "is_large"), [(65_534, False), (65_535, True)])
async def test_a_result_is_inline_up_to_64_kib_and_a_reference_beyond(opened, length, is_large):
    body = f"""workflow:
  - step: start
    tool: {{kind: python, code: "result = 'x' * {length}"}}
    next: {{arcs: [{{step: count}}]}}
  - step: count
    tool: {{kind: python, input: {{t: "{{{{ start }}}}"}}, code: "result = len(t)"}}
"""
    async with opened() as site:
        found = await site.run(body)
        rows = await site.rows(found.execution_id)

    (done,) = [r for r in rows if r["event_type"] == "call.done" and r["step"] == "start"]
    assert ("reference" in done["result"]) is is_large
    assert found.result == length


async def test_a_command_carries_no_value_that_its_templates_do_not_name(opened):
    body = """workload: {wanted: 1, secretive: canary-1}
workflow:
  - step: start
    tool: {kind: python, code: "result = {'value': 'canary-2'}"}
    set: {ctx.other: canary-3, ctx.used: 2}
    next: {arcs: [{step: next}]}
  - step: next
    input: {a: "{{ workload.wanted }}", b: "{{ ctx.used }}"}
    tool: {kind: python, code: "result = a + b"}
"""
    async with opened() as site:
        found = await site.run(body)
        rows = await site.rows(found.execution_id)

    (issued,) = [r for r in rows if r["event_type"] == "command.issued" and r["step"] == "next"]
    assert "canary" not in json.dumps(issued)
    assert found.result == 3


async def test_a_failed_branch_stops_the_others_or_lets_them_finish(opened):
    body = """executor: {spec: {policy: {failure: {mode: MODE}}}}
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: bad}, {step: slow}]}
  - {step: bad, tool: {kind: python, code: "raise ValueError('x')"}}
  - {step: slow, tool: {kind: wait, seconds: WAIT}, next: {arcs: [{step: last}]}}
  - {step: last, tool: {kind: python, code: "result = 1"}}
"""
    async with opened() as site:
        # The one that is stopped would wait for longer than any interpreter takes to start.
        stopped = body.replace("MODE", "fail_fast").replace("WAIT", "600")
        fast = await site.run(stopped, "fast")
        best = await site.run(body.replace("MODE", "best_effort").replace("WAIT", "0.2"), "best")

    assert (fast.status, fast.step_states["slow"]["status"]) == ("FAILED", "CANCELLED")
    assert "last" not in fast.step_states
    assert (best.status, best.step_states["last"]["status"]) == ("FAILED", "COMPLETED")


async def test_the_final_step_runs_after_success_and_failure_and_not_after_cancel(opened):
    body = """executor: {spec: {final_step: bye}}
workflow:
  - {step: start, tool: TOOL}
  - step: bye
    tool: {kind: python, input: {s: "{{ execution.outcome.status }}"}, code: "result = s"}
"""
    async with opened() as site:
        good = await site.run(body.replace("TOOL", "{kind: python, code: 'result = 1'}"), "a")
        bad = await site.run(body.replace("TOOL", "{kind: python, code: '1 / 0'}"), "b")
        held = await site.start(body.replace("TOOL", "{kind: wait, seconds: 3600}"), "c")
        await site.client.cancel(held, Control())
        gone = await site.ended(held)

    assert (good.status, good.step_states["bye"]["status"]) == ("COMPLETED", "COMPLETED")
    assert (bad.status, bad.step_states["bye"]["status"]) == ("FAILED", "COMPLETED")
    assert (gone.status, "bye" in gone.step_states) == ("CANCELLED", False)


@pytest.mark.parametrize("on_limit", ["queue", "reject", "cancel_previous"])
async def test_runs_of_one_key_wait_are_refused_or_replace_each_other(opened, on_limit):
    limit = f'{{key: "{on_limit}-{{{{ workload.k }}}}", limit: 1, on_limit: {on_limit}}}'
    body = f"""executor: {{spec: {{concurrency: {limit}}}}}
workload: {{k: 1}}
workflow:
  - {{step: start, tool: {{kind: wait, seconds: 3600}}}}
"""
    async with opened() as site:
        first = await site.start(body)
        if on_limit == "reject":
            with pytest.raises(Refused) as refused:
                await site.start(body)
            assert refused.value.code == "concurrency_limit"
            return
        second = await site.start(body)
        if on_limit == "cancel_previous":
            assert (await site.ended(first)).status == "CANCELLED"
            assert (await site.client.execution(second)).status == "RUNNING"
            return
        assert (await site.client.execution(second)).status == "PENDING"
        await site.client.finalize(first, Finalize(status="COMPLETED", result=1))
        await site.saw(second, lambda row: row["event_type"] == "timer.set")
        assert (await site.client.execution(second)).status == "RUNNING"


async def test_why_names_a_pool_without_workers(opened):
    body = "workflow:\n  - {step: start, tool: {kind: python, code: '1'}, spec: {pool: nobody}}\n"
    async with opened(unstaffed="nobody") as site:
        execution_id = await site.start(body)
        told = await site.client.why(execution_id)

    (reason,) = told["reasons"]
    assert (reason["code"], reason["pool"], reason["live_workers"]) == (
        "waiting_for_worker", "nobody", 0,
    )  # fmt: skip


async def test_a_fork_from_the_failed_step_with_an_edited_result_runs_only_what_follows(opened):
    body = """workflow:
  - {step: start, tool: {kind: python, code: "result = 0"}, next: {arcs: [{step: divide}]}}
  - step: divide
    tool: {kind: python, input: {n: "{{ start }}"}, code: "result = 10 / n"}
"""
    async with opened() as site:
        source = await site.run(body)
        before = await site.rows(source.execution_id)
        made = await site.client.fork(
            source.execution_id, Fork(from_step="failed", results={"start": 4})
        )
        found = await site.ended(made.execution_id)
        rows = await site.rows(made.execution_id)
        after = await site.rows(source.execution_id)

    assert (source.status, found.status, found.result) == ("FAILED", "COMPLETED", 2.5)
    assert [r["step"] for r in rows if r["event_type"] == "step.enter"] == ["divide"]
    assert after == before
