"""The outbox for others: events that a playbook publishes instead of the server."""

from __future__ import annotations

import asyncio

import pytest

from noetl.api.internal import OutboxFailed, OutboxPublished
from noetl.api.problems import Refused
from noetl.server.loops import publish
from tests.unit.server.rig import ONE_STEP, TWO_STEPS, rig, virtually


async def refused(work) -> tuple[int, str]:
    with pytest.raises(Refused) as refusal:
        await work
    return refusal.value.problem.status, refusal.value.code


@virtually
async def test_a_playbook_gets_every_event_once_and_in_order() -> None:
    async with rig(publishes=True, publisher="playbook") as r:
        async with r.bus.listen("noetl.events.>") as words:
            run = await r.start(TWO_STEPS)
            (work,) = await r.claim()
            reported = await r.done(work, slots=1)
            await r.done(reported.claimed[0])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(30):
                    await anext(words)
        assert (await r.client.outbox_pending()).pending >= 3
        taken = await r.client.claim_outbox(1000)
        assert taken.claimed == len(taken.rows)
        assert {row.subject for row in taken.rows} == {f"noetl.events.default.default.{run}.0"}
        told = [event for row in taken.rows for event in row.payload["events"]]
        log = (await r.client.events(run, limit=1000)).items
        wanted = [row["event_id"] for row in log if row["event_type"] != "command.claimed"]
        assert [event["event_id"] for event in told] == wanted
        assert taken.rows[-1].event_id == log[-1]["event_id"]
        assert (await r.client.claim_outbox()).claimed == 0
        ids = tuple(row.outbox_id for row in taken.rows)
        assert (await r.client.outbox_published(OutboxPublished(outbox_ids=ids))).marked == len(ids)
        assert (await r.client.outbox_published(OutboxPublished(outbox_ids=ids))).marked == 0
        assert (await r.client.outbox_pending()).pending == 0


@virtually
async def test_a_server_that_publishes_leaves_to_others_only_what_fell_due() -> None:
    async with rig(publishes=True) as r:
        await r.start(ONE_STEP)
        assert (await r.client.claim_outbox()).claimed == 0
        await asyncio.sleep(5)
        assert await publish.sweep(r.plane) == 0
        assert (await r.client.outbox_pending()).pending == 0


@virtually
async def test_a_failed_message_comes_back_later_and_later() -> None:
    async with rig(publishes=True, publisher="playbook") as r:
        await r.start(ONE_STEP)
        waits = []
        for _ in range(4):
            (row,) = (await r.client.claim_outbox()).rows
            failed = await r.client.outbox_failed(
                OutboxFailed(outbox_id=row.outbox_id, error="away", attempts=1, max_delay_seconds=3)
            )
            assert failed.marked == 1
            waits.append(failed.available_at_in)
            assert (await r.client.claim_outbox()).claimed == 0
            await asyncio.sleep(float(failed.available_at_in or 0))
        assert waits == [1.0, 2.0, 3.0, 3.0]
        unknown = await r.client.outbox_failed(OutboxFailed(outbox_id="77"))
        assert (unknown.marked, unknown.available_at_in) == (0, None)


@virtually
async def test_a_publisher_that_dies_loses_what_it_took_after_a_minute() -> None:
    async with rig(publishes=True, publisher="playbook") as r:
        await r.start(ONE_STEP)
        (first,) = (await r.client.claim_outbox()).rows
        await asyncio.sleep(59)
        assert (await r.client.claim_outbox()).claimed == 0
        await asyncio.sleep(2)
        (again,) = (await r.client.claim_outbox()).rows
        assert (again.outbox_id, again.attempts) == (first.outbox_id, 2)


@virtually
async def test_what_cannot_be_meant_is_refused() -> None:
    async with rig(publishes=True, publisher="playbook") as r:
        assert await refused(r.client.outbox_published(OutboxPublished())) == (400, "bad_query")
        for limit in (0, 1001):
            assert (await refused(r.client.claim_outbox(limit)))[0] == 422
        many = OutboxPublished(outbox_ids=tuple(map(str, range(1, 1002))))
        assert (await refused(r.client.outbox_published(many)))[0] == 422
        elsewhere = OutboxPublished(outbox_ids=("1",), shard=3)
        assert (await refused(r.client.outbox_published(elsewhere)))[0] == 422
        bad = OutboxPublished(outbox_ids=("x",))
        assert await refused(r.client.outbox_published(bad)) == (422, "invalid_id")
