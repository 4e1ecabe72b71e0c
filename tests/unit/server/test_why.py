"""Why a run does not move: every code in a situation of its own, with a hint that acts on it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from noetl.api.catalog import Register
from noetl.api.executions import Control, Execute, Finalize
from noetl.api.runtime import WorkerEntry
from noetl.engine import events as ev
from noetl.server.ingest.posts import Post, Stamped
from tests.unit.server.rig import HEAD, ONE_STEP, TWO_STEPS, many, rig, virtually

FAILURE = {"kind": "x", "code": "boom", "message": "no such table"}
LIMITED = f"executor: {{spec: {{concurrency: {{key: one, limit: 1}}}}}}\n{ONE_STEP.lstrip()}"
CURSOR = """
workflow:
  - step: a
    loop:
      cursor: {kind: sqlite, path: jobs.db, claim: select 1}
      iterator: row
      spec: {mode: cursor, max_in_flight: 2, frame: {max_rows: 3}}
    tool: {kind: python, code: "1"}
"""


async def why(r, run: str):
    """The answer, with every reason whole."""
    told = await r.client.why(run)
    assert set(told) == {"execution_id", "status", "summary", "reasons"}
    for reason in told["reasons"]:
        assert {"code", "since", "step", "detail", "hint"} <= reason.keys()
        assert reason["hint"]
        assert reason["detail"] in told["summary"] or len(told["reasons"]) > 3
    return told


async def only(r, run: str):
    (reason,) = (await why(r, run))["reasons"]
    return reason


@virtually
async def test_terminal() -> None:
    async with rig() as r:
        failed = await r.start(ONE_STEP)
        (work,) = await r.claim()
        await r.report(r.event(work, "call.error", error=FAILURE))
        reason = await only(r, failed)
        assert (reason["code"], reason["step"]) == ("terminal", "start")
        assert reason["detail"] == "it failed at `start`: no such table"
        assert f"noetl executions fork {failed} --step failed" in reason["hint"]
        cancelled = await r.start(ONE_STEP)
        await r.client.cancel(cancelled, Control(reason="not needed"))
        reason = await only(r, cancelled)
        assert reason["detail"] == "it was cancelled by user: not needed"
        completed = await r.start(ONE_STEP)
        await r.client.finalize(completed, Finalize(status="completed"))
        reason = await only(r, completed)
        assert (reason["detail"], reason["since"]) == (
            "it is COMPLETED", (await r.client.execution(completed)).completed_at,
        )  # fmt: skip


@virtually
async def test_paused() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        await r.client.pause(run, Control())
        reason = await only(r, run)
        assert (reason["code"], reason["hint"]) == ("paused", f"noetl executions resume {run}")
        assert reason["since"] is not None


@virtually
async def test_waiting_for_worker_and_queue_backlog() -> None:
    async with rig() as r:
        run = await r.start(TWO_STEPS)
        reason = await only(r, run)
        assert (reason["code"], reason["pool"], reason["live_workers"]) == (
            "waiting_for_worker", "shared", 0,
        )  # fmt: skip
        assert reason["hint"] == "noetl worker --pool shared"
        assert (reason["detail"], reason["since"]) == (
            "pool `shared` has 0 live workers", "2026-01-01T00:00:00.000000Z",
        )  # fmt: skip
        await r.client.register_worker(
            WorkerEntry(name="w", capacity=4, runtime={"pool": "shared"})
        )
        others = [await r.start(ONE_STEP, priority=9) for _ in range(3)]
        reason = await only(r, run)
        assert (reason["code"], reason["place"], reason["live_slots"]) == ("queue_backlog", 3, 4)
        assert [(await only(r, other))["place"] for other in others] == [0, 1, 2]


@virtually
async def test_running_on_worker_and_lease_expired() -> None:
    async with rig(lease_s=10.0) as r:
        await r.client.register_worker(
            WorkerEntry(name="w", capacity=4, runtime={"pool": "shared"})
        )
        run = await r.start(ONE_STEP)
        (work,) = await r.claim()
        await r.report(r.event(work, "command.started"))
        reason = await only(r, run)
        assert (reason["code"], reason["worker_id"]) == ("running_on_worker", "w")
        assert reason["heartbeat"] == "2026-01-01T00:00:00.000000Z"
        assert reason["hint"] == f"noetl executions logs {run} --step start -f"
        await asyncio.sleep(15)
        reason = await only(r, run)
        assert (reason["code"], reason["attempt"]) == ("lease_expired_recovering", 2)
        row = await r.store.commands.get(work.command_id)
        assert row is not None
        assert row.status == "PENDING"


@virtually
async def test_a_lease_that_has_ended_and_was_not_found_yet() -> None:
    async with rig(lease_s=10.0) as r:
        run = await r.start(ONE_STEP)
        await r.claim()
        clock = r.plane.reasons._clock  # noqa: SLF001 - as if the sweep were late

        class Late:
            def now(self):
                return clock.now() + timedelta(seconds=11)

        r.plane.reasons._clock = Late()  # noqa: SLF001 - as above
        reason = await only(r, run)
        assert (reason["code"], reason["worker_id"]) == ("lease_expired_recovering", "w")


@virtually
async def test_waiting_retry_and_timer_name_their_time() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (work,) = await r.claim()
        await r.report(
            r.event(work, "command.started"),
            r.event(work, "command.parked", reason="retry", delay_ms=30_000, checkpoint={}),
        )
        reason = await only(r, run)
        assert (reason["code"], reason["step"]) == ("waiting_retry", "start")
        assert reason["due_at"] == "2026-01-01T00:00:30.000000Z"
        assert reason["detail"] == "`start` is tried again at 2026-01-01T00:00:30.000000Z"
        waits = await r.start("workflow:\n  - {step: start, tool: {kind: wait, seconds: 60}}\n")
        reason = await only(r, waits)
        assert (reason["code"], reason["due_at"]) == (
            "waiting_timer", "2026-01-01T00:01:00.000000Z",
        )  # fmt: skip


@virtually
async def test_a_retry_says_what_failed() -> None:
    async with rig() as r:
        for kind, code in (("rate_limit", "rate_limited"), ("connection", "waiting_retry")):
            run = await r.start(ONE_STEP)
            (work,) = await r.claim()
            error = {"kind": kind, "code": "http_429", "message": "slow down"}
            await r.report(
                r.event(work, "command.started"),
                r.event(work, "command.parked", reason="retry", delay_ms=30_000, error=error),
            )
            reason = await only(r, run)
            assert (reason["code"], reason["due_at"]) == (code, "2026-01-01T00:00:30.000000Z")
            assert reason["detail"].endswith(": http_429: slow down")
            assert reason["hint"]


@virtually
async def test_waiting_child_names_the_run() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        text = HEAD.replace("demo/it", "demo/parent")
        body = "workflow:\n  - {step: call, tool: {kind: playbook, path: demo/it}}\n"
        await r.client.register(Register(content=text + body))
        run = (await r.client.execute(Execute(path="demo/parent"))).execution_id
        await asyncio.sleep(1)
        (child,) = (await r.client.children(run)).items
        reason = await only(r, run)
        assert (reason["code"], reason["execution_id"]) == ("waiting_child", child.execution_id)
        assert reason["hint"] == f"noetl executions why {child.execution_id}"


@virtually
async def test_waiting_callback_and_container() -> None:
    async with rig() as r:
        run = await r.start("workflow:\n  - {step: ask, tool: {kind: wait, callback: true}}\n")
        reason = await only(r, run)
        assert (reason["code"], reason["step"]) == ("waiting_callback", "ask")
        assert "callback_key" not in reason
        assert "cancel" in reason["hint"]
        job = await r.start("workflow:\n  - {step: job, tool: {kind: container, image: x}}\n")
        (work,) = await r.claim()
        await r.report(
            r.event(work, "command.started"),
            r.event(work, "command.parked", reason="callback", request={"timeout_s": 60}),
        )
        assert (await only(r, job))["code"] == "waiting_container"


@virtually
async def test_loop_in_progress_and_cursor_draining() -> None:
    async with rig() as r:
        run = await r.start(many(100, 30))
        for command in await r.claim(slots=4):
            await r.done(command)
        told = (await why(r, run))["reasons"]
        loop = told[0]
        assert (loop["code"], loop["done"], loop["in_flight"], loop["total"]) == (
            "loop_in_progress", 4, 30, 100,
        )  # fmt: skip
        assert len(told) == 21  # so many commands are told one by one
        drains = await r.start(CURSOR)
        codes = [item["code"] for item in (await why(r, drains))["reasons"]]
        assert codes[0] == "cursor_draining"


@virtually
async def test_start_delayed_and_concurrency_queue() -> None:
    async with rig() as r:
        first = await r.start(LIMITED)
        run = await r.start(LIMITED)
        reason = await only(r, run)
        assert (reason["code"], reason["place"], reason["execution_id"]) == (
            "concurrency_queue", 0, first,
        )  # fmt: skip
        assert reason["hint"] == f"noetl executions why {first}"
        third = await r.start(LIMITED)
        assert (await only(r, third))["place"] == 1
        late = await r.start(ONE_STEP, start_at="2026-01-02T00:00:00Z")
        reason = await only(r, late)
        assert (reason["code"], reason["due_at"]) == (
            "start_delayed", "2026-01-02T00:00:00.000000Z",
        )  # fmt: skip


@virtually
async def test_circuit_open() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        tables = r.store.reading._tables  # noqa: SLF001 - nobody writes circuits yet
        tables.circuits["default", "demo/it.tsdb"] = {"state": "open", "opened_at": "2026-01-01"}
        tables.circuits["default", "demo/it.other"] = {"state": "closed"}
        tables.circuits["other", "demo/it.tsdb"] = {"state": "open"}
        circuit, worker = (await why(r, run))["reasons"]
        assert (circuit["code"], circuit["since"]) == ("circuit_open", "2026-01-01")
        assert circuit["detail"] == "the circuit `demo/it.tsdb` is open"
        assert circuit["hint"] == "noetl subscription get demo/it"
        assert worker["code"] == "waiting_for_worker"


@virtually
async def test_stalled_is_decided_again_at_once() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)

        def lose(_state):
            # A command that vanishes without a word: what a defect would do.
            yield Stamped(ev.CommandCancelled(step="start", command_key="start#1", reason="defect"))

        await r.plane.ingest.post(Post(run, lose))
        assert await r.status(run) == "RUNNING"
        nudged: list[str] = []
        r.plane.ingest.nudge = nudged.append  # type: ignore[method-assign]
        reason = await only(r, run)
        assert (reason["code"], nudged) == ("stalled", [run])
