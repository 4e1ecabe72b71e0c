"""Looking into runs: their graph, their timeline, and their state after any event."""

from __future__ import annotations

import asyncio
from hashlib import sha256

import msgspec
import pytest

from noetl.api.executions import Control, Execute, Finalize, Fork
from noetl.api.http import AsgiTransport
from noetl.api.problems import Refused
from noetl.server.reading import replay, timeline
from tests.unit.server.rig import ONE_STEP, PYTHON, TWO_STEPS, many, rig, virtually

BRANCHES = f"""
workflow:
  - step: start
    tool: {PYTHON}
    next:
      arcs:
        - {{step: left, when: "{{{{ workload.way == 'left' }}}}"}}
        - {{step: right}}
  - {{step: left, tool: {PYTHON}, next: {{arcs: [{{step: last}}]}}}}
  - {{step: right, tool: {PYTHON}, next: {{arcs: [{{step: last}}]}}}}
  - {{step: last, tool: {PYTHON}, next: {{arcs: [{{step: end}}]}}}}
"""
FAILURE = {"kind": "x", "code": "boom", "message": "no"}
RETRIED = """
workflow:
  - step: start
    tool:
      kind: python
      code: "1"
      spec: {policy: {rules: [{when: "{{ output.status == 'error' }}",
        then: {do: retry, attempts: 3, delay: 30}}]}}
"""


async def refused(call) -> tuple[int, str]:
    with pytest.raises(Refused) as refusal:
        await call
    return refusal.value.problem.status, refusal.value.code


async def got(r, path: str):
    answer = await AsgiTransport(r.server.asgi).request("GET", path)
    return answer.status, msgspec.json.decode(answer.body)


async def worked(r, run: str, slots: int = 8) -> None:
    """Do all the work of a run."""
    while await r.status(run) == "RUNNING":
        for command in await r.claim(slots=slots):
            await r.done(command)


def states(graph) -> dict[str, str]:
    return {node.id: node.state for node in graph.nodes}


# ----------------------------------------------------------------------------- graph


@virtually
async def test_a_graph_tells_how_far_a_run_is_and_what_it_did_not_take() -> None:
    async with rig() as r:
        run = await r.start(BRANCHES, payload={"way": "left"})
        before = await r.client.graph(run)
        assert states(before) == {
            "start": "running", "left": "pending", "right": "pending", "last": "pending",
            "end": "pending",
        }  # fmt: skip
        assert before.as_of_seq == (await r.client.status(run)).last_seq
        await worked(r, run)
        after = await r.client.graph(run)
        assert states(after) == {
            "start": "completed", "left": "completed", "right": "not_taken", "last": "completed",
            "end": "completed",
        }  # fmt: skip
        assert {(edge.from_, edge.to): (edge.taken, edge.times) for edge in after.edges} == {
            ("start", "left"): (True, 1), ("start", "right"): (False, 0),
            ("left", "last"): (True, 1), ("right", "last"): (False, 0), ("last", "end"): (True, 1),
        }  # fmt: skip
        assert after.edges[0].when == "workload.way == 'left'"
        start = after.nodes[0]
        assert (start.runs, start.attempts, start.tool, start.kind) == (1, 1, "python", "step")
        assert start.started_at is not None
        assert start.started_at <= (start.ended_at or "")
        assert after.nodes[-1].kind == "end"
        _, plain = await got(r, f"/api/executions/{run}/graph")
        assert plain["edges"][0]["from"] == "start"


@virtually
async def test_a_graph_counts_items_and_names_errors() -> None:
    async with rig() as r:
        run = await r.start(many(5, 2))
        for command in await r.claim(slots=2):
            await r.done(command)
        (node,) = (await r.client.graph(run)).nodes
        assert node.loop == {
            "mode": "parallel", "total": 5, "done": 2, "failed": 0, "in_flight": 2,
        }  # fmt: skip
        (work, _) = await r.claim(slots=2)
        await r.report(r.event(work, "call.error", error=FAILURE))
        while await r.status(run) == "RUNNING":
            for command in [*await r.claim(slots=4), _]:
                await r.done(command)
        (node,) = (await r.client.graph(run)).nodes
        assert (node.state, node.error) == ("failed", {**FAILURE})
        assert node.loop is not None
        assert node.loop["failed"] == 1
        assert node.attempts == 4


@virtually
async def test_a_step_that_waits_is_told_from_one_that_runs() -> None:
    async with rig() as r:
        run = await r.start("workflow:\n  - {step: start, tool: {kind: wait, seconds: 60}}\n")
        assert states(await r.client.graph(run)) == {"start": "waiting"}
        await r.client.cancel(run, Control())
        assert states(await r.client.graph(run)) == {"start": "cancelled"}


@virtually
async def test_a_fork_knows_what_its_source_has_taken() -> None:
    async with rig() as r:
        run = await r.start(BRANCHES, payload={"way": "right"})
        await worked(r, run)
        fork = (await r.client.fork(run, Fork(from_step="last"))).execution_id
        taken = {(edge.from_, edge.to) for edge in (await r.client.graph(fork)).edges if edge.taken}
        assert taken == {("start", "right"), ("right", "last")}
        assert states(await r.client.graph(fork))["left"] == "not_taken"


# ----------------------------------------------------------------------------- timeline


@virtually
async def test_a_timeline_has_a_lane_per_attempt_and_gaps_between_them() -> None:
    async with rig() as r:
        run = await r.start(RETRIED)
        (work,) = await r.claim()
        await asyncio.sleep(2)
        await r.report(
            r.event(work, "command.started"),
            r.event(work, "command.parked", reason="retry", delay_ms=30_000, checkpoint={}),
        )
        await asyncio.sleep(30.5)
        (work,) = await r.claim()
        await r.report(r.event(work, "command.started"))
        told = await r.client.timeline(run)
        first, second = told.lanes
        assert (first.attempt, first.worker_id, first.state) == (1, "w", "PARKED")
        assert first.ended is not None
        assert (second.state, second.ended, second.command_id) == (
            "RUNNING",
            None,
            first.command_id,
        )
        assert [(gap.from_, gap.to) for gap in told.gaps] == [(first.ended, second.issued)]
        assert 30_000 <= told.gaps[0].ms <= 32_000
        await r.done(work)
        assert [lane.state for lane in (await r.client.timeline(run)).lanes] == [
            "PARKED", "COMPLETED",
        ]  # fmt: skip


@virtually
async def test_a_timeline_is_paged_and_every_lane_is_whole() -> None:
    old = timeline._PAGE  # noqa: SLF001 - small pages
    timeline._PAGE = 16  # type: ignore[misc]  # noqa: SLF001 - as above
    try:
        async with rig() as r:
            run = await r.start(many(40, 7))
            (slow,) = await r.claim("slow")
            while (await r.client.status(run)).last_seq < 200:
                for command in await r.claim(slots=3):
                    await r.done(command)
            await r.done(slow, worker_id="slow")
            await worked(r, run)
            whole = (await r.client.timeline(run)).lanes
            assert sorted(lane.index or 0 for lane in whole) == list(range(40))
            assert {lane.state for lane in whole} == {"COMPLETED"}
            assert {lane.worker_id for lane in whole} == {"w", "slow"}
            parts, cursor = [], None
            while True:
                more = {} if cursor is None else {"cursor": cursor}
                page = await r.client.timeline(run, limit=6, **more)
                assert len(page.lanes) <= 6
                parts += page.lanes
                cursor = page.next_cursor
                if cursor is None:
                    break
            assert tuple(parts) == whole
            assert await refused(r.client.timeline(run, cursor="x")) == (422, "bad_cursor")
            assert await refused(r.client.timeline(run, limit=0)) == (422, "validation_failed")
    finally:
        timeline._PAGE = old  # type: ignore[misc]  # noqa: SLF001 - as above


@virtually
async def test_a_lost_attempt_is_a_lane_and_one_that_is_lost_for_good_is_none() -> None:
    async with rig(lease_s=5.0, max_attempts=2) as r:
        run = await r.start(ONE_STEP)
        for worker in ("one", "two"):
            await r.claim(worker, wait_seconds=30)
            await asyncio.sleep(20)
        assert await r.status(run) == "FAILED"
        lanes = (await r.client.timeline(run)).lanes
        assert [(lane.attempt, lane.worker_id, lane.state) for lane in lanes] == [
            (1, "one", "LOST"), (2, "two", "LOST"),
        ]  # fmt: skip
        assert len({lane.command_id for lane in lanes}) == 1


@virtually
async def test_what_the_engine_runs_itself_is_one_lane_and_an_end_closes_all() -> None:
    async with rig() as r:
        run = await r.start("workflow:\n  - {step: start, tool: {kind: wait, seconds: 60}}\n")
        (lane,) = (await r.client.timeline(run)).lanes
        assert (lane.state, lane.worker_id, lane.claimed, lane.ended) == (
            "PARKED",
            None,
            None,
            None,
        )
        await r.client.cancel(run, Control())
        (lane,) = (await r.client.timeline(run)).lanes
        assert (lane.state, lane.ended is None) == ("CANCELLED", False)


# ----------------------------------------------------------------------------- replay


@virtually
async def test_a_state_is_told_after_any_event() -> None:
    async with rig() as r:
        run = await r.start(TWO_STEPS)
        (work,) = await r.claim()
        await asyncio.sleep(10)
        await r.done(work, {"rows": 3})
        await r.client.pause(run, Control())
        await r.client.resume(run, Control())
        (work,) = await r.claim()
        await r.done(work)
        log = (await r.client.events(run, limit=100)).items
        seen = [await r.client.state(run, seq) for seq in range(len(log) + 1)]
        assert [item.event_count for item in seen] == list(range(len(log) + 1))
        assert [item.last_event_type for item in seen[1:]] == [row["event_type"] for row in log]
        assert [item.last_event_id for item in seen[1:]] == [row["event_id"] for row in log]
        statuses = list(dict.fromkeys(item.execution["status"] for item in seen[1:]))
        assert statuses == ["RUNNING", "PAUSED", "COMPLETED"]
        last = await r.client.replay(run)
        assert last == seen[-1]
        assert last.steps["start"]["result"] == {"rows": 3}
        assert len({item.state_digest for item in seen}) == len(seen)
        by_id = await r.client.replay(run, as_of_event_id=log[4]["event_id"])
        assert by_id == seen[5]
        # Several events have one time: the last of them counts.
        time = log[2]["created_at"]
        at = max(row["seq"] for row in log if row["created_at"] <= time)
        assert await r.client.replay(run, as_of_time=time) == seen[at]
        early = await r.client.replay(run, as_of_time="2020-01-01T00:00:00Z")
        assert early.event_count == 0


@virtually
async def test_a_digest_is_of_the_whole_state_whatever_is_shown() -> None:
    async with rig() as r:
        run = await r.start(many(30, 30))
        whole = await r.client.replay(run)
        assert len(whole.commands) == 30
        assert whole.loops["start"]["open"] == 30
        parts = {name: getattr(whole, name) for name in ("execution", *replay.PARTS)}
        canonical = msgspec.json.encode(parts, order="sorted")
        assert sha256(canonical).hexdigest() == whole.state_digest
        some = await r.client.replay(run, projection="command", limit=10)
        assert (len(some.commands), some.is_cut, some.steps, some.execution) == (10, True, {}, {})
        assert some.state_digest == whole.state_digest
        assert (await r.client.replay(run, projection="loop")).loops == whole.loops


@virtually
async def test_references_are_resolved_when_asked_for() -> None:
    async with rig() as r:
        run = await r.start(TWO_STEPS)
        (work,) = await r.claim()
        large = {"text": "x" * 100_000}
        await r.done(work, large)
        lean = await r.client.replay(run)
        assert "$reference" in lean.steps["start"]["result"]
        full = await r.client.replay(run, resolve_payloads="true")
        assert full.steps["start"]["result"] == large
        assert full.state_digest == lean.state_digest


@virtually
async def test_a_place_that_is_none_and_two_places_are_refused() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        for query, told in (
            ({"as_of_position": 999}, (422, "bad_position")),
            ({"as_of_event_id": "77"}, (422, "bad_position")),
            ({"as_of_position": 1, "as_of_event_id": "77"}, (400, "bad_query")),
            ({"as_of_position": 1, "seq": 1}, (400, "bad_query")),
            ({"projection": "tea"}, (422, "validation_failed")),
            ({"limit": 0}, (422, "validation_failed")),
            ({"as_of_time": "noon"}, (422, "bad_time")),
            ({"colour": "red"}, (422, "unknown_parameter")),
        ):
            assert await refused(r.client.replay(run, **query)) == told
        assert await refused(r.client.replay("77")) == (404, "unknown_execution")
        assert (await got(r, "/api/replay/state"))[0] == 422


@virtually
async def test_an_end_by_hand_is_marked_in_the_log() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        await r.client.finalize(run, Finalize(status="completed", result=5))
        rows = (await r.client.events(run, limit=100)).items
        assert rows[-1]["meta"]["forced"] is True
        other = await r.start(ONE_STEP)
        await worked(r, other)
        rows = (await r.client.events(other, limit=100)).items
        assert "forced" not in rows[-1].get("meta", {})


@virtually
async def test_children_are_paged() -> None:
    async with rig() as r:
        parent = await r.start(ONE_STEP)
        runs = [
            (
                await r.client.execute(Execute(path="demo/it", parent_execution_id=parent))
            ).execution_id
            for _ in range(5)
        ]
        first = await r.client.children(parent, limit=3)
        assert [item.execution_id for item in first.items] == runs[:3]
        assert first.next_cursor is not None
        rest = await r.client.children(parent, limit=3, cursor=first.next_cursor)
        assert [item.execution_id for item in rest.items] == runs[3:]
        newest = await r.client.children(parent, order="desc", limit=1)
        assert newest.items[0].execution_id == runs[-1]
        assert await refused(r.client.children("77")) == (404, "unknown_execution")
