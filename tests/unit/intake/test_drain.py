from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.blobs.spool.item import Item, sha256_of
from noetl.intake.letters import Wanted, discard, redrive
from noetl.local.virtual import run_virtually
from tests.unit.intake.world import PATH, World, message, settled, until

TSDB = {"name": "tsdb", "probe": "tcp", "target": "tsdb:5432"}
CIRCUIT = {"downstream": [TSDB], "probe_after_ms": 1000, "probe_interval_ms": 1000}


def outage(**more):
    """A spool whose downstream is asked every second."""
    return World(spool={"circuit": CIRCUIT, **more})


async def fill(world, count, keys=1, first=0):
    """Messages that came while the downstream was away, and a process that ended then."""
    world.up["tsdb:5432"] = False
    async with world.running() as engine:
        await until(lambda: not engine.breakers.is_closed("tsdb"))
        given = [message(n, f"k{n % keys}") for n in range(first, first + count)]
        found = await engine.intake.handle(given)
        assert {one.outcome for one in found} == {"spooled"}
        await engine.stop()
    return engine


def test_19_outage_drill():
    async def main():
        world = outage()
        async with world.running() as engine:
            world.up["tsdb:5432"] = False
            await until(lambda: world.server.told("circuit.opened"))
            assert world.server.requests == []
            found = await engine.intake.handle([message(n, f"k{n % 2}") for n in range(6)])
            assert settled(found) == [("ack", "spooled")] * 6
            assert world.server.started == []
            assert len(await world.objects()) == 6
            world.up["tsdb:5432"] = True
            await until(lambda: world.server.told("spool.drained"))
            await engine.audit.flush()
        spooled = world.server.told("message.spooled")
        assert sorted(one["message_id"] for one in spooled) == [f"S:{n}" for n in range(6)]
        assert all(len(one["sha256"]) == 64 for one in spooled)
        assert all(one["spool_ref"].startswith("noetl://spool/") for one in spooled)
        assert {one["reason"] for one in spooled} == {"circuit_open"}
        assert sorted(world.server.started) == [f"S:{n}" for n in range(6)]
        refs = sorted(start.ingress.spool_ref for start in world.server.starts)
        assert refs == sorted(one["spool_ref"] for one in spooled)
        assert await world.objects() == []
        [opened] = world.server.told("circuit.opened")
        assert (opened["downstream"], opened["consecutive_failures"]) == ("tsdb", 5)
        [closed] = world.server.told("circuit.closed")
        assert closed["downstream"] == "tsdb"
        assert closed["open_ms"] >= 1000
        assert world.server.told("spool.draining") == [{"pending": 6}]
        assert world.server.told("spool.drained") == [
            {"replayed": 6, "deduped": 0, "dead_lettered": 0, "remaining": 0}
        ]

    run_virtually(main())


def test_a_message_that_was_stored_and_not_acknowledged_is_two_items_and_one_run():
    async def main():
        world = outage()
        await fill(world, 1)
        await fill(world, 1)
        assert len(await world.objects()) == 2
        world.up["tsdb:5432"] = True
        async with world.running() as engine:
            await until(lambda: not engine.spool.pending())
        assert world.server.started == ["S:0"]
        assert await world.objects() == []

    run_virtually(main())


def test_20_a_process_that_dies_in_the_outage_is_followed_by_one_that_replays_in_order():
    async def main():
        world = outage()
        await fill(world, 6, keys=2)
        world.up["tsdb:5432"] = True
        async with world.running() as engine:
            await until(lambda: not engine.spool.pending())
            await engine.audit.flush()
        recovered = world.server.told("spool.recovered")
        assert [one["pending"] for one in recovered] == [0, 6]
        assert recovered[-1]["backend"] == "memory"
        for lane in range(2):
            order = [int(name[2:]) for name in world.server.started if int(name[2:]) % 2 == lane]
            assert order == [lane, lane + 2, lane + 4]

    run_virtually(main())


def test_21_with_a_dead_downstream_nothing_is_replayed_until_a_probe_succeeds():
    async def main():
        world = outage()
        await fill(world, 3)
        await world.keys.delete("subscriptions=2fs.tsdb")  # nobody remembers the outage
        async with world.running() as engine:
            assert engine.breakers.is_closed("tsdb")
            await asyncio.sleep(120)
            assert world.server.started == []
            world.up["tsdb:5432"] = True
            await until(lambda: not engine.spool.pending())
        assert world.server.started == ["S:0", "S:1", "S:2"]

    run_virtually(main())


def test_21_a_passive_downstream_gets_one_item_first():
    async def main():
        world = World(spool={"circuit": {"trip_after": 1, "probe_after_ms": 1000}})
        engine = world.engine()
        await engine.breakers.failed("default")
        await engine.intake.handle([message(n, f"k{n}") for n in range(5)])
        await world.keys.delete("subscriptions=2fs.default")
        world.server.dead_downstreams.add("default")
        async with world.running(holder="two") as engine:
            await asyncio.sleep(16)
            assert set(world.server.started) == {"S:0"}
            world.server.dead_downstreams.clear()
            await until(lambda: not engine.spool.pending())
        names = world.server.started
        assert (sorted(set(names)), names.count("S:0") > 1) == ([f"S:{n}" for n in range(5)], True)
        assert all(names.count(f"S:{n}") == 1 for n in range(1, 5))

    run_virtually(main())


# ---------------------------------------------------------------------------- lanes and pace


def test_28_one_dead_key_stalls_its_own_lane_only():
    async def main():
        world = outage(drain={"max_replay_attempts": 1000})
        await fill(world, 40, keys=8)
        world.up["tsdb:5432"] = True
        world.server.busy.add("S:3")
        async with world.running() as engine:
            await until(lambda: len(world.server.started) == 35)
            await asyncio.sleep(20)
            assert engine.spool.pending() == 5
            world.server.busy.clear()
            await until(lambda: not engine.spool.pending())
        dead = [name for name in world.server.started if int(name[2:]) % 8 == 3]
        assert dead == ["S:3", "S:11", "S:19", "S:27", "S:35"]

    run_virtually(main())


@pytest.mark.parametrize("is_batch", [False, True], ids=["alone", "together"])
def test_28_lanes_run_at_once(is_batch):
    async def main():
        world = World(
            spool={"circuit": CIRCUIT, "drain": {"lanes": 8}},
            dispatch={"playbook": "p", "batch_dispatch": is_batch},
        )
        await fill(world, 80, keys=8)
        world.up["tsdb:5432"] = True
        world.server.takes_s = 0.5
        async with world.running() as engine:
            await until(lambda: world.server.requests)
            began = world.clock.monotonic()
            await until(lambda: not engine.spool.pending())
            took = world.clock.monotonic() - began
        assert took < 0.5 * 80 * 0.5
        for lane in range(8):
            order = [int(name[2:]) for name in world.server.started if int(name[2:]) % 8 == lane]
            assert order == sorted(order)

    run_virtually(main())


def test_29_fifty_a_second_are_500_in_ten_seconds():
    async def main():
        world = outage(drain={"rate_per_sec": 50})
        await fill(world, 500, keys=50)
        world.up["tsdb:5432"] = True
        async with world.running() as engine:
            await until(lambda: not engine.spool.pending())
        assert 9.0 <= world.server.at[-1] - world.server.at[0] <= 11.0
        assert len(world.server.started) == 500

    run_virtually(main())


def test_a_slow_server_does_not_halve_the_pace_of_a_single_lane():
    async def main():
        world = outage(drain={"rate_per_sec": 20})
        await fill(world, 100)
        world.up["tsdb:5432"] = True
        world.server.takes_s = 0.03
        async with world.running() as engine:
            await until(lambda: not engine.spool.pending())
        assert 4.5 <= world.server.at[-1] - world.server.at[0] <= 5.5

    run_virtually(main())


def test_ordered_then_live_keeps_live_messages_behind_what_waits():
    async def main():
        world = outage(drain={"rate_per_sec": 10})
        await fill(world, 20, keys=20)
        world.up["tsdb:5432"] = True
        async with world.running() as engine:
            await until(lambda: world.server.started)
            found = await engine.intake.handle([message(100, "new")])
            assert [(one.outcome, one.reason) for one in found] == [("spooled", "lane_busy")]
            await until(lambda: not engine.spool.pending())
            found = await engine.intake.handle([message(101, "new")])
            assert settled(found) == [("ack", "started")]
        assert world.server.started[-2:] == ["S:100", "S:101"]

    run_virtually(main())


def test_interleave_lets_live_messages_pass_unless_their_lane_waits():
    async def main():
        world = outage(drain={"rate_per_sec": 10, "on_recovery": "interleave"})
        await fill(world, 20, keys=20)
        world.up["tsdb:5432"] = True
        async with world.running() as engine:
            await until(lambda: world.server.started)
            found = await engine.intake.handle([message(100, "new"), message(101, "k19")])
            assert [(one.outcome, one.reason) for one in found] == [
                ("started", ""), ("spooled", "lane_busy"),
            ]  # fmt: skip
            await until(lambda: not engine.spool.pending())
        order = world.server.started
        assert order.index("S:100") < order.index("S:19") < order.index("S:101")

    run_virtually(main())


# ---------------------------------------------------------------------------- what goes wrong


def test_24_an_item_with_one_flipped_bit_is_a_dead_letter_and_never_starts():
    async def main():
        world = outage()
        await fill(world, 3)
        name = (await world.objects())[1]
        key = f"default/subscriptions/s/spool/{name}"
        data = await world.store.get(key)
        await world.store.put(key, data.replace(b'"n":1', b'"n":0'))
        world.up["tsdb:5432"] = True
        async with world.running() as engine:
            await until(lambda: not engine.spool.pending())
            await engine.audit.flush()
        assert world.server.started == ["S:0", "S:2"]
        assert await world.objects("dlq") == [name]
        [told] = world.server.told("message.dead_lettered")
        assert (told["reason"], told["message_id"]) == ("corrupt", "S_1")

    run_virtually(main())


def test_objects_that_are_no_messages_are_counted_once_and_left_alone():
    async def main():
        world = World(spool={})
        folder = "default/subscriptions/s/spool/"
        await world.store.put(f"{folder}readme.txt", b"hello")
        async with world.running():
            await asyncio.sleep(5)
            assert world.metrics.foreign.value(PATH) == 1
            await world.store.put(f"{folder}again.txt", b"hello")
            await asyncio.sleep(1_300)
            assert world.metrics.foreign.value(PATH) == 2
        assert await world.objects() == ["again.txt", "readme.txt"]

    run_virtually(main())


def test_30_a_poison_item_is_given_up_its_lane_goes_on_and_a_redrive_runs_it_once():
    async def main():
        world = outage(drain={"max_replay_attempts": 3})
        await fill(world, 4)
        world.up["tsdb:5432"] = True
        world.server.busy |= {"S:1", "S:2"}
        async with world.running() as engine:
            await until(lambda: not engine.spool.pending())
            assert world.server.started == ["S:0", "S:3"]
            await engine.audit.flush()
            told = world.server.told("message.dead_lettered")
            assert [(one["message_id"], one["attempts"], one["reason"]) for one in told] == [
                ("S:1", 3, "replay_failed"), ("S:2", 3, "replay_failed"),
            ]  # fmt: skip
            world.server.busy.clear()
            handled = await redrive(engine.spool, Wanted(refs=(told[0]["spool_ref"],)), world.clock)
            assert handled.done == 1
            engine.drain.wake()
            await until(lambda: not engine.spool.pending())
            assert world.server.started == ["S:0", "S:3", "S:1"]
            assert "m:S:1#r1" in world.server.runs
            handled = await discard(engine.spool, Wanted(), "of no use")
            assert (handled.done, await world.objects("dlq")) == (1, [])
            gone = await redrive(engine.spool, Wanted(refs=(told[1]["spool_ref"],)), world.clock)
            assert (gone.done, gone.missing) == (0, 1)
            await engine.audit.flush()
        assert [one["message_id"] for one in world.server.told("message.redriven")] == ["S:1"]
        assert [one["reason"] for one in world.server.told("message.discarded")] == ["of no use"]

    run_virtually(main())


def test_a_refused_item_is_given_up_at_once():
    async def main():
        world = outage()
        await fill(world, 2)
        world.up["tsdb:5432"] = True
        world.server.refused.add("plant/store")
        async with world.running() as engine:
            await until(lambda: not engine.spool.pending())
            await engine.audit.flush()
        told = world.server.told("message.dead_lettered")
        assert [(one["attempts"], one["reason"]) for one in told] == [(0, "dispatch_rejected")] * 2

    run_virtually(main())


def test_a_server_that_is_away_opens_its_circuit_and_no_attempt_is_counted():
    async def main():
        world = outage(drain={"max_replay_attempts": 2})
        await fill(world, 3)
        world.up["tsdb:5432"] = True
        world.server.is_down = True
        async with world.running() as engine:
            await until(lambda: not engine.breakers.is_closed("server"))
            await asyncio.sleep(300)
            assert engine.spool.pending() == 3
            world.server.is_down = False
            await until(lambda: not engine.spool.pending())
            await engine.audit.flush()
        assert world.server.started == ["S:0", "S:1", "S:2"]
        assert world.server.told("message.dead_lettered") == []
        opened = [one["downstream"] for one in world.server.told("circuit.opened")]
        assert opened == ["tsdb", "server"]

    run_virtually(main())


def test_31_a_replay_follows_its_stored_plan_and_not_the_headers_of_its_message():
    async def main():
        route = {"header": "x-route", "controls": "dispatch.playbook", "allowed": ["a", "b"]}
        world = World(spool={"circuit": CIRCUIT}, headers={"directives": [route]})
        world.up["tsdb:5432"] = False
        async with world.running() as engine:
            await until(lambda: not engine.breakers.is_closed("tsdb"))
            await engine.intake.handle([message(1, headers={"x-route": "a"})])
        [name] = await world.objects()
        key = f"default/subscriptions/s/spool/{name}"
        item = Item.decode(await world.store.get(key))
        forged = {**item.message, "headers": {"x-route": "b"}}
        stored = msgspec.structs.replace(item, message=forged, sha256=sha256_of(forged, item.plan))
        await world.store.put(key, stored.encode())
        world.up["tsdb:5432"] = True
        async with world.running() as engine:
            await until(lambda: not engine.spool.pending())
        [start] = world.server.starts
        assert (start.path, start.payload["message"]["headers"]) == ("a", {"x-route": "b"})
        assert start.ingress.route_override == {"playbook": "a", "pool": None}

    run_virtually(main())


def test_a_replayed_run_equals_the_live_one():
    async def main():
        headers = {
            "directives": [{"header": "x-key", "controls": "idempotency_key"}],
            "trace": {"propagate": "w3c", "baggage_allowlist": ["tenant"]},
        }
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        given = {"x-key": "k-1", "traceparent": parent, "baggage": "tenant=a"}
        starts = []
        for is_up in (True, False):
            world = World(spool={"circuit": CIRCUIT}, headers=headers)
            world.up["tsdb:5432"] = is_up
            async with world.running() as engine:
                if not is_up:
                    await until(lambda e=engine: not e.breakers.is_closed("tsdb"))
                await engine.intake.handle([message(1, headers=given)])
                world.up["tsdb:5432"] = True
                await until(lambda w=world: w.server.starts)
            starts += world.server.starts
        live, replayed = starts
        for name in ("path", "payload", "execution_pool", "trace", "parent_execution_id"):
            assert getattr(live, name) == getattr(replayed, name)
        assert (live.dedup.key, replayed.dedup.key) == ("m:k-1", "m:k-1")
        assert replayed.dedup.window_secs == 604_800

    run_virtually(main())


# ---------------------------------------------------------------------------- passive circuits


def test_32_a_passive_circuit_asks_with_one_message_that_is_not_lost():
    async def main():
        world = World(spool={"circuit": {"trip_after": 1, "probe_after_ms": 5000}})
        async with world.running() as engine:
            world.server.dead_downstreams.add("default")
            await engine.intake.handle([message(1)])
            await until(lambda: not engine.breakers.is_closed("default"))
            found = await engine.intake.handle([message(2), message(3, "other")])
            assert settled(found) == [("ack", "spooled")] * 2
            await asyncio.sleep(12)
            assert world.server.started == ["S:1", "S:2", "S:2"]
            assert engine.breakers.state("default").phase == "open"
            assert engine.spool.pending() == 2
            world.server.dead_downstreams.clear()
            await until(lambda: not engine.spool.pending())
            await engine.audit.flush()
        assert world.server.started[3:] == ["S:2", "S:3"]
        assert list(world.server.runs)[1:] == ["m:S:2", "m:S:2#r1", "m:S:2#r2", "m:S:3"]
        assert world.server.told("message.dead_lettered") == []
        assert len(world.server.told("circuit.opened")) == 1
        assert len(world.server.told("circuit.closed")) == 1

    run_virtually(main())


def test_32_without_a_spool_a_live_message_asks_and_goes_back_when_the_answer_is_no():
    async def main():
        world = World()
        async with world.running() as engine:
            for _ in range(5):
                await engine.breakers.failed("default")
            world.server.dead_downstreams.add("default")
            await asyncio.sleep(30)
            given = [message(1, "a"), message(2, "b"), message(3, "c")]
            found = await engine.intake.handle(given)
            assert settled(found) == [("nack", "held")] * 3
            assert len(world.server.started) == 1
            assert engine.breakers.state("default").phase == "open"
            await asyncio.sleep(30)
            world.server.dead_downstreams.clear()
            found = await engine.intake.handle(given[:1])
            assert settled(found) == [("ack", "started")]
            assert engine.breakers.is_closed("default")

    run_virtually(main())


def test_a_probe_whose_run_never_ends_has_failed_and_its_run_is_not_started_twice():
    async def main():
        world = World(spool={"circuit": {"trip_after": 1, "probe_after_ms": 5000}})
        async with world.running() as engine:
            await engine.breakers.failed("default")
            await engine.intake.handle([message(1)])
            world.server.is_silent = True
            await asyncio.sleep(66)
            assert world.server.started == ["S:1"]
            assert engine.breakers.state("default").phase != "closed"
            assert engine.spool.pending() == 1
            outcome = world.server._outcome("1", world.server.starts[0].ingress)  # noqa: SLF001 - its own words
            await engine.intake.ended(outcome)
            await until(lambda: not engine.spool.pending())
        assert world.server.started == ["S:1"]

    run_virtually(main())


def test_a_downstream_that_takes_its_time_to_answer_holds_up_no_other():
    async def main():
        names = [{"name": "default"}, {"name": "slow"}]
        route = {"header": "x-pool", "controls": "dispatch.execution_pool", "allowed": ["slow"]}
        world = World(
            spool={"circuit": {"downstream": names, "trip_after": 1, "probe_after_ms": 1000}},
            headers={"directives": [route]},
        )
        engine = world.engine()
        for name in ("default", "slow"):
            await engine.breakers.failed(name)
        given = [message(n, f"k{n}") for n in range(20)]
        for one in given[::2]:
            one["headers"]["x-pool"] = "slow"
        await engine.intake.handle(given)
        world.server.hanging.add("slow")
        async with world.running() as engine:
            began = world.clock.monotonic()
            await until(lambda: not engine.spool.pending("default"))
            assert world.clock.monotonic() - began < 10
            assert engine.spool.pending("slow") == 10
            world.server.hanging.clear()
            outcome = world.server._outcome("1", world.server.starts[0].ingress)  # noqa: SLF001 - its own words
            for number, start in enumerate(world.server.starts, 1):
                if start.ingress.downstream == "slow":
                    outcome = world.server._outcome(str(number), start.ingress)  # noqa: SLF001 - as above
            await engine.intake.ended(outcome)
            await until(lambda: not engine.spool.pending())
        assert sorted(world.server.started, key=lambda name: int(name[2:])) == [
            f"S:{n}" for n in range(20)
        ]

    run_virtually(main())


def test_a_backlog_of_which_everything_is_refused_is_given_up_without_delay():
    async def main():
        world = World(spool={"circuit": {"trip_after": 1, "probe_after_ms": 1000}})
        engine = world.engine()
        await engine.breakers.failed("default")
        await engine.intake.handle([message(n, f"k{n}") for n in range(50)])
        world.server.refused.add("plant/store")
        async with world.running() as engine:
            await until(lambda: not engine.spool.pending(), 10)
        assert len(await world.objects("dlq")) == 50

    run_virtually(main())


# ---------------------------------------------------------------------------- several processes


def test_33_two_processes_have_one_lease_and_one_drain():
    async def main():
        world = outage()
        await fill(world, 30, keys=30)
        async with world.running("one") as one, world.running("two") as two:
            await asyncio.sleep(20)
            assert [one.lease.is_held, two.lease.is_held] == [True, False]
            world.up["tsdb:5432"] = True
            await until(lambda: not one.spool.pending())
            assert len(world.server.started) == 30
            assert len(world.server.requests) == 30
            await one.stop()
            await until(lambda: two.lease.is_held, 10)
        assert await world.objects() == []

    run_virtually(main())


def test_33_an_open_breaker_is_still_open_after_a_restart():
    async def main():
        world = outage()
        first = await fill(world, 1)
        async with world.running() as engine:
            assert engine.breakers.state("tsdb") == first.breakers.state("tsdb")
            assert engine.breakers.state("tsdb").phase != "closed"

    run_virtually(main())


def test_37_what_happened_while_the_server_was_away_is_told_afterwards_once_each_in_order():
    async def main():
        world = outage()
        world.server.is_down = True
        await fill(world, 6, keys=6)
        assert len(await world.objects("events")) >= 1
        assert world.server.events == {}
        world.server.is_down = False
        world.up["tsdb:5432"] = True
        async with world.running() as engine:
            await until(lambda: not engine.spool.pending())
            await engine.audit.flush()
        ids = [int(event.event_id) for event in world.server.events.values()]
        assert ids == sorted(ids)
        kinds = [event.event_type for event in world.server.events.values()]
        assert kinds.count("subscription.message.spooled") == 6
        assert kinds.index("subscription.circuit.opened") < kinds.index(
            "subscription.circuit.closed"
        )
        assert await world.objects("events") == []

    run_virtually(main())
