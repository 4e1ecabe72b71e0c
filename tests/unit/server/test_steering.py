"""Steering runs: keys that are used twice, many runs at once, single steps, forks on the way."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.api.catalog import Register
from noetl.api.commands import Heartbeat, Held
from noetl.api.executions import Control, Finalize, Fork, Rerun
from noetl.api.http import AsgiTransport
from noetl.api.problems import Refused
from noetl.api.reading import Bulk, BulkFilter
from noetl.server.runs import positions
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import HEAD, ONE_STEP, PYTHON, TWO_STEPS, many, rig, virtually

FAILURE = {"kind": "x", "code": "boom", "message": "no"}
BEST = f"""
executor: {{spec: {{policy: {{failure: {{mode: best_effort}}}}}}}}
workflow:
  - step: start
    next: {{spec: {{mode: inclusive}}, arcs: [{{step: b}}, {{step: slow}}]}}
  - {{step: slow, tool: {{kind: wait, seconds: 3600}}}}
  - {{step: b, tool: {PYTHON}, next: {{arcs: [{{step: c}}]}}}}
  - {{step: c, tool: {PYTHON}}}
"""


async def refused(call) -> tuple[int, str]:
    with pytest.raises(Refused) as refusal:
        await call
    return refusal.value.problem.status, refusal.value.code


async def failed(r) -> None:
    (work,) = await r.claim()
    await r.report(r.event(work, "command.started"), r.event(work, "call.error", error=FAILURE))


# ----------------------------------------------------------------------------- keys


@virtually
async def test_the_same_key_is_the_same_call_on_any_server() -> None:
    store = MemoryStore()
    async with rig(store) as one, rig(store, machine=2) as two:
        run = await one.start(TWO_STEPS)
        first = await one.client.pause(run, Control(), key="k1")
        await one.client.resume(run, Control(), key="k2")
        assert await two.client.pause(run, Control(), key="k1") == first
        assert await two.status(run) == "RUNNING"
        other = await one.client.pause(run, Control(), key="k3")
        assert other == first
        assert await one.status(run) == "PAUSED"
        assert (await one.client.resume(run, Control(), key="k2")).status == "RUNNING"
        assert await one.status(run) == "PAUSED"
        await one.client.cancel(run, Control())
        assert (await two.client.pause(run, Control(), key="k1")).status == "PAUSED"
        assert await refused(one.client.pause(run, Control(), key="k4")) == (409, "not_running")
        assert await refused(one.client.pause(run, Control(), key="a b")) == (
            422, "validation_failed",
        )  # fmt: skip


@virtually
async def test_a_repeated_cancel_is_told_what_the_first_one_closed() -> None:
    store = MemoryStore()
    async with rig(store) as one, rig(store, machine=2) as two:
        run = await one.start(many(9, 7))
        told = await one.client.cancel(run, Control(), key="k")
        assert (told.commands_cancelled, told.cancelled_children) == (7, 0)
        assert await one.client.cancel(run, Control()) == told
        assert await two.client.cancel(run, Control(), key="k") == told
        done = await one.start(ONE_STEP)
        ended = await one.client.finalize(done, Finalize(status="FAILED"), key="f")
        assert await two.client.finalize(done, Finalize(status="error"), key="f") == ended
        assert await refused(two.client.cancel(done, Control())) == (409, "already_terminal")


@virtually
async def test_a_key_starts_one_rerun_and_one_fork() -> None:
    async with rig() as r:
        run = await r.start(TWO_STEPS)
        (work,) = await r.claim()
        await r.done(work)
        first = await r.client.rerun(run, Rerun(), key="k")
        again = await r.client.rerun(run, Rerun(), key="k")
        assert (first.status, again.status) == ("started", "duplicate")
        assert first.execution_id == again.execution_id
        other = r.client.rerun(run, Rerun(payload={"x": 1}), key="k")
        assert await refused(other) == (409, "dedup_conflict")
        fork = await r.client.fork(run, Fork(from_step="end"), key="k")
        assert fork.execution_id != first.execution_id
        same = await r.client.fork(run, Fork(from_step="end"), key="k")
        assert same.execution_id == fork.execution_id
        assert await refused(r.client.fork(run, Fork(from_seq=1), key="k")) == (
            409, "dedup_conflict",
        )  # fmt: skip
        moved = await r.client.rerun(run, Rerun(pool="gpu"))
        assert (await r.client.execution(moved.execution_id)).pool == "gpu"


# ----------------------------------------------------------------------------- forks


@virtually
async def test_a_fork_begins_in_the_state_that_replay_tells() -> None:
    arcs = "next: {arcs: [{step: end}]}"
    async with rig() as r:
        run = await r.start(
            TWO_STEPS.replace(arcs, f"set: {{ctx.x: '{{{{ output }}}}'}}\n    {arcs}")
        )
        (work,) = await r.claim()
        await r.done(work, {"a": 1})
        rows = await r.rows(run)
        for seq in range(1, len(rows) + 1):
            forked = await r.client.fork(run, Fork(from_seq=seq))
            begun = await r.client.state(forked.execution_id, 2)
            is_amid = rows[seq - 1].startswith("ctx.updated")  # one decision with what follows
            told = await r.client.state(run, seq + is_amid)
            assert (seq, begun.steps, begun.ctx) == (seq, told.steps, told.ctx)
        assert await r.rows(run) == rows


@virtually
async def test_a_fork_onto_a_version_without_the_done_steps_names_them() -> None:
    async with rig() as r:
        run = await r.start(TWO_STEPS)
        (work,) = await r.claim()
        await r.done(work)
        text = HEAD + ONE_STEP.replace("start", "begin")
        await r.client.register(Register(content=text))
        with pytest.raises(Refused) as refusal:
            await r.client.fork(run, Fork(from_step="end", version="latest"))
        problem = refusal.value.problem
        assert (problem.status, problem.code) == (409, "version_conflict")
        assert [item["pointer"] for item in problem.errors] == ["/steps/start", "/steps/end"]
        for body in (Fork(from_seq=3, set={"workload.x": 1}), Fork(from_seq=3, results={"no": 1})):
            assert await refused(r.client.fork(run, body)) == (422, "validation_failed")
        for body in (Fork(), Fork(from_seq=1, from_step="x"), Fork(from_step="no"),
                     Fork(from_step="failed"), Fork(from_event_id="77")):  # fmt: skip
            assert await refused(r.client.fork(run, body)) == (422, "bad_position")


@virtually
async def test_a_fork_from_the_failed_step_with_an_edited_ctx_runs_only_what_follows() -> None:
    body = f"""
workflow:
  - step: start
    tool: {PYTHON}
    set: {{ctx.table: wrong}}
    next: {{arcs: [{{step: load}}]}}
  - step: load
    tool: {{kind: python, code: "1", input: {{table: "{{{{ ctx.table }}}}"}}}}
    next: {{arcs: [{{step: end}}]}}
  - {{step: end, tool: {PYTHON}}}
"""
    old = positions._PAGE  # noqa: SLF001 - small pages
    positions._PAGE = 4  # type: ignore[misc]  # noqa: SLF001 - as above
    try:
        async with rig() as r:
            run = await r.start(body)
            (work,) = await r.claim()
            await r.done(work)
            await failed(r)
            assert await r.status(run) == "FAILED"
            rows = await r.rows(run)
            made = await r.client.fork(run, Fork(from_step="failed", set={"ctx.table": "right"}))
            (work,) = await r.claim()
            assert (work.execution_id, work.node_name) == (made.execution_id, "load")
            await r.done(work)
            (work,) = await r.claim()
            await r.done(work)
            fork = await r.client.execution(made.execution_id)
            assert (fork.status, fork.ctx["table"]) == ("COMPLETED", "right")
            assert fork.forked_from is not None
            assert fork.forked_from["execution_id"] == run
            entered = [row for row in await r.rows(made.execution_id) if row.startswith("step.en")]
            assert entered == ["step.enter(load)", "step.enter(end)"]
            assert await r.rows(run) == rows
    finally:
        positions._PAGE = old  # type: ignore[misc]  # noqa: SLF001 - as above


# ----------------------------------------------------------------------------- pause, cancel


@virtually
async def test_a_pause_within_a_loop_lets_nothing_be_claimed_and_loses_no_result() -> None:
    async with rig() as r:
        run = await r.start(many(100, 10))
        held = await r.claim(slots=4)
        await r.client.pause(run, Control())
        assert await r.claim(slots=10) == []
        for command in held:
            await r.done(command, command.iteration)
        assert await r.claim(slots=10) == []
        await r.client.resume(run, Control())
        while await r.status(run) == "RUNNING":
            for command in reversed(await r.claim(slots=10)):
                await r.done(command, command.iteration)
        result = await r.client.step_result(run, "start")
        assert (await r.status(run), result) == ("COMPLETED", list(range(100)))


@virtually
async def test_a_cancelled_run_gives_no_work_and_a_late_result_is_late() -> None:
    async with rig() as r:
        run = await r.start(many(4, 4))
        held = await r.claim(slots=1)
        pending = await r.store.commands.pending("shared", 10)
        await r.client.cancel(run, Control())
        for row in pending:
            answer = r.client.claim_one(row.command_id, "other")
            status, code = await refused(answer)
            assert (status, code) in {(409, "execution_cancelled"), (409, "already_terminal")}
        mine = Held(command_id=held[0].command_id, attempt=held[0].attempt)
        beat = await r.client.heartbeat(Heartbeat(worker_id="w", commands=(mine,)))
        assert (beat.extended, beat.cancel) == ((), (held[0].command_id,))
        late = await r.report(r.event(held[0], "call.done", result=1))
        assert [item.outcome for item in late.results] == ["late"]


# ----------------------------------------------------------------------------- steps


@virtually
async def test_a_failed_step_is_tried_again_while_the_run_goes_on() -> None:
    async with rig() as r:
        run = await r.start(BEST)
        assert await refused(r.client.retry_step(run, "b")) == (409, "not_retryable")
        await failed(r)
        assert await r.status(run) == "RUNNING"
        told = await r.client.retry_step(run, "b", key="k")
        assert (told.step, told.visit, told.status) == ("b", 2, "RUNNING")
        assert await r.client.retry_step(run, "b", key="k") == told
        assert await refused(r.client.retry_step(run, "b")) == (409, "not_retryable")
        (work,) = await r.claim()
        await r.done(work)
        (work,) = await r.claim()
        assert work.node_name == "c"
        await r.done(work)
        assert await r.client.retry_step(run, "b", key="k") == told
        assert await refused(r.client.retry_step(run, "c")) == (409, "not_retryable")
        assert await refused(r.client.retry_step(run, "nobody")) == (404, "not_found")
        await asyncio.sleep(3602)
        ended = await r.client.execution(run)
        assert (ended.status, ended.failed_steps) == ("COMPLETED", ())


@virtually
async def test_a_run_that_ends_with_its_first_failure_retries_nothing() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        await failed(r)
        with pytest.raises(Refused) as refusal:
            await r.client.retry_step(run, "start")
        assert refusal.value.code == "not_retryable"
        assert refusal.value.hint == f"noetl executions fork {run} --step start"


# ----------------------------------------------------------------------------- many at once


@virtually
async def test_many_runs_are_steered_each_on_its_own() -> None:
    async with rig() as r:
        runs = [await r.start(ONE_STEP, labels={"team": "a"}) for _ in range(250)]
        other = await r.start(ONE_STEP, labels={"team": "b"})
        await r.client.finalize(runs[7], Finalize(status="COMPLETED"))
        wanted = BulkFilter(label="team:a")
        asked = Bulk(action="pause", filter=wanted, dry_run=True)
        dry = await r.client.bulk(asked)
        assert (dry.matched, dry.done, dry.results[0].outcome) == (250, 0, "matched")
        told = await r.client.bulk(Bulk(action="pause", filter=wanted))
        assert (told.matched, told.done, told.failed, told.has_more) == (250, 249, 1, False)
        assert [item.execution_id for item in told.results] == runs
        assert told.results[7].error is not None
        assert told.results[7].error["code"] == "not_running"
        assert await r.status(other) == "RUNNING"
        some = await r.client.bulk(
            Bulk(action="resume", filter=BulkFilter(status="paused"), limit=100)
        )
        assert (some.done, some.has_more) == (100, True)
        ended = await r.client.bulk(
            Bulk(action="cancel", filter=BulkFilter(path="demo/*", status=("RUNNING", "PAUSED")))
        )
        assert ended.done == 250
        few = [runs[0], runs[1], runs[0], "77"]
        again = Bulk(action="rerun", filter=BulkFilter(execution_ids=tuple(few)))
        first = await r.client.bulk(again, key="k")
        assert [item.execution_id for item in first.results] == runs[:2]
        same = await r.client.bulk(again, key="k")
        assert [item.started for item in same.results] == [item.started for item in first.results]


@virtually
async def test_what_names_no_run_or_too_much_is_refused() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        for body in (
            Bulk(action="cancel", filter=BulkFilter()),
            Bulk(action="cancel", filter=BulkFilter(path="*"), limit=10_001),
            Bulk(action="cancel", filter=BulkFilter(execution_ids=(run,), path="x")),
        ):
            assert await refused(r.client.bulk(body)) == (422, "validation_failed")
        answer = await AsgiTransport(r.server.asgi).request(
            "POST", "/api/executions/bulk", b'{"action":"cancel","filter":{"colour":"red"}}'
        )
        assert msgspec.json.decode(answer.body)["code"] == "unknown_field"
        assert await r.status(run) == "RUNNING"
