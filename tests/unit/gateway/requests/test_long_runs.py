"""Requests whose runs have more events than one answer of the server tells."""

from __future__ import annotations

import pytest

from noetl.api.commands import Claim
from noetl.api.events import Reports
from noetl.local.virtual import run_virtually
from noetl.server.reading.history import MOST_SCANNED
from tests.unit.gateway.requests.desk import ANN, Desk, desk
from tests.unit.gateway.requests.test_races import swept
from tests.unit.server.rig import many, virtually

CLAIM = Claim(worker_id="w", pool="shared", free_slots=100)


async def worked(d: Desk) -> None:
    """Do every command that there is."""
    while commands := (await d.system.claim(CLAIM)).claimed:
        events = tuple(
            d.server.event(command, name, **payload)
            for command in commands
            for name, payload in (("command.started", {}), ("call.done", {"result": 1}))
        )
        await d.system.report(Reports(worker_id="w", pool="shared", events=events))
    await d.published()


@pytest.mark.parametrize("timeout_secs", [1800, 5])
def test_the_end_of_a_run_of_more_events_than_a_page_looks_at_is_found(timeout_secs: int) -> None:
    run_virtually(_found(timeout_secs))


async def _found(timeout_secs: int) -> None:
    count = 4_100
    async with desk() as d:
        await d.playbook(many(count, 1_000))
        started = await d.start(timeout_secs=timeout_secs)
        await worked(d)
        assert (await d.system.status(started.execution_id)).last_seq > MOST_SCANNED
        while messages := await d.bus.feed.fetch(100, 0.0):
            for message in messages:
                await message.ack()  # lost: whoever took them did not live to tell
        await swept(d, seconds=60)
        wanted = {
            "requestId": started.request_id,
            "executionId": started.execution_id,
            "status": "COMPLETED",
            "data": [1] * count,
        }
        assert await d.results() == [wanted]
        d.wipe()
        rebuilt = await d.requests.document(ANN, started.request_id)
        assert (rebuilt.state, rebuilt.result) == ("completed", [1] * count)


@virtually
async def test_the_end_of_a_run_is_found_before_all_that_was_reported_too_late() -> None:
    async with desk() as d:
        started = await d.start()
        (command,) = (await d.system.claim(CLAIM)).claimed
        await d.cancel(started.execution_id)
        for _ in range(MOST_SCANNED // 250 + 1):
            late = tuple(d.server.event(command, "call.done", result=1) for _ in range(250))
            await d.system.report(Reports(worker_id="w", pool="shared", events=late))
        assert (await d.system.status(started.execution_id)).last_seq > MOST_SCANNED
        row = await d.requests.parts.rebuilds.last_row(started.execution_id)
        assert row is not None
        assert row["event_type"] == "playbook.cancelled"
