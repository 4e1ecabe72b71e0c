"""Messages between runs: to children, to parents, and what happens when one comes twice."""

from __future__ import annotations

import asyncio

from noetl.api.catalog import Register
from noetl.api.executions import Control
from noetl.server.loops.deliver import deliver
from tests.unit.server.rig import PYTHON, rig, virtually

CHILD = f"""apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: child, path: demo/child}}
workflow:
  - step: start
    tool: {PYTHON}
    next: {{arcs: [{{step: last}}]}}
  - step: last
    tool: {PYTHON}
"""


def parent(**more: str) -> str:
    extra = "".join(f", {key}: {value}" for key, value in more.items())
    return f"workflow:\n  - step: start\n    tool: {{kind: playbook, path: demo/child{extra}}}\n"


class Repeating:
    """An outbox that forgets nothing the first time: every message comes twice."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.seen: set[str] = set()

    async def waiting(self, limit: int = 1000):
        return await self.inner.waiting(limit)

    async def delivered(self, ids) -> None:
        await self.inner.delivered([item for item in ids if item in self.seen])
        self.seen |= set(ids)


@virtually
async def test_a_message_that_comes_twice_is_delivered_once() -> None:
    async with rig() as r:
        r.store.outbox = Repeating(r.store.outbox)
        await r.client.register(Register(content=CHILD))
        run = await r.start(parent())
        (work,) = await r.claim(wait_seconds=20)
        (second,) = (await r.done(work, 1, slots=1)).claimed
        await r.done(second, 2)
        row = await r.server.finished(run)
        assert row.status == "COMPLETED"
        assert len(await r.store.executions.children(run)) == 1
        assert (await r.types(run)).count("execution.returned") == 1


@virtually
async def test_a_parent_may_ask_for_the_result_of_one_step() -> None:
    async with rig() as r:
        await r.client.register(Register(content=CHILD))
        run = await r.start(parent(return_step="start"))
        (work,) = await r.claim(wait_seconds=20)
        (second,) = (await r.done(work, {"of": "start"}, slots=1)).claimed
        await r.done(second, {"of": "last"})
        await r.server.finished(run)
        assert (await r.client.execution(run)).result == {"of": "start"}


@virtually
async def test_a_failed_child_fails_its_parent_with_its_error() -> None:
    async with rig() as r:
        await r.client.register(Register(content=CHILD))
        run = await r.start(parent())
        (work,) = await r.claim(wait_seconds=20)
        failure = {"kind": "python", "code": "python_error", "message": "boom"}
        await r.report(r.event(work, "call.error", error=failure))
        await r.server.finished(run)
        told = await r.client.execution(run)
        assert (told.status, told.error["kind"], told.error["code"]) == (
            "FAILED", "child_failed", "python_error",
        )  # fmt: skip


@virtually
async def test_nobody_waits_for_a_child_that_is_not_awaited() -> None:
    async with rig() as r:
        await r.client.register(Register(content=CHILD))
        run = await r.start(parent(wait="false"))
        await r.server.finished(run)
        (child,) = await r.store.executions.children(run)
        told = await r.client.execution(run)
        assert told.result["execution_id"] == child.execution_id
        assert await r.status(child.execution_id) == "RUNNING"


@virtually
async def test_a_cancel_that_does_not_cascade_leaves_the_child_alone() -> None:
    async with rig() as r:
        await r.client.register(Register(content=CHILD))
        run = await r.start(parent())
        (work,) = await r.claim(wait_seconds=20)
        told = await r.client.cancel(run, Control(cascade=False))
        assert told.cancelled_children == 0
        await deliver(r.plane)
        assert await r.status(work.execution_id) == "RUNNING"
        (second,) = (await r.done(work, 1, slots=1)).claimed
        await r.done(second, 2)
        await asyncio.sleep(1)
        assert (await r.types(run))[-1] == "playbook.cancelled"


@virtually
async def test_runs_do_not_nest_without_end() -> None:
    recursive = CHILD.replace(PYTHON, "{kind: playbook, path: demo/child}")
    async with rig() as r:
        await r.client.register(Register(content=recursive))
        run = await r.start(parent())
        await r.server.finished(run)
        told = await r.client.execution(run)
        assert (told.status, told.error["code"]) == ("FAILED", "child_depth")


@virtually
async def test_two_requests_under_one_key_share_a_run_and_both_are_told_its_end() -> None:
    looped = """
workflow:
  - step: start
    loop: {in: 2, iterator: n, spec: {mode: parallel, max_in_flight: 2}}
    tool: {kind: playbook, path: demo/child, dedup_key: same}
"""
    async with rig() as r:
        await r.client.register(Register(content=CHILD))
        run = await r.start(looped)
        (work,) = await r.claim(wait_seconds=20)
        (second,) = (await r.done(work, 1, slots=1)).claimed
        await r.done(second, 2)
        await r.server.finished(run)
        assert len(await r.store.executions.children(run)) == 1
        assert (await r.client.execution(run)).result == [2, 2]
