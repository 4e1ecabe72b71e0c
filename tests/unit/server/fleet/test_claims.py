"""Claims of commands that are named: many at once, no more than there are slots for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from noetl.api.commands import Claim
from noetl.api.executions import Execute
from noetl.api.problems import Refused
from noetl.server.access.caller import Caller
from tests.unit.server.rig import ONE_STEP, Rig, many, rig, virtually

if TYPE_CHECKING:
    from noetl.api.commands import Claimed


async def pending(r: Rig) -> list[str]:
    return [row.command_id for row in await r.store.commands.pending("shared", 100)]


async def claimed(r: Rig, ids: list[str], slots: int = 64, worker_id: str = "w") -> Claimed:
    asked = Claim(worker_id=worker_id, pool="shared", free_slots=slots, event_ids=tuple(ids))
    return await r.client.claim(asked)


@virtually
async def test_sixty_four_commands_of_many_runs_are_claimed_in_one_commit() -> None:
    async with rig() as r:
        await r.start(many(32, 32))
        await r.start(ONE_STEP)
        for _ in range(31):
            await r.client.execute(Execute(path="demo/it"))
        ids = await pending(r)
        before = r.plane.metrics.commit_duration.count()
        told = await claimed(r, ids)
        assert r.plane.metrics.commit_duration.count() - before == 1
        assert ([one.command_id for one in told.claimed], told.skipped) == (ids, ())
        assert await pending(r) == []
        assert await claimed(r, ids) == told  # who holds them is told again


@virtually
async def test_no_more_are_claimed_than_there_are_slots_for() -> None:
    async with rig() as r:
        await r.start(many(4, 4))
        ids = await pending(r)
        told = await claimed(r, ["77", "no id", *ids, ids[0]], slots=2)
        assert [one.command_id for one in told.claimed] == ids[:2]
        assert [(one.event_id, one.code) for one in told.skipped] == [
            ("77", "unknown_command"), ("no id", "invalid_id"),
            (ids[2], "no_free_slot"), (ids[3], "no_free_slot"),
        ]  # fmt: skip
        assert await pending(r) == ids[2:]


@virtually
async def test_what_cannot_be_claimed_takes_no_slot() -> None:
    async with rig() as r:
        await r.start(many(3, 3))
        ids = await pending(r)
        await claimed(r, ids[:1], worker_id="other")
        told = await claimed(r, ids, slots=1)
        assert [one.command_id for one in told.claimed] == ids[1:2]
        assert [(one.event_id, one.code) for one in told.skipped] == [
            (ids[0], "active_claim"), (ids[2], "no_free_slot"),
        ]  # fmt: skip


@virtually
async def test_more_than_sixty_four_names_are_refused() -> None:
    async with rig() as r:
        with pytest.raises(Refused) as refusal:
            await claimed(r, [str(number) for number in range(1, 66)])
        told = refusal.value.problem
        assert (told.status, told.code) == (422, "batch_size_invalid")
        assert len((await claimed(r, [str(number) for number in range(1, 65)])).skipped) == 64


@virtually
async def test_a_command_of_another_pool_is_skipped() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        ids = await pending(r)
        asked = Claim(worker_id="w", pool="gpu", event_ids=tuple(ids))
        told = await r.plane.claims.claim(asked, Caller("w", ("worker",), "gpu"))
        assert [(one.event_id, one.code) for one in told.skipped] == [(ids[0], "pool_forbidden")]
        assert await pending(r) == ids
