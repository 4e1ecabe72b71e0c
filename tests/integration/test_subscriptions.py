"""Subscriptions on PostgreSQL, with two servers: one log, one run per key, one drain per tick."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from noetl.api.commands import Claim
from noetl.api.executions import Dedup
from noetl.clock import rfc3339
from tests.integration.test_two_servers import server
from tests.unit.server.subscriptions.stage import (
    NATS,
    TRACE,
    dispatched,
    facts,
    message,
    post,
    registered,
    report,
    told,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.server.rig import Rig

EVERY_1S = f"{NATS}, activation: scheduled, cadence: 1s, runtime: {{pool: meters}}"


@pytest.fixture
async def pair(postgres_url: str) -> AsyncIterator[tuple[Rig, Rig]]:
    async with server(postgres_url, 1) as one, server(postgres_url, 2) as two:
        yield one, two


def _claim(pool: str) -> Claim:
    return Claim(worker_id="w", pool=pool, free_slots=1, wait_seconds=10)


async def test_two_servers_write_one_log_without_gaps(pair: tuple[Rig, Rig]) -> None:
    one, two = pair
    sub = await registered(one)
    assert (await two.client.register_subscription("subs/meters")).subscription_id == sub
    batches = [
        [report(r, sub, "message.spooled", message_id=f"{n}:{k}") for k in range(4)]
        for n, r in enumerate((one, two) * 10)
    ]
    await asyncio.gather(
        *(post(r, *batch) for batch, r in zip(batches, (one, two) * 10, strict=True)),
        *(two.client.steer_subscription(sub, action) for action in ("activate", "activate")),
    )
    again = await asyncio.gather(*(post(two, *batch) for batch in batches))
    assert {item.outcome for answer in again for item in answer.results} == {"duplicate"}
    rows = (await one.client.events(sub, limit=1000)).items
    assert [row["seq"] for row in rows] == list(range(1, 83))
    previous = [row["prev_event_id"] for row in rows[1:]]
    assert previous == [row["event_id"] for row in rows[:-1]]
    found = await one.client.subscription(sub)
    assert (found.state, found.last_event_type.split(".")[0]) == ("ACTIVE", "subscription")
    assert (await told(two, sub)).count("activated") == 1


async def test_of_two_servers_with_one_message_one_starts_its_run(pair: tuple[Rig, Rig]) -> None:
    one, two = pair
    sub = await registered(one)
    keys = Dedup(key="m:1", replay_key="r:1", window_secs=600)
    made = await asyncio.gather(
        *(dispatched(r, sub, 1, dedup=keys, trace=TRACE) for r in (one, two) * 8)
    )
    assert len({item.execution_id for item in made}) == 1
    assert [item.status for item in made].count("started") == 1
    duplicates = await facts(one, sub, "message.deduplicated")
    assert len(duplicates) == 15
    run = made[0].execution_id
    rows = (await two.client.events(run, limit=3)).items
    assert rows[0]["meta"]["subscription"]["id"] == sub
    assert rows[1]["event_type"] == "subscription.message.directives_applied"
    batches = await asyncio.gather(
        *(r.client.execute_batch(tuple(message(sub, n) for n in range(20))) for r in pair)
    )
    assert sum(batch.started for batch in batches) == 20
    assert sum(batch.failed for batch in batches) == 0
    assert (await one.client.executions()).items[0].parent_execution_id == sub


async def test_the_start_of_the_largest_message_is_written_and_read(pair: tuple[Rig, Rig]) -> None:
    one, two = pair
    sub = await registered(one)
    body = "x" * (8 << 20)
    made = await one.client.execute_batch((message(sub, 1, payload={"a": body, "b": body}),))
    (run,) = [item.execution_id for item in made.results]
    assert (made.started, run is not None) == (1, True)
    (command,) = (await two.client.claim(_claim("meters"))).claimed
    await two.done(command)
    assert await two.status(str(run)) == "COMPLETED"


async def test_outcomes_of_both_servers_are_told_once_in_an_order_that_stays(
    pair: tuple[Rig, Rig],
) -> None:
    one, two = pair
    sub = await registered(one)
    for n in range(12):
        await dispatched((one, two)[n % 2], sub, n, execution_pool="shared")

    async def work(r: Rig, name: str) -> None:
        for _ in range(20):
            commands = await r.claim(name, slots=2, wait_seconds=1)
            await asyncio.gather(*(r.done(command, worker_id=name) for command in commands))
            if not commands:
                return

    seen: list[str] = []

    async def listen() -> None:
        cursor = None
        while len(seen) < 12:
            found = await two.client.outcomes(sub, cursor, wait_ms=500, limit=3)
            cursor = found.cursor
            seen.extend(item.execution_id for item in found.outcomes)

    await asyncio.gather(work(one, "w1"), work(two, "w2"), asyncio.wait_for(listen(), 60))
    assert len(set(seen)) == 12
    again = (await one.client.outcomes(sub, wait_ms=0)).outcomes
    assert [item.execution_id for item in again] == seen


async def test_a_tick_is_fired_by_one_of_two_servers(pair: tuple[Rig, Rig]) -> None:
    one, two = pair
    sub = await registered(one, spec=EVERY_1S)
    await two.client.steer_subscription(sub, "activate")
    for _ in range(2):
        (command,) = (await one.client.claim(_claim("meters"))).claimed
        await one.done(command)
    await two.client.steer_subscription(sub, "deactivate")
    rows = await one.store.executions.children(sub)
    due = [row.workload["drain"]["due_at"] for row in rows]
    assert len(due) == len(set(due)) >= 2
    for row in rows:
        drain = row.workload["drain"]
        assert drain["fired_at"] >= drain["due_at"]
    assert (await told(one, sub))[-2:] == ["deactivated", "timer.cancelled"]


async def test_a_log_of_a_subscription_keeps_its_month(pair: tuple[Rig, Rig]) -> None:
    one, _ = pair
    sub = await registered(one)
    later = rfc3339(one.plane.parts.clock.now() + timedelta(days=62))
    months = await one.store.upkeep.partitions(later)
    kept = [month for month in months if sub in month.blockers]
    assert {month.table for month in kept} == {"event", "log"}
