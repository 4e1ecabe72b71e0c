"""The server through its own door: the ASGI app, the one client, and a worker by hand."""

from __future__ import annotations

import asyncio

import pytest

from noetl.api.catalog import Register
from noetl.api.commands import Claim, Heartbeat, Held, Release
from noetl.api.executions import Control, Dedup, Execute, Finalize, Fork, Rerun
from noetl.api.problems import Refused
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import HEAD, ONE_STEP, PYTHON, TWO_STEPS, many, rig, virtually

SEVEN = (
    "step.enter", "command.issued", "command.claimed", "command.started", "call.done",
    "command.completed", "step.exit",
)  # fmt: skip


@virtually
async def test_two_steps_make_the_sixteen_rows_of_the_book() -> None:
    async with rig() as r:
        run = await r.start(TWO_STEPS)
        (first,) = await r.claim()
        reported = await r.done(first, {"x": 1}, slots=1)
        await r.done(reported.claimed[0], {"y": 2})
        assert await r.rows(run) == [
            "playbook.started(playbook)",
            *(f"{name}(start)" for name in SEVEN),
            *(f"{name}(end)" for name in SEVEN),
            "playbook.completed(playbook)",
        ]
        told = await r.client.execution(run)
        assert (told.status, told.result, told.last_seq) == ("COMPLETED", {"y": 2}, 16)
        assert await r.client.step_result(run, "start") == {"x": 1}
        log = (await r.client.events(run)).items
        assert [row["seq"] for row in log] == list(range(1, 17))
        assert [row["prev_event_id"] for row in log] == [
            None, *(row["event_id"] for row in log[:-1]),
        ]  # fmt: skip


@virtually
async def test_a_reported_step_brings_the_next_command_in_its_answer_and_no_hint() -> None:
    async with rig() as r:
        run = await r.start(TWO_STEPS)
        (first,) = await r.claim()
        async with r.bus.listen("noetl.commands.>") as words:
            done = r.event(first, "call.done", result=1)
            reported = await r.report(done, slots=2)
            assert [item.node_name for item in reported.claimed] == ["end"]
            assert reported.commands_generated == 1
            log = (await r.client.events(run)).items
            claims = [row for row in log if row["event_type"] == "command.claimed"]
            assert claims[1]["parent_event_id"] == done.event_id
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(4):
                    await anext(words)


@virtually
async def test_the_same_report_five_times_is_stored_once() -> None:
    async with rig() as r:
        run = await r.start(TWO_STEPS)
        (first,) = await r.claim()
        done = r.event(first, "call.done", result=1)
        answers = [await r.report(done, slots=1) for _ in range(5)]
        outcomes = [answer.results[0].outcome for answer in answers]
        assert outcomes == ["stored", *["duplicate"] * 4]
        assert {answer.results[0].seq for answer in answers} == {5}
        claimed = [[item.command_id for item in answer.claimed] for answer in answers]
        assert claimed == [claimed[0]] * 5
        assert len(claimed[0]) == 1
        assert (await r.types(run)).count("call.done") == 1


@virtually
async def test_a_report_of_someone_else_is_late_and_changes_nothing() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (first,) = await r.claim()
        foreign = r.event(first, "call.done", result="wrong")
        reported = await r.report(foreign, worker_id="other")
        assert [item.outcome for item in reported.results] == ["late"]
        assert reported.cancelled == (first.command_id,)
        again = await r.report(foreign, worker_id="other")
        assert [item.outcome for item in again.results] == ["duplicate"]
        await r.done(first, "right")
        assert (await r.client.execution(run)).result == "right"
        assert (await r.types(run)).count("command.late") == 1


@virtually
async def test_a_worker_may_not_decide_and_its_neighbours_are_stored() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (first,) = await r.claim()
        names = ("playbook.completed", "step.enter", "no.such.thing", "command.started")
        reported = await r.report(*(r.event(first, name) for name in names))
        assert [(item.outcome, item.code) for item in reported.results] == [
            ("rejected", "forbidden_event"),
            ("rejected", "forbidden_event"),
            ("rejected", "unknown_event_type"),
            ("stored", None),
        ]
        assert (await r.types(run))[-1] == "command.started"


@virtually
async def test_a_report_for_no_run_is_rejected_alone() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        (first,) = await r.claim()
        stray = r.event(first, "call.done", result=1)
        strange = type(stray)(**{**_fields(stray), "execution_id": "77", "event_id": "78"})
        reported = await r.report(strange, stray)
        assert [(item.outcome, item.code) for item in reported.results] == [
            ("rejected", "unknown_execution"), ("stored", None),
        ]  # fmt: skip


@virtually
async def test_a_lone_command_completed_counts_as_the_report_and_once() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (first,) = await r.claim()
        reported = await r.report(r.event(first, "command.completed", result=5))
        assert [item.outcome for item in reported.results] == ["stored"]
        again = await r.report(r.event(first, "command.completed", result=6))
        assert [item.outcome for item in again.results] == ["duplicate"]
        assert (await r.client.execution(run)).result == 5
        assert (await r.types(run))[-4:] == [
            "call.done", "command.completed", "step.exit", "playbook.completed",
        ]  # fmt: skip


@virtually
async def test_a_lost_worker_gives_way_to_a_second_attempt() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (first,) = await r.claim("w1")
        await r.report(r.event(first, "command.started"), worker_id="w1")
        loop = asyncio.get_running_loop()
        began = loop.time()
        (second,) = await r.claim("w2", wait_seconds=20)
        assert 15 <= loop.time() - began <= 17
        assert (second.command_id, second.attempt) == (first.command_id, 2)
        late = await r.done(first, "old", worker_id="w1")
        assert {item.outcome for item in late.results} == {"late"}
        await r.done(second, "new", worker_id="w2")
        assert (await r.client.execution(run)).result == "new"
        types = await r.types(run)
        assert types[types.index("command.lost") :][:2] == ["command.lost", "command.claimed"]


@virtually
async def test_a_beat_keeps_a_lease_and_tells_what_is_lost() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (first,) = await r.claim("w1")
        held = Held(command_id=first.command_id, attempt=1, checkpoint={"task": "b"})
        for _ in range(6):
            await asyncio.sleep(5)
            beat = await r.client.heartbeat(Heartbeat(worker_id="w1", commands=(held,)))
            assert (beat.extended, beat.lost) == ((first.command_id,), ())
        (second,) = await r.claim("w2", wait_seconds=20)
        assert second.context.checkpoint == {"task": "b"}
        beat = await r.client.heartbeat(Heartbeat(worker_id="w1", commands=(held,)))
        assert (beat.extended, beat.lost, beat.cancel) == ((), (first.command_id,), ())
        await r.client.cancel(run, Control())
        mine = Held(command_id=second.command_id, attempt=2)
        beat = await r.client.heartbeat(Heartbeat(worker_id="w2", commands=(mine,)))
        assert (beat.extended, beat.lost, beat.cancel) == ((), (), (first.command_id,))


@virtually
async def test_three_lost_leases_fail_the_command() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        for _ in range(3):
            while not await r.claim(wait_seconds=20):
                """The loss lets go of a request that waits: nobody may be at its other end."""
        await r.server.finished(run)
        told = await r.client.execution(run)
        assert (told.status, told.error["code"]) == ("FAILED", "lease_exhausted")


@virtually
async def test_a_released_command_is_claimable_at_once_and_was_not_lost() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        for attempt in range(1, 6):
            (mine,) = await r.claim()
            assert mine.attempt == attempt
            await r.client.release(
                Release(
                    worker_id="w", commands=(Held(command_id=mine.command_id, attempt=attempt),)
                )
            )
        (last,) = await r.claim()
        await r.done(last)
        assert await r.status(run) == "COMPLETED"
        assert "command.lost" not in await r.types(run)


@virtually
async def test_two_workers_and_one_command() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        command_id = (await r.store.commands.pending("shared", 1))[0].command_id
        mine = await r.client.claim_one(command_id, "w1")
        assert await r.client.claim_one(command_id, "w1") == mine
        text = f"{run}:start:{command_id}"
        assert (await r.client.claim_one(text, "w1")).command_id == command_id
        with pytest.raises(Refused) as taken:
            await r.client.claim_one(command_id, "w2")
        assert (taken.value.code, taken.value.problem.status) == ("active_claim", 409)
        assert taken.value.problem.retry_after == 15
        await r.done(mine, worker_id="w1")
        with pytest.raises(Refused) as ended:
            await r.client.claim_one(command_id, "w2")
        assert ended.value.code == "already_terminal"
        with pytest.raises(Refused) as unknown:
            await r.client.claim_one("77", "w2")
        assert (unknown.value.code, unknown.value.problem.status) == ("unknown_command", 404)
        asked = Claim(worker_id="w2", pool="shared", event_ids=(command_id, "77"))
        claimed = await r.client.claim(asked)
        assert [(item.event_id, item.code) for item in claimed.skipped] == [
            (command_id, "already_terminal"), ("77", "unknown_command"),
        ]  # fmt: skip


@virtually
async def test_a_parked_claim_gets_work_when_there_is_some_and_nothing_when_there_is_none() -> None:
    async with rig() as r:
        loop = asyncio.get_running_loop()
        assert await r.claim(wait_seconds=20) == []
        assert loop.time() == 20
        waiting = asyncio.create_task(r.claim(wait_seconds=20))
        await asyncio.sleep(5)
        await r.start(ONE_STEP)
        assert [item.node_name for item in await waiting] == ["start"]
        assert loop.time() == 25


@virtually
async def test_a_cancel_of_a_thousand_queued_commands_ends_them_all() -> None:
    async with rig() as r:
        run = await r.start(many(1000, 1000))
        held = await r.claim(slots=3)
        queued = [row.command_id for row in await r.store.commands.pending("shared", 2000)]
        assert len(queued) == 997
        told = await r.client.cancel(run, Control(reason="enough"))
        assert (told.status, told.commands_cancelled) == ("CANCELLED", 1000)
        assert await r.client.cancel(run, Control()) == told
        assert await r.status(run) == "CANCELLED"
        assert await r.claim(slots=64) == []
        with pytest.raises(Refused) as refused:
            await r.client.claim_one(queued[0], "w")
        assert refused.value.code == "execution_cancelled"
        reported = await r.done(held[0])
        assert {item.outcome for item in reported.results} == {"late"}
        assert set(reported.cancelled) == {item.command_id for item in held}
        assert await r.store.commands.pending("shared", 5) == []
        with pytest.raises(Refused) as ended:
            await r.client.finalize(run, Finalize(status="COMPLETED"))
        assert ended.value.code == "already_terminal"


@virtually
async def test_control_of_a_run_that_has_ended_is_refused_and_writes_nothing() -> None:
    async with rig() as r:
        run = await r.start("workflow:\n  - {step: start, tool: {kind: noop}}\n")
        rows = await r.rows(run)
        refusals = []
        for call in (
            r.client.cancel(run, Control()),
            r.client.pause(run, Control()),
            r.client.resume(run, Control()),
            r.client.finalize(run, Finalize(status="failed")),
        ):
            with pytest.raises(Refused) as refused:
                await call
            refusals.append((refused.value.code, refused.value.problem.status))
        assert refusals == [
            ("already_terminal", 409), ("not_running", 409), ("not_paused", 409),
            ("already_terminal", 409),
        ]  # fmt: skip
        assert (await r.client.finalize(run, Finalize(status="success"))).status == "COMPLETED"
        with pytest.raises(Refused) as wrong:
            await r.client.finalize(run, Finalize(status="PENDING"))
        assert wrong.value.code == "bad_status"
        assert await r.rows(run) == rows


@virtually
async def test_a_paused_run_finishes_what_runs_and_goes_on_when_resumed() -> None:
    async with rig() as r:
        run = await r.start(many(10, 4))
        (first,) = await r.claim()
        assert (await r.client.pause(run, Control())).status == "PAUSED"
        assert (await r.client.pause(run, Control())).status == "PAUSED"
        await r.done(first, slots=5)
        assert await r.claim(slots=64) == []
        assert await r.status(run) == "PAUSED"
        commands = (await r.plane.cache.get(run)).state.commands.values()
        queued = next(item.id for item in commands if item.status == "PENDING")
        with pytest.raises(Refused) as refused:
            await r.client.claim_one(queued, "w")
        assert refused.value.code == "execution_paused"
        waiting = asyncio.create_task(r.claim(slots=64, wait_seconds=20))
        await asyncio.sleep(1)
        assert (await r.client.resume(run, Control())).status == "RUNNING"
        work = await waiting
        done = 1
        while work:
            reported = await r.done(work.pop(), slots=64)
            work += reported.claimed
            done += 1
        assert (done, await r.status(run)) == (10, "COMPLETED")
        types = await r.types(run)
        assert types.count("execution.paused") == types.count("execution.resumed") == 1


@virtually
async def test_a_retry_after_a_minute_is_not_early_and_holds_no_slot() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (first,) = await r.claim()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await r.report(
            r.event(first, "command.started"),
            r.event(
                first, "command.parked", reason="retry", delay_ms=60_000, checkpoint={"task": "a"}
            ),
        )
        while not (again := await r.claim(wait_seconds=20)):
            pass
        assert 60 <= loop.time() - began <= 61
        assert (again[0].attempt, again[0].context.checkpoint) == (2, {"task": "a"})
        await r.done(again[0])
        assert (await r.types(run))[3:11] == [
            "command.claimed", "command.started", "command.parked", "timer.set", "timer.fired",
            "command.resumed", "command.claimed", "command.started",
        ][:8]  # fmt: skip


@virtually
async def test_a_callback_resumes_a_waiting_step_once() -> None:
    body = "workflow:\n  - {step: start, tool: {kind: wait, callback: true}}\n"
    async with rig() as r:
        run = await r.start(body)
        state = (await r.plane.cache.get(run)).state
        key = next(iter(state.commands.values())).callback_key
        answer = await r.client.answer(key, b'{"approved":true}')
        assert answer.execution_id == run
        assert await r.client.answer(key, b'{"approved":true}') == answer
        told = await r.client.execution(run)
        assert (told.status, told.result) == ("COMPLETED", {"approved": True})
        codes = []
        for key_, data in ((key, b"1"), ("nobody", b"1"), (key, b"{")):
            with pytest.raises(Refused) as refused:
                await r.client.answer(key_, data)
            codes.append((refused.value.problem.status, refused.value.code))
        assert codes == [(410, "expired"), (404, "not_found"), (400, "bad_json")]


CHILD = f"""apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: child, path: demo/child}}
workflow:
  - step: start
    tool: {PYTHON}
"""
PARENT = """
workflow:
  - step: start
    tool: {kind: playbook, path: demo/child, input: {n: 7}}
"""


@virtually
async def test_a_child_runs_and_its_result_is_the_parents() -> None:
    async with rig() as r:
        await r.client.register(Register(content=CHILD))
        run = await r.start(PARENT)
        (work,) = await r.claim(wait_seconds=20)
        child = await r.client.execution(work.execution_id)
        assert (child.parent_execution_id, child.path, child.workload) == (
            run, "demo/child", {"n": 7},
        )  # fmt: skip
        await r.done(work, {"made": 1})
        await r.server.finished(run)
        told = await r.client.execution(run)
        assert (told.status, told.result) == ("COMPLETED", {"made": 1})
        assert await r.types(run) == [
            "playbook.started", "step.enter", "command.issued", "execution.requested",
            "command.parked", "execution.returned", "command.completed", "step.exit",
            "playbook.completed",
        ]  # fmt: skip


@virtually
async def test_a_cancelled_parent_cancels_the_child_that_it_waits_for() -> None:
    async with rig() as r:
        await r.client.register(Register(content=CHILD))
        run = await r.start(PARENT)
        (work,) = await r.claim(wait_seconds=20)
        told = await r.client.cancel(run, Control())
        assert told.cancelled_children == 1
        row = await r.server.finished(work.execution_id)
        assert row.status == "CANCELLED"


@virtually
async def test_a_child_that_cannot_start_fails_its_parent() -> None:
    async with rig() as r:
        run = await r.start(PARENT)
        await r.server.finished(run)
        told = await r.client.execution(run)
        assert told.status == "FAILED"
        assert told.error["kind"] == "child_failed"


@virtually
async def test_two_servers_append_to_one_run_and_decide_nothing_twice() -> None:
    store = MemoryStore()
    async with rig(store) as a, rig(store, machine=2) as b:
        run = await a.start(many(40, 40))
        mine = await a.claim("wa", slots=20)
        yours = await b.claim("wb", slots=20)
        assert len({item.command_id for item in mine + yours}) == 40
        async with asyncio.TaskGroup() as group:
            for one, other in zip(mine, yours, strict=True):
                group.create_task(a.done(one, worker_id="wa"))
                group.create_task(b.done(other, worker_id="wb"))
        log = (await a.client.events(run, limit=1000)).items
        assert [row["seq"] for row in log] == list(range(1, len(log) + 1))
        assert len({row["event_id"] for row in log}) == len(log)
        types = [row["event_type"] for row in log]
        counted = {name: types.count(name) for name in set(types)}
        assert counted == {
            "playbook.started": 1, "step.enter": 1, "loop.started": 1, "command.issued": 40,
            "command.claimed": 40, "command.started": 40, "call.done": 40,
            "command.completed": 40, "loop.done": 1, "step.exit": 1, "playbook.completed": 1,
        }  # fmt: skip
        assert await b.status(run) == await a.status(run) == "COMPLETED"


@virtually
async def test_a_hundred_starts_with_one_key_are_one_run() -> None:
    async with rig() as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        asked = Execute(path="demo/it", dedup=Dedup(key="inv-77", window_secs=300))
        started = await asyncio.gather(*(r.client.execute(asked) for _ in range(100)))
        assert len({item.execution_id for item in started}) == 1
        assert sorted({item.status for item in started}) == ["duplicate", "started"]
        await asyncio.sleep(301)
        assert (await r.client.execute(asked)).status == "started"


@virtually
async def test_two_servers_with_one_key_start_one_run() -> None:
    store = MemoryStore()
    async with rig(store) as a, rig(store, machine=2) as b:
        await a.client.register(Register(content=HEAD + ONE_STEP))
        asked = Execute(path="demo/it", dedup=Dedup(key="k"))
        started = await asyncio.gather(*(r.client.execute(asked) for r in (a, b, a, b)))
        assert len({item.execution_id for item in started}) == 1


def limited(on_limit: str) -> str:
    return (
        "executor: {spec: {concurrency: {key: '{{ team }}', limit: 1, on_limit: "
        f"{on_limit}}}}}}}\nworkload: {{team: red}}\n" + ONE_STEP.lstrip()
    )


@virtually
async def test_a_concurrency_key_queues_the_second_run_until_the_first_ends() -> None:
    async with rig() as r:
        first = await r.start(limited("queue"))
        second = await r.start(limited("queue"))
        other = await r.start(limited("queue"), payload={"team": "blue"})
        found = [await r.status(run) for run in (first, second, other)]
        assert found == ["RUNNING", "PENDING", "RUNNING"]
        for work in await r.claim(slots=5):
            await r.done(work)
        (work,) = await r.claim(wait_seconds=20)
        assert work.execution_id == second
        assert "execution.admitted" in await r.types(second)


@virtually
async def test_a_concurrency_key_rejects_or_replaces() -> None:
    async with rig() as r:
        first = await r.start(limited("reject"))
        with pytest.raises(Refused) as refused:
            await r.start(limited("reject"))
        assert (refused.value.code, refused.value.problem.status) == ("concurrency_limit", 409)
        second = await r.start(limited("cancel_previous"))
        assert await r.status(first) == "CANCELLED"
        assert await r.status(second) == "RUNNING"


@virtually
async def test_a_rerun_takes_the_workload_and_a_fork_the_state() -> None:
    async with rig() as r:
        run = await r.start("workload: {a: 1}\n" + TWO_STEPS.lstrip(), payload={"b": 2})
        (first,) = await r.claim()
        (second,) = (await r.done(first, {"x": 1}, slots=1)).claimed
        failure = {"kind": "python", "code": "python_error", "message": "boom"}
        await r.report(r.event(second, "call.error", error=failure))
        assert await r.status(run) == "FAILED"
        rows = await r.rows(run)
        again = await r.client.rerun(run, Rerun())
        told = await r.client.execution(again.execution_id)
        assert (told.rerun_of, told.workload) == (run, {"a": 1, "b": 2})
        await r.client.cancel(again.execution_id, Control())
        fork = await r.client.fork(run, Fork(from_step="failed", results={"start": {"x": 9}}))
        (work,) = await r.claim()
        assert (work.execution_id, work.node_name) == (fork.execution_id, "end")
        await r.done(work, "fine")
        told = await r.client.execution(fork.execution_id)
        assert (told.status, told.result, told.forked_from["execution_id"]) == (
            "COMPLETED", "fine", run,
        )  # fmt: skip
        assert await r.client.step_result(fork.execution_id, "start") == {"x": 9}
        assert await r.rows(run) == rows
        with pytest.raises(Refused) as refused:
            await r.client.fork(run, Fork(from_seq=999))
        assert (refused.value.code, refused.value.problem.status) == ("bad_position", 422)


@virtually
async def test_why_names_a_pool_without_workers() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        told = await r.client.why(run)
        (reason,) = told["reasons"]
        assert (reason["code"], reason["detail"]) == (
            "waiting_for_worker", "pool `shared` has 0 live workers",
        )  # fmt: skip
        await r.claim()
        assert (await r.client.why(run))["reasons"][0]["code"] == "running_on_worker"


@virtually
async def test_a_command_that_nobody_claims_is_hinted_again() -> None:
    async with rig() as r:
        hints = r.bus.hints("shared")
        await r.start(ONE_STEP)
        (first,) = await hints.fetch(1, 1)
        await first.ack()
        (second,) = await hints.fetch(1, 60)
        assert first.payload == second.payload


def _fields(report):
    return {name: getattr(report, name) for name in report.__struct_fields__}
