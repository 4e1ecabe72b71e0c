"""Messages between runs: to children, to parents, and what happens when one comes twice."""

from __future__ import annotations

import asyncio
from collections import deque

from noetl.api.catalog import Register
from noetl.api.executions import Control
from noetl.server.loops.deliver import deliver, sweep
from noetl.store.base import Outgoing
from noetl.store.errors import DatabaseGone
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


class Repeating(deque):
    """Messages of which every one comes twice, the second time after all others."""

    def append(self, item) -> None:
        super().append(item)
        super().append(item)


@virtually
async def test_a_message_that_comes_twice_is_delivered_once() -> None:
    async with rig() as r:
        r.plane.signals.undelivered = Repeating()
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
async def test_a_message_that_is_also_swept_is_delivered_once() -> None:
    async with rig() as r:
        await r.client.register(Register(content=CHILD))
        run = await r.start(parent())
        await asyncio.gather(*(sweep(r.plane, -1.0) for _ in range(3)))
        (work,) = await r.claim(wait_seconds=20)
        assert work.execution_id != run
        assert len(await r.store.executions.children(run)) == 1


@virtually
async def test_the_store_forgets_what_was_delivered_without_another_commit() -> None:
    async with rig() as r:
        await r.client.register(Register(content=CHILD))
        run = await r.start(parent())
        (work,) = await r.claim(wait_seconds=20)
        (second,) = (await r.done(work, 1, slots=1)).claimed
        await r.done(second, 2)
        await r.server.finished(run)
        await asyncio.sleep(3)
        assert await r.store.outbox.waiting() == []


@virtually
async def test_a_store_that_fails_loses_no_message_and_keeps_no_delivered_one() -> None:
    async with rig() as r:
        await r.client.register(Register(content=CHILD))
        forgotten, delivered = r.store.outbox, r.store.outbox.delivered
        get, fails = r.store.executions.get, [3, 3]

        async def flaky_get(execution_id):
            if fails[0]:
                fails[0] -= 1
                raise DatabaseGone("away")
            return await get(execution_id)

        async def flaky_delivered(ids):
            if fails[1]:
                fails[1] -= 1
                raise DatabaseGone("away")
            await delivered(ids)

        run = await r.start(parent())
        r.store.executions.get, forgotten.delivered = flaky_get, flaky_delivered
        (work,) = await r.claim(wait_seconds=20)
        assert work.execution_id != run
        await asyncio.sleep(20)
        assert fails == [0, 0]
        assert await r.store.outbox.waiting() == []


@virtually
async def test_messages_that_nobody_can_deliver_do_not_hide_others() -> None:
    async with rig() as r:
        await r.client.register(Register(content=CHILD))
        for number in range(2500):
            await _leave(r, Outgoing(
                outgoing_id=str(number), execution_id="1", kind="events", payload={}
            ))  # fmt: skip
        r.plane.signals.undelivered = deque(maxlen=0)
        run = await r.start(parent())
        await sweep(r.plane, -1.0)
        assert len(await r.store.executions.children(run)) == 1


async def _leave(r, item: Outgoing) -> None:
    """A message that some server has left behind."""
    tables = r.store.outbox._tables  # noqa: SLF001 - no request does this
    tables.outbox[item.outgoing_id] = (item, "2026-01-01T00:00:00.000000Z")


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
