"""Callbacks, ends of runs, deadlines and cancels at once, on two gateways, with parts that fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noetl.api.gateway import Callback
from noetl.bus.base import BusGone
from noetl.gateway.requests.record import SWEEPER
from tests.unit.gateway.requests.desk import ANN, CLIENT, desk
from tests.unit.server.rig import virtually


async def swept(*replicas: Any, seconds: float = 60) -> None:
    """Let time pass, with sweeps."""
    for _ in range(int(seconds / 5)):
        await asyncio.sleep(5)
        for replica in replicas:
            await replica.requests.sweeping.sweep()


@virtually
async def test_24_a_deadline_ends_the_request_and_leave_keeps_the_late_result() -> None:
    async with desk() as d:
        started = await d.start(timeout_secs=1)
        sweep = asyncio.create_task(d.requests.sweep())
        await asyncio.sleep(7)
        (result,) = await d.results()
        assert (result["status"], result["error"]["code"]) == ("FAILED", -32001)
        kept = await d.requests.document(ANN, started.request_id)
        assert kept.state == "timeout"
        await d.step({"late": True})
        await d.heard()
        assert len(await d.results()) == 1
        last = (await d.messages())[-1]
        assert (last["method"], last["params"]["status"]) == ("playbook/state", "COMPLETED")
        kept = await d.requests.document(ANN, started.request_id)
        assert kept.late_result is not None
        assert kept.late_result["result"] == {"late": True}
        assert d.metrics.request_timeout.value() == 1
        sweep.cancel()
        await asyncio.gather(sweep, return_exceptions=True)
        assert await d.bus.requests.get(SWEEPER) is None


@virtually
async def test_24_cancel_stops_the_run_also_when_the_server_is_away_at_first() -> None:
    async with desk() as d:
        started = await d.start(timeout_secs=1, on_timeout="cancel")
        await asyncio.sleep(2)
        d.way.is_barred = True
        await d.requests.sweeping.sweep()
        assert len(await d.results()) == 1
        d.way.is_barred = False
        await swept(d, seconds=10)
        run = await d.system.execution(started.execution_id)
        assert run.status == "CANCELLED"
        await d.heard()
        assert [each["error"]["code"] for each in await d.results()] == [-32001]
        assert await d.requests.parts.records.opened() == []


@virtually
async def test_24_a_record_lives_as_long_as_its_deadline() -> None:
    async with desk(ttl_s=60.0) as d:
        started = await d.start(timeout_secs=1200)
        await asyncio.sleep(1000)
        assert d.bus.requests._found(f"r.{started.request_id}")  # noqa: SLF001 - still kept
        await swept(d, seconds=250)
        assert [each["error"]["code"] for each in await d.results()] == [-32001]


@virtually
async def test_24_a_run_that_ended_in_time_is_no_timeout_though_nobody_has_heard_of_it() -> None:
    async with desk() as d:
        await d.start(timeout_secs=2)
        await d.step({"in": "time"})
        await swept(d, seconds=10)
        assert [each.get("data") for each in await d.results()] == [{"in": "time"}]
        await d.heard()
        assert len(await d.results()) == 1


@virtually
async def test_a_callback_after_the_deadline_is_kept_as_late() -> None:
    async with desk() as d:
        started = await d.start(timeout_secs=1)
        token = await d.token(started.request_id)
        await swept(d, seconds=10)
        assert await d.call_back(started.request_id, data={"x": 1}, token=token) == "duplicate"
        kept = await d.requests.document(ANN, started.request_id)
        assert kept.state == "timeout"
        assert kept.late_result is not None
        assert kept.late_result["result"] == {"x": 1}
        await d.step()
        await d.heard()
        assert len(await d.results()) == 1
        await asyncio.sleep(2000)
        again = await d.requests.document(ANN, started.request_id)
        assert again.state == "timeout"


@virtually
async def test_20_a_callback_at_one_gateway_reaches_the_client_at_the_other() -> None:
    async with desk() as d:
        other = d.replica()
        started = await d.start()
        token = await d.token(started.request_id)
        await other.hub.presence.beat()
        await d.hub.presence.beat()
        body = Callback(request_id=started.request_id, data=1)
        assert await other.requests.callback(body, token) == "delivered"
        assert [each["data"] for each in await d.results()] == [1]


@virtually
async def test_20_both_gateways_that_see_the_end_produce_one_message() -> None:
    async with desk() as d:
        other = d.replica()
        started = await d.start()
        await d.step()
        messages = await d.bus.feed.fetch(10, 0.0)
        for message in messages:
            await asyncio.gather(
                d.requests.feeding._told(message),  # noqa: SLF001 - the same delivery twice
                other.requests.feeding._told(message),  # noqa: SLF001 - as above
            )
        told = await d.messages()
        assert [each["method"] for each in told].count("playbook/result") == 1
        states = [each["params"]["seq"] for each in told if each["method"] == "playbook/state"]
        assert len(states) == len(set(states))
        assert (await d.requests.document(ANN, started.request_id)).state == "completed"


@pytest.mark.parametrize("order", range(6))
def test_all_ends_at_once_on_two_gateways_are_one(order: int) -> None:
    @virtually
    async def run() -> None:
        async with desk() as d:
            other = d.replica()
            started = await d.start(timeout_secs=1)
            token = await d.token(started.request_id)
            await d.step({"by": "run"})
            await asyncio.sleep(2)
            body = Callback(request_id=started.request_id, data={"by": "callback"})
            for each in (d, other):
                each.requests.sweeping._look_at[started.request_id] = 0.0  # noqa: SLF001 - at once
            ends = [
                other.requests.callback(body, token),
                d.heard(),
                other.requests.sweeping.sweep(),
                d.requests.sweeping.sweep(),
                d.requests.callback(body, token),
                other.heard(),
            ]
            turned = ends[order:] + ends[:order]
            await asyncio.gather(*turned)
            await swept(d, other, seconds=10)
            assert len(await d.results()) == 1
            kept = await d.requests.document(ANN, started.request_id)
            (told,) = await d.results()
            assert told.get("data") == kept.result
            assert await d.requests.parts.records.opened() == []

    run()


@pytest.mark.parametrize("part", ["get", "update", "delete", "append", "server"])
def test_a_feed_that_fails_on_the_way_is_delivered_again_and_told_once(part: str) -> None:
    @virtually
    async def run() -> None:
        async with desk() as d:
            started = await d.start()
            d.requests.parts.records._known.clear()  # noqa: SLF001 - as another gateway
            await d.step({"n": 1})
            append = d.bus.clients.append
            if part == "server":
                d.way.is_barred = True
            elif part == "append":

                async def gone(*_: object) -> int:
                    raise BusGone("the bus is away")

                d.bus.clients.append = gone  # type: ignore[method-assign] # for a while
            else:
                d.keys.barred.add(part)
            await d.heard()
            d.keys.barred.clear()
            d.way.is_barred = False
            d.bus.clients.append = append  # type: ignore[method-assign] # as it was
            await asyncio.sleep(5)
            await d.heard()
            await swept(d, seconds=15)
            assert [each["data"] for each in await d.results()] == [{"n": 1}]
            assert (await d.requests.document(ANN, started.request_id)).state == "completed"
            assert await d.requests.parts.records.opened() == []

    run()


@virtually
async def test_an_end_that_was_noted_and_not_told_is_told_by_the_sweeper() -> None:
    async with desk() as d:
        await d.start()
        await d.step({"n": 1})
        tell = d.requests.parts.ends.tell

        async def killed(_: object) -> bool:
            raise BusGone("this gateway is gone")

        d.requests.parts.ends.tell = killed  # type: ignore[method-assign] # it dies here
        await d.heard()
        d.requests.parts.ends.tell = tell  # type: ignore[method-assign] # as it was
        assert await d.results() == []
        other = d.replica()
        await swept(other, seconds=15)
        assert [each["data"] for each in await d.results()] == [{"n": 1}]


@virtually
async def test_a_silent_request_is_asked_from_the_server() -> None:
    async with desk() as d:
        await d.start()
        await d.step({"n": 2})
        for message in await d.bus.feed.fetch(10, 0.0):
            await message.ack()  # lost: whoever took it did not live to tell
        await swept(d, seconds=60)
        told = await d.messages()
        assert [each["method"] for each in told][-2:] == ["playbook/state", "playbook/result"]
        assert [each["data"] for each in await d.results()] == [{"n": 2}]


@virtually
async def test_a_silent_request_that_goes_on_is_asked_every_half_minute_only() -> None:
    async with desk() as d:
        await d.start()
        d.way.asked.clear()
        await swept(d, seconds=300)
        assert 8 <= len(d.way.asked) <= 10
        assert await d.results() == []


@virtually
async def test_19_a_lost_bucket_is_rebuilt_and_every_result_is_told() -> None:
    async with desk() as d:
        before, during, after = [await d.start() for _ in range(3)]
        await d.call_back(before.request_id, data="before")
        assert await d.step("the rest of a run that was told")
        assert await d.step("during")
        for message in await d.bus.feed.fetch(10, 0.0):
            await message.ack()  # lost with the store
        d.wipe()
        d.bus.clients._clients.clear()  # noqa: SLF001 - the log is lost, too
        d.bus.clients._seen.clear()  # noqa: SLF001 - as above
        await d.requests.restored(ANN, CLIENT)
        pending = {each["requestId"] for each in await d.requests.pending(ANN, CLIENT)}
        undelivered = d.requests.undelivered(ANN, CLIENT)
        ended = {each.request_id: each.result async for each in undelivered}
        assert pending == {after.request_id}
        assert ended == {before.request_id: "before", during.request_id: "during"}
        assert await d.step("after")
        await d.heard()
        assert [each["data"] for each in await d.results()] == ["after"]


@virtually
async def test_19_a_lost_bucket_costs_no_result_when_nobody_reconnects() -> None:
    async with desk() as d:
        started = await d.start()
        d.wipe()
        await d.step({"n": 3})
        await d.heard()
        assert [each["data"] for each in await d.results()] == [{"n": 3}]
        kept = await d.requests.document(ANN, started.request_id)
        assert (kept.state, kept.result) == ("completed", {"n": 3})


@virtually
async def test_a_record_that_is_gone_while_its_name_is_there_is_rebuilt() -> None:
    async with desk() as d:
        started = await d.start()
        await d.bus.requests.delete(f"r.{started.request_id}")
        await swept(d, seconds=20)
        assert d.bus.requests._found(f"r.{started.request_id}")  # noqa: SLF001 - again
        await d.step()
        await d.heard()
        assert len(await d.results()) == 1


@virtually
async def test_only_one_gateway_sweeps_and_another_takes_over() -> None:
    async with desk() as d:
        other = d.replica()
        first, second = d.requests.sweeping._lease, other.requests.sweeping._lease  # noqa: SLF001 - the leases
        assert await first.held()
        assert not await second.held()
        await asyncio.sleep(5)
        assert await first.held()
        assert not await second.held()
        await asyncio.sleep(11)
        assert await second.held()
        assert not await first.held()
        await second.release()
        assert await first.held()


@virtually
async def test_a_long_run_after_its_record_is_forgotten_is_not_told_twice() -> None:
    async with desk() as d:
        by_callback = await d.start(timeout_secs=80_000)
        by_deadline = await d.start(timeout_secs=1)
        await d.call_back(by_callback.request_id, data=1)
        await swept(d, seconds=10)
        assert len(await d.results()) == 2
        await asyncio.sleep(4000)
        d.bus.clients._clients.clear()  # noqa: SLF001 - half an hour has passed for it, too
        d.requests.parts.records._known.clear()  # noqa: SLF001 - a new gateway
        await d.step()
        await d.step()
        await d.heard()
        await swept(d, seconds=60)
        assert await d.results() == []
        kept = await d.requests.document(ANN, by_deadline.request_id)
        assert kept.state == "timeout"
        assert kept.late_result is not None
