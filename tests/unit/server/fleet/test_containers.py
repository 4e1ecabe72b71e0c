"""Containers that have ended."""

from __future__ import annotations

import asyncio
import logging
from typing import get_args

import pytest

from noetl.api.callbacks import ContainerCallback, ContainerState
from noetl.api.executions import Control
from tests.unit.server.rig import ONE_STEP, Rig, rig, virtually
from tests.unit.server.values.calls import call, codes

STATES = get_args(ContainerState)
BODY = """
workflow:
  - step: job
    tool: {kind: container, image: img}
"""
PIPELINE = """
workflow:
  - step: job
    tool:
      - {name: a, kind: python, code: "return 1"}
      - {name: b, kind: container, image: img}
"""
LOOP = """
workflow:
  - step: job
    loop: {in: 2, iterator: n, spec: {mode: parallel, max_in_flight: 2}}
    tool: {kind: container, image: img}
"""
PREFIX = "/api/internal/container-callback"


async def begun(r: Rig, body: str = BODY):
    """A run whose only command a worker holds."""
    run = await r.start(body)
    (work,) = await r.claim()
    await r.report(r.event(work, "command.started"))
    return run, work


async def park(r: Rig, work, job: str = "job-1", **more) -> None:
    request = {"job_name": job, "job_uid": "u-1", "timeout_s": 3900, **more}
    event = r.event(work, "command.parked", reason="callback", checkpoint={"t": 1}, request=request)
    await r.report(event)


async def ended(r: Rig, run: str, state: str = "succeeded", job: str = "job-1", **more):
    body = ContainerCallback(state=state, job_name=job, **more)
    return await r.client.container_ended(run, "job", body)


def numbers(r: Rig, state: str) -> tuple[float, float]:
    metrics = r.plane.metrics
    return (
        metrics.container_callback.value(state),
        metrics.container_callback_stale.value(state),
    )


async def reports(r: Rig, run: str) -> list[dict]:
    page = await r.client.events(run, limit=1000)
    return [row for row in page.items if row["event_type"] in {"call.done", "call.error"}]


@pytest.mark.parametrize("state", STATES)
def test_a_state_told_three_times_is_one_report(state: str) -> None:
    @virtually
    async def check() -> None:
        async with rig() as r:
            run, work = await begun(r)
            await park(r, work)
            told = [
                await ended(
                    r, run, state, job_uid="u-1", exit_code=3, reason="why", output={"rows": 7},
                    completed_at="2026-01-01T01:02:03+01:00", stdout_uri="noetl://o",
                )
                for _ in range(3)
            ]  # fmt: skip
            assert [one.status for one in told] == ["accepted_in_flight", "duplicate", "duplicate"]
            assert len({one.event_id for one in told}) == 1
            (report,) = await reports(r, run)
            assert report["event_id"] == told[0].event_id
            is_good = state == "succeeded"
            assert report["status"] == ("COMPLETED" if is_good else "FAILED")
            assert (report["event_type"], report["meta"]["node_type"]) == ("call.done", "container")
            assert report["result"]["context"] == {
                "terminal_state": state, "job_name": "job-1", "job_uid": "u-1",
                "completed_at": "2026-01-01T00:02:03.000000Z", "exit_code": 3, "reason": "why",
                "stdout_uri": "noetl://o", "stderr_uri": None, "output": {"rows": 7},
            }  # fmt: skip
            (again,) = await r.claim()
            awaited = again.context.checkpoint
            assert (again.attempt, awaited is None) == (2, False)
            assert numbers(r, state) == (3, 0)

    check()


@pytest.mark.parametrize(
    ("state", "kind", "is_retryable"),
    [
        ("failed", "container_failed", False),
        ("failed_image_pull", "config", False),
        ("failed_oom", "oom", False),
        ("failed_node_lost", "node_lost", True),
        ("failed_timeout", "timeout", False),
    ],
)
def test_a_failure_has_its_kind(state: str, kind: str, *, is_retryable: bool) -> None:
    @virtually
    async def check() -> None:
        async with rig() as r:
            run, work = await begun(r)
            await park(r, work)
            await ended(r, run, state)
            (report,) = await reports(r, run)
            error = report["error"]
            assert (error["kind"], error.get("retryable", False)) == (kind, is_retryable)

    check()


@virtually
async def test_one_that_comes_before_the_park_is_applied_after_it() -> None:
    async with rig() as r:
        run, work = await begun(r)
        first = await ended(r, run, output=1)
        again = await ended(r, run, output=1)
        assert (first.status, again.status) == ("accepted_in_flight", "duplicate")
        assert len(await r.store.held.waiting()) == 1
        assert await reports(r, run) == []
        await asyncio.sleep(10)
        await park(r, work)
        await asyncio.sleep(0.01)
        (report,) = await reports(r, run)
        assert report["event_id"] == first.event_id
        assert report["result"]["context"]["completed_at"] == "2026-01-01T00:00:00.000000Z"
        assert await r.store.held.waiting() == []
        assert (await ended(r, run, output=1)).status == "duplicate"
        assert numbers(r, "succeeded") == (3, 0)


@virtually
async def test_one_that_is_held_for_five_minutes_is_given_up() -> None:
    async with rig() as r:
        run, work = await begun(r)
        await ended(r, run)
        await asyncio.sleep(270)
        assert len(await r.store.held.waiting()) == 1
        await asyncio.sleep(60)
        assert await r.store.held.waiting() == []
        assert numbers(r, "succeeded") == (1, 1)
        del work


@virtually
async def test_one_that_is_held_for_a_run_that_ends_is_given_up() -> None:
    async with rig() as r:
        run, _ = await begun(r)
        await ended(r, run)
        await r.client.cancel(run, Control())
        await asyncio.sleep(31)
        assert await r.store.held.waiting() == []
        assert numbers(r, "succeeded") == (1, 1)


def test_one_that_nobody_waits_for_is_stale(caplog) -> None:
    @virtually
    async def check() -> None:
        async with rig() as r:
            run, work = await begun(r)
            await park(r, work)
            python = await r.start(ONE_STEP)
            asked = [
                (run, "job", {"job_name": "other"}), (run, "nowhere", {"job_name": "job-1"}),
                ("12", "job", {"job_name": "job-1"}), (python, "start", {"job_name": "job-1"}),
                (run, "job", {"job_name": "job-1", "command_id": "12"}),
            ]  # fmt: skip
            for execution_id, step, body in asked:
                answer, told = await call(
                    r, "POST", f"{PREFIX}/{execution_id}/{step}", {"state": "failed", **body}
                )
                assert (answer.status, told) == (202, {"status": "accepted_stale"})
            assert await reports(r, run) == []
            assert numbers(r, "failed") == (5, 5)
            # A run that has ended.
            await r.client.cancel(run, Control())
            assert (await ended(r, run)).status == "accepted_stale"

    with caplog.at_level(logging.WARNING, "noetl.server.fleet.containers"):
        check()
    lines = [record for record in caplog.records if record.name == "noetl.server.fleet.containers"]
    assert len(lines) == 6
    assert (lines[0].levelname, lines[0].job_name, lines[0].state) == ("WARNING", "other", "failed")


@virtually
async def test_a_task_of_a_pipeline_and_items_of_a_loop_are_told_apart() -> None:
    async with rig() as r:
        run, work = await begun(r, PIPELINE)
        assert (await ended(r, run)).status == "accepted_in_flight"
        await park(r, work)
        await asyncio.sleep(0.01)
        assert len(await reports(r, run)) == 1
    async with rig() as r:
        run = await r.start(LOOP)
        first, second = await r.claim(slots=2)
        for work, job in ((first, "job-1"), (second, "job-2")):
            await park(r, work, job)
        told = await ended(r, run, job="job-2", command_id=second.command_id)
        assert told.status == "accepted_in_flight"
        (report,) = await reports(r, run)
        assert report["command_id"] == second.command_id
        wrong = await ended(r, run, job="job-1", command_id=second.command_id, job_uid="u")
        assert wrong.status == "accepted_in_flight"  # the next attempt may yet park for that job
        assert (await ended(r, run, job="job-1")).status == "accepted_in_flight"


@virtually
async def test_what_cannot_be_meant_is_refused() -> None:
    async with rig() as r:
        good = {"state": "failed", "job_name": "j"}
        assert await codes(
            r,
            ("POST", f"{PREFIX}/x/job", good), ("POST", f"{PREFIX}/0/job", good),
            ("POST", f"{PREFIX}/1/%20", good), ("POST", f"{PREFIX}/1/", good),
            ("POST", f"{PREFIX}/1/job", {**good, "state": "exploded"}),
            ("POST", f"{PREFIX}/1/job", {"state": "failed"}),
            ("POST", f"{PREFIX}/1/job", {**good, "job_name": " "}),
            ("POST", f"{PREFIX}/1/job", {**good, "completed_at": "soon"}),
            ("POST", f"{PREFIX}/1/job", {**good, "command_id": "x"}),
            ("POST", f"{PREFIX}/1/job", {**good, "colour": 1}), ("POST", f"{PREFIX}/1/job", b"{"),
        ) == [
            (422, "invalid_id"), (422, "invalid_id"), (422, "validation_failed"),
            (422, "validation_failed"), (422, "validation_failed"), (422, "validation_failed"),
            (422, "validation_failed"), (422, "bad_time"), (422, "invalid_id"),
            (422, "unknown_field"), (400, "bad_json"),
        ]  # fmt: skip


@virtually
async def test_a_job_of_the_same_name_before_it_is_not_the_one_that_is_waited_for() -> None:
    async with rig() as r:
        run, work = await begun(r)
        await park(r, work)
        assert (await ended(r, run, "failed", job_uid="u-0")).status == "accepted_stale"
        assert (await ended(r, run, job_uid="u-1")).status == "accepted_in_flight"
        (report,) = await reports(r, run)
        assert report["result"]["context"]["job_uid"] == "u-1"


@virtually
async def test_a_script_with_a_job_may_end_before_it_has_parked() -> None:
    script = BODY.replace("{kind: container, image: img}", "{kind: script, script: ls, job: {}}")
    async with rig() as r:
        run, work = await begun(r, script)
        assert (await ended(r, run)).status == "accepted_in_flight"
        await park(r, work)
        await asyncio.sleep(0.01)
        assert len(await reports(r, run)) == 1


@virtually
async def test_a_worker_tells_of_commands_of_its_pool() -> None:
    async with rig() as r:
        run, work = await begun(r)
        await park(r, work)
        body = ContainerCallback(state="failed", job_name="job-1", exit_code=2)
        first = await r.client.container_of_command(work.command_id, body)
        again = await r.client.container_of_command(work.command_id, body)
        assert (first.status, again.status) == ("accepted_in_flight", "duplicate")
        (report,) = await reports(r, run)
        assert (report["event_type"], report["status"]) == ("call.done", "FAILED")
        assert report["event_id"] == first.event_id
        answer, told = await call(
            r, "POST", "/api/commands/12/container-callback", {"state": "failed", "job_name": "j"}
        )
        assert (answer.status, told["code"]) == (404, "unknown_command")
