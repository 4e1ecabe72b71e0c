"""Who gets a command that was lost, and beside what it runs."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.api.problems import Refused
from noetl.server.ingest.caution import is_last_chance
from tests.unit.server.rig import ONE_STEP, many, rig, virtually


@pytest.mark.parametrize(
    ("losses", "most", "is_last"),
    [(0, 3, False), (1, 3, False), (2, 3, True), (3, 3, True), (0, 1, False), (1, 2, True)],
)
def test_the_last_try_of_what_was_lost_before(losses: int, most: int, is_last: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert is_last_chance(losses, most) is is_last


@virtually
async def test_what_one_more_loss_would_end_is_given_one_by_one() -> None:
    async with rig() as r:
        run = await r.start(many(3, 3))
        for _ in range(2):
            assert len(await r.claim(slots=3)) == 3
            await asyncio.sleep(17)  # the lease and the look after it
        (first,) = await r.claim(slots=3)
        assert (first.attempt, await r.claim(slots=2)) == (3, [])
        waiting = [row for row in await r.store.commands.unhinted("9") if row.status == "PENDING"]
        with pytest.raises(Refused) as refusal:
            await r.client.claim_one(waiting[0].command_id, "w")
        assert refusal.value.code == "active_claim"
        (other,) = await r.claim("another", slots=3)
        (last,) = (await r.done(first, slots=3)).claimed
        await r.done(last)
        await r.done(other, worker_id="another")
        assert await r.status(run) == "COMPLETED"


@virtually
async def test_a_lost_command_is_not_given_to_the_parked_request_of_its_worker() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        await r.claim()
        silent = asyncio.create_task(r.claim(wait_seconds=20))
        await asyncio.sleep(1)
        other = asyncio.create_task(r.claim("another", wait_seconds=20))
        await asyncio.sleep(17)
        assert [item.attempt for item in other.result()] == [2]
        assert silent.result() == []


@virtually
async def test_the_word_about_a_lost_attempt_names_it() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        (work,) = await r.claim()
        async with r.bus.listen("noetl.control.shared") as words:
            other = asyncio.create_task(r.claim("another", wait_seconds=20))
            word = msgspec.json.decode((await anext(words)).payload)
        (again,) = await other
        assert word["attempts"] == {work.command_id: 1}
        answer = await r.done(again, worker_id="another")
        assert answer.cancelled == ()
