"""Requests whose runs have more events than one answer of the server tells."""

from __future__ import annotations

import json

import pytest

from noetl.api.commands import Claim
from noetl.api.events import Reports
from noetl.gateway.requests.feeding import TOLD
from noetl.local.virtual import run_virtually
from noetl.server.reading.history import MOST_SCANNED
from tests.unit.gateway.requests.desk import ANN, Desk, desk
from tests.unit.gateway.requests.test_races import swept
from tests.unit.server.rig import many, virtually

CLAIM = Claim(worker_id="w", pool="shared", free_slots=100)
LONG_NAME = "n" * 100


async def worked(d: Desk, result: object = 1, most: int = 10_000) -> None:
    """Do every command that there is, or some of them."""
    while most and (commands := (await d.system.claim(CLAIM)).claimed):
        most -= len(commands)
        events = tuple(
            d.server.event(command, name, **payload)
            for command in commands
            for name, payload in (("command.started", {}), ("call.done", {"result": result}))
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


@pytest.mark.parametrize("step", ["start", LONG_NAME], ids=["rows", "no rows"])
def test_a_commit_of_more_events_than_a_page_has_is_told_whole(step: str) -> None:
    """A long name makes the message so large that it tells none of its events."""
    run_virtually(_told_whole(step))


async def _told_whole(step: str) -> None:
    count = 1_000
    async with desk() as d:
        await d.playbook(many(count, count).replace("start", step))
        started = await d.start()
        await d.published()
        (message,) = await d.bus.feed.fetch(10, 0.0)
        commit = json.loads(message.payload)
        assert commit["last_seq"] > count
        assert (commit["is_stripped"], bool(commit["events"])) == (True, step != LONG_NAME)
        await message.nak()
        await d.heard()
        await worked(d)
        await d.heard()
        page = await d.system.events(started.execution_id, event_type=sorted(TOLD))
        told = await d.messages()
        assert [(each["method"], each["params"].get("seq")) for each in told] == [
            *(("playbook/state", row["seq"]) for row in page.items),
            ("playbook/result", None),
        ]
        assert [each["data"] for each in await d.results()] == [[1] * count]


@virtually
async def test_events_that_nobody_is_told_are_not_read() -> None:
    async with desk() as d:
        await d.playbook(many(200, 100))
        await d.start()
        await d.published()
        await d.heard()
        await worked(d, result="x" * 4_000, most=100)
        (message, *_) = await d.bus.feed.fetch(10, 0.0)
        assert json.loads(message.payload)["is_stripped"] is True
        await message.nak()
        d.way.asked.clear()
        await d.heard()
        assert [call for call in d.way.asked if call.endswith("/events")] == []
