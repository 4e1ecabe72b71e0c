"""Dead letters that the server keeps: sent again and dropped, once each, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from noetl.api.catalog import Register
from noetl.api.executions import Control
from noetl.api.subscriptions import LettersWanted
from noetl.blobs.memory import MemoryBlobs
from noetl.blobs.spool.item import sha256_of
from noetl.clock import LoopClock
from noetl.store.memory.store import MemoryStore
from noetl.telemetry import failpoint
from tests.unit.server.rig import START, rig, virtually
from tests.unit.server.subscriptions.stage import (
    NATS,
    PLAYBOOK,
    TARGET,
    dispatched,
    facts,
    item_of,
    kept,
    post,
    registered,
    report,
    told,
)

if TYPE_CHECKING:
    from tests.unit.server.rig import Rig

SCHEDULED = f"{NATS}, activation: scheduled, cadence: 1h"
MISSING = "plant/later"
SOON_S = 1.0
LATER_S = 20.0


@pytest.fixture(autouse=True)
def _no_faults() -> Any:
    yield
    failpoint.configure("")


async def left(r: Rig, sub: str) -> list[tuple[str | None, str]]:
    """The letters that are there, and why."""
    page = await r.client.dead_letters(sub)
    return [(letter.message_id, letter.reason) for letter in page.items]


async def runs(r: Rig, path: str = TARGET) -> list[str]:
    """The runs of a playbook, oldest first."""
    found = (await r.client.executions(limit=100)).items
    return sorted(row.execution_id for row in found if row.path == path)


async def asked_for(r: Rig, sub: str) -> int:
    """How many requests are not done."""
    return len((await r.client.subscription(sub)).pending_actions)


@virtually
async def test_a_letter_that_is_sent_again_is_one_run_and_a_letter_no_more() -> None:
    async with rig() as r:
        sub = await registered(r)
        ref = await kept(r, sub, item_of(1))
        await kept(r, sub, item_of(2))
        await r.client.redrive(sub, LettersWanted(refs=(ref,)))
        await asyncio.sleep(SOON_S)
        [run] = await runs(r)
        assert await facts(r, sub, "message.redriven") == [
            {"ref": ref, "message_id": "PLANT:1", "execution_id": run}
        ]
        assert await facts(r, run, "message.replayed") == [
            {"message_id": "PLANT:1", "recv_seq": "351", "spool_ref": ref, "execution_id": run}
        ]
        found = await r.client.execution(run)
        assert (found.pool, found.parent_execution_id) == ("meters", sub)
        assert found.workload["n"] == 1
        assert await left(r, sub) == [("PLANT:2", "dispatch_rejected")]
        assert await asked_for(r, sub) == 0
        await asyncio.sleep(LATER_S)
        assert await runs(r) == [run]


@virtually
async def test_all_letters_go_at_their_rate_and_those_that_came_later_stay() -> None:
    async with rig() as r:
        sub = await registered(r)
        for number in range(10):
            await kept(r, sub, item_of(number))
        await asyncio.sleep(1)
        asked = await r.client.redrive(sub, LettersWanted(all=True, rate=2))
        assert asked.count == 10
        await asyncio.sleep(1)
        await kept(r, sub, item_of(10))
        await asyncio.sleep(1.2)
        assert 4 <= len(await runs(r)) <= 6
        await asyncio.sleep(LATER_S)
        assert len(await runs(r)) == 10
        assert await left(r, sub) == [("PLANT:10", "dispatch_rejected")]
        assert await asked_for(r, sub) == 0


@virtually
async def test_letters_that_are_dropped_are_gone_and_never_run() -> None:
    async with rig() as r:
        sub = await registered(r)
        refs = [await kept(r, sub, item_of(number)) for number in range(3)]
        await r.client.discard(sub, LettersWanted(refs=(refs[0],), reason="old"))
        await asyncio.sleep(SOON_S)
        assert await facts(r, sub, "message.discarded") == [
            {"ref": refs[0], "message_id": "PLANT:0", "reason": "old"}
        ]
        await r.client.discard(sub, LettersWanted(all=True))
        await asyncio.sleep(SOON_S)
        assert (await left(r, sub), await asked_for(r, sub), await runs(r)) == ([], 0, [])


@virtually
async def test_a_slow_redrive_does_not_hold_up_those_who_want_letters_dropped() -> None:
    async with rig() as r:
        sub = await registered(r)
        refs = [await kept(r, sub, item_of(number)) for number in range(3)]
        await asyncio.sleep(1)
        await r.client.redrive(sub, LettersWanted(all=True, rate=0.5))
        await asyncio.sleep(SOON_S)
        await r.client.discard(sub, LettersWanted(refs=tuple(refs[1:])))
        await asyncio.sleep(LATER_S)
        assert len(await runs(r)) == 1
        assert (await left(r, sub), await asked_for(r, sub)) == ([], 0)


@virtually
async def test_one_that_is_refused_again_is_a_letter_again_until_it_is_asked_for() -> None:
    async with rig() as r:
        sub = await registered(r)
        ref = await kept(r, sub, item_of(1, MISSING))
        await kept(r, sub, item_of(2))
        await asyncio.sleep(1)
        await r.client.redrive(sub, LettersWanted(all=True))
        await asyncio.sleep(LATER_S)
        assert await left(r, sub) == [("PLANT:1", "dispatch_rejected")]
        assert len(await runs(r)) == 1
        assert await asked_for(r, sub) == 0
        assert (await told(r, sub)).count("message.redriven") == 2
        assert (await facts(r, sub, "message.dead_lettered"))[-1]["code"] == "unknown_path"
        content = PLAYBOOK.replace(TARGET, MISSING)
        await r.client.register(Register(content=content))
        await asyncio.sleep(LATER_S)
        assert await runs(r, MISSING) == []
        await r.client.redrive(sub, LettersWanted(refs=(ref,)))
        await asyncio.sleep(SOON_S)
        assert len(await runs(r, MISSING)) == 1
        assert await left(r, sub) == []


@virtually
async def test_one_that_cannot_run_now_is_tried_again_until_it_can() -> None:
    async with rig(backlog_max=1) as r:
        sub = await registered(r)
        await dispatched(r, sub, 7)
        [first] = await runs(r)
        ref = await kept(r, sub, item_of(1))
        await r.client.redrive(sub, LettersWanted(refs=(ref,)))
        await asyncio.sleep(LATER_S)
        assert await left(r, sub) == [("PLANT:1", "dispatch_rejected")]
        assert (await asked_for(r, sub), await runs(r)) == (1, [first])
        await r.client.cancel(first, Control())
        await asyncio.sleep(LATER_S)
        assert len(await runs(r)) == 2
        assert (await left(r, sub), await asked_for(r, sub)) == ([], 0)


@virtually
async def test_a_server_that_dies_between_a_run_and_its_event_leaves_one_run() -> None:
    store, blobs = MemoryStore(), MemoryBlobs()
    clock = LoopClock(asyncio.get_running_loop(), START)
    async with rig(store, blobs=blobs, clock=clock) as r:
        sub = await registered(r)
        for number in range(2):
            await kept(r, sub, item_of(number))
        await asyncio.sleep(1)
        failpoint.configure("subscription.redrive=hang")
        await r.client.redrive(sub, LettersWanted(all=True))
        await asyncio.sleep(SOON_S)
        [run] = await runs(r)
        assert len(await left(r, sub)) == 2
    failpoint.configure("")
    async with rig(store, blobs=blobs, clock=clock, machine=2) as r:
        await asyncio.sleep(SOON_S)
        found = await runs(r)
        assert (len(found), found[0]) == (2, run)
        redriven = await facts(r, sub, "message.redriven")
        assert [one["execution_id"] for one in redriven] == found
        assert (await left(r, sub), await asked_for(r, sub)) == ([], 0)


@virtually
async def test_a_fault_between_a_run_and_its_event_is_made_good() -> None:
    async with rig() as r:
        sub = await registered(r)
        ref = await kept(r, sub, item_of(1))
        failpoint.configure("subscription.redrive=error*2")
        await r.client.redrive(sub, LettersWanted(refs=(ref,)))
        await asyncio.sleep(LATER_S)
        assert len(await runs(r)) == 1
        assert (await told(r, sub)).count("message.redriven") == 1
        assert (await left(r, sub), await asked_for(r, sub)) == ([], 0)


@virtually
async def test_two_servers_that_both_believe_to_lead_start_one_run() -> None:
    store, blobs = MemoryStore(), MemoryBlobs()
    clock = LoopClock(asyncio.get_running_loop(), START)
    shared = {"blobs": blobs, "clock": clock, "is_alone": False}
    async with rig(store, **shared) as one, rig(store, machine=2, **shared) as other:
        sub = await registered(one)
        for number in range(5):
            await kept(one, sub, item_of(number))
        await other.client.redrive(sub, LettersWanted(all=True))
        await asyncio.gather(one.plane.redriving.do(sub), other.plane.redriving.do(sub))
        await asyncio.sleep(LATER_S)
        assert len(await runs(one)) == 5
        assert (await told(one, sub)).count("message.redriven") == 5
        assert (await left(one, sub), await asked_for(one, sub)) == ([], 0)


@virtually
async def test_a_follower_that_is_asked_has_the_leader_do_it() -> None:
    store, blobs = MemoryStore(), MemoryBlobs()
    clock = LoopClock(asyncio.get_running_loop(), START)
    shared = {"blobs": blobs, "clock": clock, "is_alone": False}
    async with rig(store, **shared) as one, rig(store, machine=2, **shared) as other:
        sub = await registered(one)
        ref = await kept(one, sub, item_of(1))
        await asyncio.sleep(SOON_S)
        await other.client.redrive(sub, LettersWanted(refs=(ref,)))
        await asyncio.sleep(LATER_S)
        assert len(await runs(one)) == 1


@virtually
async def test_what_nobody_listens_to_any_more_is_sent_again_and_what_is_paused_waits() -> None:
    async with rig() as r:
        sub = await registered(r)
        refs = [await kept(r, sub, item_of(number)) for number in range(3)]
        await r.client.steer_subscription(sub, "activate")
        await r.client.steer_subscription(sub, "pause")
        await r.client.redrive(sub, LettersWanted(refs=(refs[0],)))
        await r.client.discard(sub, LettersWanted(refs=(refs[1],)))
        await asyncio.sleep(LATER_S)
        assert await runs(r) == []
        assert [name for name, _ in await left(r, sub)] == ["PLANT:0", "PLANT:2"]
        await r.client.steer_subscription(sub, "deactivate")
        await r.client.redrive(sub, LettersWanted(all=True))
        await asyncio.sleep(LATER_S)
        assert len(await runs(r)) == 2
        assert (await left(r, sub), await asked_for(r, sub)) == ([], 0)


@virtually
async def test_letters_of_a_subscription_that_is_drained_by_the_clock_need_no_listener() -> None:
    async with rig() as r:
        sub = await registered(r, spec=SCHEDULED)
        await r.client.steer_subscription(sub, "activate")
        refs = [await kept(r, sub, item_of(number)) for number in range(2)]
        await r.client.redrive(sub, LettersWanted(refs=(refs[0],)))
        await r.client.discard(sub, LettersWanted(refs=(refs[1],)))
        await asyncio.sleep(SOON_S)
        assert len(await runs(r)) == 1
        assert (await left(r, sub), await asked_for(r, sub)) == ([], 0)


@virtually
async def test_letters_of_a_spool_are_left_to_whoever_holds_it() -> None:
    async with rig() as r:
        sub = await registered(r)
        await kept(r, sub, item_of(1))
        event = report(r, sub, "message.dead_lettered", ref="b", message_id="m", reason="poison")
        await post(r, event)
        await asyncio.sleep(1)
        await r.client.redrive(sub, LettersWanted(all=True))
        await asyncio.sleep(LATER_S)
        assert await left(r, sub) == [("m", "poison")]
        [asked] = (await r.client.subscription(sub)).pending_actions
        assert asked["remaining"] == 1
        await post(r, report(r, sub, "message.redriven", ref="b"))
        assert await asked_for(r, sub) == 0


@virtually
async def test_what_is_no_message_is_never_run_and_holds_up_nobody() -> None:
    async with rig() as r:
        sub = await registered(r)
        await kept(r, sub, item_of(1), sha256="0")
        await kept(r, sub, item_of(2), message={})
        plan = {"playbook": 7}
        odd = {"plan": plan, "sha256": sha256_of(item_of(3).message, plan)}
        await kept(r, sub, item_of(3), **odd)
        await kept(r, sub, item_of(4, "system/catalog"))
        await kept(r, sub, item_of(5))
        await asyncio.sleep(1)
        await r.client.redrive(sub, LettersWanted(all=True))
        await asyncio.sleep(SOON_S)
        assert len(await runs(r)) == 1
        assert sorted(await left(r, sub)) == [
            ("PLANT:1", "corrupt"), ("PLANT:2", "corrupt"), ("PLANT:3", "corrupt"),
            ("PLANT:4", "dispatch_rejected"),
        ]  # fmt: skip
        assert await asked_for(r, sub) == 0
