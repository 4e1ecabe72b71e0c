"""Verified deliveries become runs, or wait here, whatever becomes of gateways in between."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from noetl.blobs.spool.base import SpoolError
from noetl.clock import rfc3339
from noetl.gateway.ingress.edge_engine import LETTERS_S, WATCH_S, rate_of
from noetl.local.virtual import run_virtually
from tests.unit.gateway.ingress.edge_town import PASSIVE, Town, known, planned
from tests.unit.intake.world import settled, until

OFF = {"spec": {"spool": {"mode": "off"}}}


def told(found):
    return found.settle, found.outcome, found.reason


def test_a_delivery_is_run_and_its_edge_is_opened_once():
    async def main():
        town = Town()
        async with town.gateway() as gateway:
            found = await asyncio.gather(*(gateway.deliver(n) for n in range(20)))
        assert settled(found) == [("ack", "started")] * 20
        assert sorted(town.server.started) == sorted(f"m{n}" for n in range(20))
        assert town.opened == [("orders", 1, "opened"), ("orders", 1, "closed")]

    run_virtually(main())


def test_what_waits_is_drained_by_the_next_gateway_without_a_new_delivery():
    async def main():
        town = Town()
        town.server.is_down = True
        async with town.gateway() as gateway:
            found = [await gateway.deliver(n, key="k") for n in range(5)]
            assert {one.outcome for one in found} == {"spooled"}
            gateway.kill()
        assert len(await town.waiting()) == 5
        town.server.is_down = False
        async with town.gateway("two"):
            await until(lambda: len(town.server.started) == 5)
        assert town.server.started == [f"m{n}" for n in range(5)]
        assert await town.waiting() == []

    run_virtually(main())


def test_one_that_waited_for_a_server_that_was_away_at_the_start_is_drained():
    async def main():
        town = Town()
        town.server.is_down = True
        async with town.gateway() as gateway:
            assert (await gateway.deliver(1)).outcome == "spooled"
        town.server.is_down, town.is_silent = False, True
        async with town.gateway("two"):
            await asyncio.sleep(120)
            assert town.server.started == []
            town.is_silent = False
            await until(lambda: town.server.started == ["m1"], 20)

    run_virtually(main())


@pytest.mark.parametrize("state", ["PAUSED", "REGISTERED"])
def test_paused_ones_wait_until_they_are_resumed(state):
    async def main():
        town = Town(known(state=state))
        async with town.gateway() as gateway:
            found = [await gateway.deliver(n, key="k") for n in range(3)]
            assert {told(one) for one in found} == {("ack", "spooled", "paused")}
            await asyncio.sleep(300)
            assert town.server.started == []
            town.now(state="ACTIVE")
            gateway.edges.hinted("orders")
            began = town.clock.monotonic()
            await until(lambda: len(town.server.started) == 3)
            assert town.clock.monotonic() - began < 1.5
        assert town.server.started == ["m0", "m1", "m2"]

    run_virtually(main())


def test_a_pause_that_nobody_hints_at_stops_the_drain_soon_after_it_is_known():
    async def main():
        town = Town()
        town.server.is_down = True
        async with town.gateway() as gateway:
            await gateway.deliver(1)
            town.now(state="PAUSED")
            await asyncio.sleep(3)
            town.server.is_down = False
            await asyncio.sleep(300)
            assert town.server.started == []
            town.now(state="ACTIVE")
            await until(lambda: town.server.started == ["m1"], 5)

    run_virtually(main())


def test_paused_without_a_spool_is_sent_back():
    async def main():
        town = Town(known(state="PAUSED", **OFF))
        async with town.gateway() as gateway:
            assert told(await gateway.deliver(1)) == ("nack", "held", "paused")
        assert town.server.started == []

    run_virtually(main())


def test_a_new_version_reopens_and_an_old_one_never_comes_back():
    async def main():
        town = Town()
        old = town.listeners["orders"]
        async with town.gateway() as gateway:
            await gateway.deliver(1)
            town.server.takes_s = 2.0
            slow = asyncio.create_task(gateway.deliver(2))
            await asyncio.sleep(0.1)
            town.now(version=2)
            gateway.edges.hinted("orders")
            new = asyncio.create_task(gateway.deliver(3))
            assert settled([await slow, await new]) == [("ack", "started")] * 2
            assert (await gateway.deliver(4, of=old)).outcome == "started"
        marks = ["opened", "closed"]
        assert town.opened == [("orders", n, word) for n in (1, 2) for word in marks]

    run_virtually(main())


def test_a_delivery_of_a_version_that_nobody_told_of_yet_opens_it():
    async def main():
        town = Town()
        async with town.gateway() as gateway:
            await gateway.deliver(1)
            assert (await gateway.deliver(2, of=known(version=3))).outcome == "started"
        assert ("orders", 3, "opened") in town.opened

    run_virtually(main())


def test_an_end_waits_for_what_is_under_way_and_then_promises_nothing():
    async def main():
        town = Town()
        async with town.gateway() as gateway:
            await gateway.deliver(0)
            town.server.takes_s = 3.0
            slow = asyncio.create_task(gateway.deliver(1))
            await asyncio.sleep(0.1)
            ending = asyncio.create_task(gateway.stop())
            await asyncio.sleep(0.1)
            assert town.opened == [("orders", 1, "opened")]
            assert told(await gateway.deliver(2)) == ("nack", "held", "spool_unavailable")
            assert (await slow).outcome == "started"
            await ending
            assert town.opened[-1] == ("orders", 1, "closed")

    run_virtually(main())


def test_the_rate_of_a_listener_counts_what_came_and_says_when_there_is_room():
    async def main():
        town = Town(known(rate={"per_sec": 2, "burst": 5}, **OFF))
        async with town.gateway() as gateway:
            found = [await gateway.deliver(n) for n in range(8)]
            assert [one.outcome for one in found] == ["started"] * 5 + ["held"] * 3
            assert {told(one) for one in found[5:]} == {("nack", "held", "rate_limited")}
            assert all(one.delay_ms >= 1000 for one in found[5:])
            await asyncio.sleep(1)
            found = [await gateway.deliver(n) for n in range(10, 13)]
            assert [one.outcome for one in found] == ["started", "started", "held"]
        [event] = town.server.told("rate_limited")
        assert (event["reason"], event["per_sec"], event["action"]) == (
            "dispatch_rate", 2, "refused",
        )  # fmt: skip

    run_virtually(main())


def test_what_is_too_fast_waits_and_comes_back_at_the_rate():
    async def main():
        town = Town(known(rate={"per_sec": 10, "burst": 10}))
        async with town.gateway() as gateway:
            found = await asyncio.gather(*(gateway.deliver(n) for n in range(60)))
            assert sum(one.outcome == "started" for one in found) == 10
            assert {one.reason for one in found if one.outcome == "spooled"} <= {
                "rate_limited", "lane_busy",
            }  # fmt: skip
            await until(lambda: len(town.server.started) == 60)
        lasted = town.server.at[-1] - town.server.at[0]
        assert 4.0 <= lasted <= 15.0

    run_virtually(main())


def test_so_many_at_once_and_no_more():
    async def main():
        town = Town(known(spec={"limits": {"max_in_flight": 3}, "spool": {"mode": "off"}}))
        town.server.takes_s = 1.0
        async with town.gateway() as gateway:
            found = await asyncio.gather(*(gateway.deliver(n) for n in range(5)))
            assert sorted(one.outcome for one in found) == ["held"] * 2 + ["started"] * 3
            assert (await gateway.deliver(9)).outcome == "started"

    run_virtually(main())


def test_paused_ones_use_up_no_rate():
    async def main():
        town = Town(known(state="PAUSED", rate={"per_sec": 1, "burst": 1}))
        async with town.gateway() as gateway:
            found = [await gateway.deliver(n) for n in range(4)]
        assert {one.reason for one in found} == {"paused"}

    run_virtually(main())


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({}, (100, 200)),
        ({"spec": {"limits": {"max_dispatch_per_sec": 30}}}, (30, 60)),
        ({"rate": {"per_sec": 5}, "spec": {"limits": {"max_dispatch_per_sec": 30}}}, (5, 10)),
        ({"rate": {"per_sec": 5, "burst": 7}}, (5, 7)),
    ],
)
def test_the_rate_is_of_the_listener_else_of_the_limits(more, wanted):
    assert rate_of(known(**more).spec) == wanted


def test_one_of_two_drains_and_its_death_moves_that_within_twenty_seconds():
    async def main():
        town = Town()
        town.server.is_down = True
        async with town.gateway("one") as one, town.gateway("two") as two:
            for n in range(4):
                await one.deliver(n, key="k")
                await two.deliver(10 + n, key="k")
            assert len(await town.waiting()) == 8
            await asyncio.sleep(30)
            leads = [
                gateway.life.name
                for gateway in (one, two)
                if gateway.edges.figures()["subscriptions/orders"].get("leads")
            ]
            assert len(leads) == 1
            dead, alive = (one, two) if leads == ["one"] else (two, one)
            dead.kill()
            killed = town.clock.monotonic()
            town.server.is_down = False
            town.starters.clear()
            await until(lambda: len(town.server.started) == 8)
            assert town.clock.monotonic() - killed <= 25
            assert {name for name, _ in town.starters} == {alive.life.name}
        assert len(set(town.server.started)) == 8

    run_virtually(main())


def test_a_gateway_that_ends_in_good_order_hands_over_at_once():
    async def main():
        town = Town(known(state="PAUSED"))
        async with town.gateway("two") as two:
            async with town.gateway("one") as one:
                for n in range(3):
                    await one.deliver(n, key="k")
            town.now(state="ACTIVE")
            two.edges.hinted("orders")
            began = town.clock.monotonic()
            await until(lambda: len(town.server.started) == 3)
            assert town.clock.monotonic() - began < 8

    run_virtually(main())


def test_circuits_are_shared():
    async def main():
        town = Town(known(spec={"spool": {"circuit": {"probe_after_ms": 30_000, "trip_after": 3}}}))
        async with town.gateway("one") as one, town.gateway("two") as two:
            await two.deliver(0)
            town.server.is_down = True
            for n in range(1, 8):
                await one.deliver(n)
            await asyncio.sleep(0.1)
            town.starters.clear()
            assert told(await two.deliver(9)) == ("ack", "spooled", "circuit_open")
            assert ("two", 1) not in town.starters
            town.server.is_down = False
            await until(lambda: len(town.server.started) == 9)
        assert town.server.told("circuit.opened")
        assert town.server.told("circuit.closed")

    run_virtually(main())


def test_a_spool_that_fails_is_never_an_answer_that_promises():
    async def main():
        town = Town(known(state="PAUSED"))
        store = town.stores["subscriptions/orders"]
        kept = store.put_new

        async def fail(*_):
            raise SpoolError("the disk is full")

        async with town.gateway() as gateway:
            store.put_new = fail
            found = await gateway.deliver(1)
            assert (found.settle, found.reason) == ("nack", "spool_unavailable")
            store.put_new = kept
            assert (await gateway.deliver(1)).outcome == "spooled"

    run_virtually(main())


def test_a_listener_that_cannot_be_opened_harms_no_other(caplog):
    async def main():
        town = Town(known(spec={"spool": {**PASSIVE, "auth": "bucket"}}), known("parcels"))
        parcels = town.listeners["parcels"]
        async with town.gateway() as gateway:
            found = await gateway.deliver(1)
            assert told(found) == ("nack", "held", "spool_unavailable")
            assert found.delay_ms > 0
            assert (await gateway.deliver(2, of=parcels)).outcome == "started"
            await asyncio.sleep(600)
            assert (await gateway.deliver(1)).settle == "nack"
            town.now(secrets={"bucket": {"region": "x"}})
            gateway.edges.hinted("orders")
            await asyncio.sleep(0.1)
            assert (await gateway.deliver(1)).outcome == "started"

    run_virtually(main())
    lines = [one for one in caplog.records if "can take no deliveries" in one.message]
    assert [one.listener for one in lines if one.levelname == "WARNING"] == ["orders"]


def test_one_that_cannot_be_opened_is_tried_again_by_itself():
    async def main():
        town = Town()
        town.spool_fault = SpoolError("no such bucket")
        async with town.gateway() as gateway:
            assert (await gateway.deliver(1)).reason == "spool_unavailable"
            await asyncio.sleep(100)
            town.spool_fault = None
            await asyncio.sleep(16)
            assert (await gateway.deliver(1)).outcome == "started"

    run_virtually(main())


def test_other_credentials_of_the_spool_reopen_it():
    async def main():
        spool = {**PASSIVE, "auth": "bucket"}
        town = Town(known(spec={"spool": spool}, secrets={"bucket": {"k": 1}}))
        async with town.gateway() as gateway:
            await gateway.deliver(1)
            town.now(secrets={"bucket": {"k": 2}})
            gateway.edges.hinted("orders")
            await until(lambda: len(town.opened) == 3)
            assert (await gateway.deliver(2)).outcome == "started"

    run_virtually(main())


def test_what_waits_where_a_new_version_does_not_look_is_told_of(caplog):
    async def main():
        town = Town(known(state="PAUSED"))
        async with town.gateway() as gateway:
            await gateway.deliver(1)
            other = known(state="PAUSED", version=2, spec={"spool": {**PASSIVE, "path": "there"}})
            town.listeners["orders"] = other
            gateway.edges.hinted("orders")
            await until(lambda: len(town.opened) == 3)

    run_virtually(main())
    [line] = [one for one in caplog.records if one.levelname == "WARNING"]
    assert (line.items, line.now[-1]) == (1, "there")


def test_deactivated_and_unknown_ones_are_let_go_and_what_waits_stays():
    async def main():
        town = Town(known(state="PAUSED"), known("parcels"))
        async with town.gateway() as gateway:
            await gateway.deliver(1)
            town.now(state="DEACTIVATED")
            del town.listeners["parcels"]
            gateway.edges.hinted("orders")
            await until(lambda: gateway.edges.figures() == {})
            assert len(await town.waiting()) == 1
            assert town.server.started == []
            town.now(state="ACTIVE")
            gateway.edges.hinted("orders")
            await until(lambda: town.server.started == ["m1"])

    run_virtually(main())


def test_a_drain_that_somebody_asked_for_ends_when_nothing_waits():
    async def main():
        town = Town()
        town.server.is_down = True
        async with town.gateway() as gateway:
            await gateway.deliver(1)
            town.now(state="DRAINING")
            gateway.edges.hinted("orders")
            await asyncio.sleep(60)
            assert town.drained_ones == []
            town.server.is_down = False
            await until(lambda: town.drained_ones)
            assert town.server.started == ["m1"]
        assert set(town.drained_ones) == {"7"}

    run_virtually(main())


def test_dead_letters_that_somebody_wants_again_are_sent_again():
    async def main():
        town = Town()
        town.server.refused.add("shop/take")
        async with town.gateway() as gateway:
            found = await gateway.deliver(1)
            assert (found.settle, found.outcome) == ("term", "dead_lettered")
            town.server.refused.clear()
            await asyncio.sleep(10)
            at = rfc3339(town.clock.now())
            town.requests = [{"request_id": "r1", "action": "redrive", "all": True, "at": at}]
            began = town.clock.monotonic()
            gateway.edges.hinted("orders")
            await until(lambda: town.server.started == ["m1"])
            assert town.clock.monotonic() - began < 1.0, "a hint is enough"

    run_virtually(main())


def test_dead_letters_are_asked_for_seldom_and_a_lost_hint_costs_a_minute():
    async def main():
        town = Town()
        async with town.gateway() as gateway:
            await gateway.deliver(0)
            await asyncio.sleep(600)
            assert town.asked_at == [], "there is none"
            town.server.refused.add("shop/take")
            assert (await gateway.deliver(1)).outcome == "dead_lettered"
            await asyncio.sleep(600)
            gaps = [later - sooner for sooner, later in pairwise(town.asked_at)]
            assert (len(town.asked_at), min(gaps)) == (10, LETTERS_S)
            town.server.refused.clear()
            at = rfc3339(town.clock.now())
            town.requests = [{"request_id": "r1", "action": "redrive", "all": True, "at": at}]
            await until(lambda: town.server.started == ["m0", "m1"], LETTERS_S + WATCH_S)

    run_virtually(main())


def test_whoever_takes_over_asks_for_dead_letters_at_once():
    async def main():
        town = Town()
        town.server.refused.add("shop/take")
        async with town.gateway("one") as first, town.gateway("two") as second:
            assert (await first.deliver(1)).outcome == "dead_lettered"
            await asyncio.sleep(10)
            town.server.refused.clear()
            first.kill()
            at = rfc3339(town.clock.now())
            town.requests = [{"request_id": "r1", "action": "redrive", "all": True, "at": at}]
            second.edges.hinted("orders")
            await until(lambda: town.server.started == ["m1"], 20 + WATCH_S)

    run_virtually(main())


def test_work_that_fails_is_begun_again(caplog):
    async def main():
        town = Town(known(state="DRAINING"))
        town.drain_fault = RuntimeError("a defect")
        async with town.gateway() as gateway:
            await until(lambda: len(town.opened) == 3)
            town.drain_fault = None
            await until(lambda: town.drained_ones)
            town.now(state="ACTIVE")
            assert (await gateway.deliver(2)).outcome in {"started", "spooled"}
            await until(lambda: town.server.started == ["m2"])
        assert [word for _, _, word in town.opened] == ["opened", "closed"] * 2

    run_virtually(main())
    assert [one.path for one in caplog.records if one.levelname == "ERROR"] == [
        "subscriptions/orders"
    ]


def test_a_listener_that_changes_its_name_keeps_its_edge():
    async def main():
        town = Town()
        async with town.gateway() as gateway:
            await gateway.deliver(1)
            one = town.listeners.pop("orders")
            town.listeners["buys"] = replace(one, listener="buys", version=2)
            gateway.edges.hinted("orders")
            gateway.edges.hinted("buys")
            await asyncio.sleep(5)
            assert list(gateway.edges.figures()) == ["subscriptions/orders"]
            assert (await gateway.deliver(2, of=town.listeners["buys"])).outcome == "started"

    run_virtually(main())


def test_figures_tell_what_waits_of_whoever_drains():
    async def main():
        town = Town(known(state="PAUSED"))
        async with town.gateway() as gateway:
            await gateway.deliver(1)
            [figures] = gateway.edges.figures().values()
        assert (figures["in_flight"], figures["leads"], figures["spool"]["items"]) == (0, True, 1)

    run_virtually(main())


def test_a_listener_without_a_spool_is_opened_by_its_first_delivery():
    async def main():
        town = Town(known(**OFF))
        async with town.gateway() as gateway:
            await asyncio.sleep(60)
            assert gateway.edges.figures() == {}
            assert (await gateway.deliver(1)).outcome == "started"
            town.server.is_down = True
            found = await gateway.deliver(2)
            assert found.settle == "nack"
        assert planned(1).message["id"] == "m1"

    run_virtually(main())
