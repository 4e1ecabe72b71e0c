"""Deliveries whose senders wait for an answer."""

from __future__ import annotations

import asyncio

import pytest

from noetl.blobs.spool.base import SpoolError
from noetl.blobs.spool.item import Item
from noetl.blobs.spool.memory import MemoryStore
from noetl.intake.outcomes import answered, unanswered
from noetl.local.virtual import run_virtually
from noetl.sources.breaker import PROBE_LASTS_MS
from tests.unit.intake.world import World, brought, push_of, until

TSDB = {"name": "tsdb", "probe": "tcp", "target": "tsdb:5432"}
FAST = {"probe_after_ms": 1000, "probe_interval_ms": 1000}
CIRCUIT = {"downstream": [TSDB], **FAST}


def listener(spool=None, source="webhook", **more):
    return World(push_of(spool, source, **more))


def told(found):
    return found.settle, found.outcome, found.reason


async def push(engine, world, number, key=None, **more):
    return await engine.intake.push(brought(world.spec, number, key, **more))


async def pushes(engine, world, numbers, keys=0):
    return await asyncio.gather(
        *(push(engine, world, n, f"k{n % keys}" if keys else None) for n in numbers)
    )


# ---------------------------------------------------------------------------- started


def test_a_delivery_becomes_a_run_with_the_id_that_it_was_given():
    async def main():
        world = listener()
        engine = world.engine()
        found = await push(engine, world, 1, replay_key="r:1")
        assert told(found) == ("ack", "started", "")
        [start] = world.server.starts
        assert start.execution_id == found.execution_id
        assert (start.path, start.parent_execution_id) == ("plant/store", "7")
        assert (start.resource_kind, start.payload["n"]) == ("playbook", 1)
        dedup = start.dedup
        assert (dedup.key, dedup.window_secs) == ("m:W:1", 60)
        assert (dedup.replay_key, dedup.replay_window_secs) == ("r:1", 600)
        about = start.ingress
        assert (about.listener, about.delivery_id, about.source) == ("s", "d-1", "webhook")
        assert (about.message_id, about.spool_ref) == ("W:1", None)
        path = "subscriptions/s"
        assert world.metrics.received.value(path) == world.metrics.acked.value(path) == 1
        assert world.metrics.executions.value(path, "started") == 1

    run_virtually(main())


@pytest.mark.parametrize("again", [1, 2], ids=["the sender's word", "what was signed"])
def test_a_second_delivery_of_the_same_is_a_duplicate(again):
    async def main():
        world = listener()
        engine = world.engine()
        first = await push(engine, world, 1, replay_key="r:1")
        second = await push(engine, world, again, replay_key="r:1")
        assert told(second) == ("ack", "duplicate", "")
        assert second.execution_id == first.execution_id
        assert world.server.started == ["W:1"]

    run_virtually(main())


def test_a_delivery_whose_own_answer_was_lost_is_no_duplicate():
    async def main():
        world = listener()
        engine = world.engine()
        world.server.is_mute = True
        asyncio.get_running_loop().call_later(0.1, world.server.speak)
        found = await push(engine, world, 1)
        assert told(found) == ("ack", "started", "")
        assert found.execution_id == world.server.starts[0].execution_id
        assert (world.server.requests, len(world.server.starts)) == ([1, 1], 1)

    run_virtually(main())


def test_headers_are_shown_as_the_document_says_but_decide_before():
    async def main():
        spec = push_of({"ordering_key": "x-line"}, headers={"passthrough": "drop"})
        world = World(spec)
        engine = world.engine()
        world.server.is_down = True
        found = await push(engine, world, 1, headers={"x-line": "a"})
        assert found.outcome == "spooled"
        [name] = await world.objects()
        stored = await world.store.get(f"default/subscriptions/s/spool/{name}")
        item = Item.decode(stored)
        assert (item.ordering_key, item.message["headers"]) == ("a", {})
        assert item.message["attributes"] == {"x-line": "a"}

    run_virtually(main())


# ---------------------------------------------------------------------------- shared requests


def test_a_quiet_delivery_goes_at_once_and_many_share_requests():
    async def main():
        world = listener()
        engine = world.engine()
        world.server.takes_s = 0.1
        began = world.clock.monotonic()
        await push(engine, world, 0)
        assert (world.server.requests, world.clock.monotonic() - began) == ([1], 0.1)
        found = await pushes(engine, world, range(1, 501))
        assert {told(one) for one in found} == {("ack", "started", "")}
        assert sum(world.server.requests) == 501
        assert max(world.server.requests) == 100
        assert world.server.most_requests == 2
        # Nobody waited for the run of another: five hundred took three rounds of two requests.
        assert world.clock.monotonic() - began == pytest.approx(0.4)

    run_virtually(main())


def test_deliveries_come_along_with_the_next_request():
    async def main():
        world = listener()
        engine = world.engine()
        world.server.takes_s = 1.0
        tasks = []
        for n in range(40):
            tasks.append(asyncio.create_task(push(engine, world, n)))
            await asyncio.sleep(0.1)
        assert {one.outcome for one in await asyncio.gather(*tasks)} == {"started"}
        assert world.server.most_requests == 2
        assert len(world.server.requests) <= 10

    run_virtually(main())


def test_those_of_one_key_go_in_order_and_others_beside_them():
    async def main():
        world = listener({})
        engine = world.engine()
        world.server.takes_s = 0.5
        began = world.clock.monotonic()
        found = await pushes(engine, world, range(12), keys=3)
        assert {one.outcome for one in found} == {"started"}
        assert world.clock.monotonic() - began == pytest.approx(2.0, abs=0.6)
        for lane in range(3):
            order = [int(name[2:]) for name in world.server.started if int(name[2:]) % 3 == lane]
            assert order == sorted(order)
            assert len(order) == 4

    run_virtually(main())


def test_who_has_no_key_waits_for_nobody():
    async def main():
        world = listener({})
        engine = world.engine()
        world.server.takes_s = 1.0
        began = world.clock.monotonic()
        await pushes(engine, world, range(50))
        assert world.clock.monotonic() - began <= 2.0

    run_virtually(main())


def test_in_a_global_order_all_wait_for_one_another():
    async def main():
        world = listener({"ordering": "global"})
        engine = world.engine()
        world.server.takes_s = 0.1
        await pushes(engine, world, range(10))
        assert world.server.requests == [1] * 10
        assert world.server.started == [f"W:{n}" for n in range(10)]

    run_virtually(main())


def test_a_lane_that_is_held_up_sends_the_others_of_it_back():
    async def main():
        world = listener({})
        engine = world.engine()
        world.server.takes_s = 4.5
        first = asyncio.create_task(push(engine, world, 1, "k"))
        await asyncio.sleep(0)
        second = asyncio.create_task(push(engine, world, 2, "k"))
        other = asyncio.create_task(push(engine, world, 3, "other"))
        found = await asyncio.gather(first, second, other)
        assert [told(one) for one in found] == [
            ("ack", "started", ""), ("nack", "held", "lane_busy"), ("ack", "started", ""),
        ]  # fmt: skip
        assert found[1].delay_ms >= 1000
        assert told(await push(engine, world, 2, "k")) == ("ack", "started", "")

    run_virtually(main())


def test_one_that_is_refused_does_not_harm_its_neighbours():
    async def main():
        world = listener({}, headers={"directives": [
            {"header": "x-route", "controls": "dispatch.playbook", "allowed": ["gone"]}
        ]})  # fmt: skip
        engine = world.engine()
        world.server.refused.add("gone")
        world.server.busy.add("W:5")
        given = [push(engine, world, n, headers={"x-route": "gone"}) for n in (3,)]
        found = await asyncio.gather(*given, pushes(engine, world, range(10, 20)),
                                     push(engine, world, 5))  # fmt: skip
        assert told(found[0]) == ("term", "dead_lettered", "dispatch_rejected")
        assert found[0].spool_ref.startswith("noetl://spool/")
        assert {told(one) for one in found[1]} == {("ack", "started", "")}
        assert told(found[2]) == ("ack", "spooled", "circuit_open")
        assert engine.breakers.is_closed("server")

    run_virtually(main())


class Fussy:
    """A server that refuses a whole request because of one start in it, or cannot even read it."""

    def __init__(self, server, *, raises):
        self.server, self.raises = server, raises
        self.sizes = []

    async def start(self, starts):
        self.sizes.append(len(starts))
        await asyncio.sleep(0.01)
        if any(start.ingress.message_id == "W:13" for start in starts):
            if self.raises:
                raise ValueError("cannot be written")
            return [answered(413, "body_too_large", "", None)] * len(starts)
        return await self.server.start(starts)


@pytest.mark.parametrize("raises", [False, True], ids=["refused", "raised"])
def test_a_request_that_makes_no_sense_is_split_until_the_bad_one_is_alone(raises):
    async def main():
        world = listener({})
        world.server, server = Fussy(world.server, raises=raises), world.server
        world.server.listeners, world.server.post = server.listeners, server.post
        engine = world.engine()
        found = await asyncio.gather(
            *(push(engine, world, n) for n in range(40)), return_exceptions=True
        )
        bad = found.pop(13)
        if raises:
            assert isinstance(bad, ValueError)
        else:
            assert told(bad) == ("term", "dead_lettered", "dispatch_rejected")
        assert {told(one) for one in found} == {("ack", "started", "")}
        assert len(server.started) == 39
        assert len(world.server.sizes) <= 16

    run_virtually(main())


# ---------------------------------------------------------------------------- not now


def test_without_a_server_a_delivery_is_tried_for_three_seconds_and_then_waits(monkeypatch):
    monkeypatch.setattr("noetl.intake.pushes.JITTER", 0.0)

    async def main():
        world = listener()
        world.server.is_down = True
        async with world.running() as engine:
            began = world.clock.monotonic()
            found = await push(engine, world, 1)
            assert told(found) == ("ack", "spooled", "circuit_open")
            assert found.spool_ref.startswith("noetl://spool/")
            assert world.clock.monotonic() - began == pytest.approx(2.7)
            assert len(world.server.requests) == 4
            begun = world.clock.monotonic()
            found = await push(engine, world, 2)
            assert told(found) == ("ack", "spooled", "lane_busy")
            assert world.clock.monotonic() == begun
            world.server.is_down = False
            await until(lambda: len(world.server.started) == 2)
        assert world.server.started == ["W:1", "W:2"]
        assert all(start.ingress.spool_ref for start in world.server.starts)
        assert all(start.ingress.delivery_id for start in world.server.starts), "as it came"

    run_virtually(main())


def test_a_server_that_answers_nothing_costs_no_more_than_the_budget():
    async def main():
        world = listener()
        world.server.takes_s = 300.0
        async with world.running() as engine:
            began = world.clock.monotonic()
            found = await pushes(engine, world, range(300))
            assert {told(one) for one in found} == {("ack", "spooled", "circuit_open")}
            assert world.clock.monotonic() - began <= 8.0
            world.server.takes_s = 0.0
            await until(lambda: len(world.server.started) == 300)
            await until(lambda: not engine.spool.pending())
        assert sorted(world.server.started) == sorted(f"W:{n}" for n in range(300))

    run_virtually(main())


@pytest.mark.parametrize(
    ("spool", "source", "outage_s", "expected"),
    [
        ({"mode": "off"}, "webhook", 0, ("nack", "held", "circuit_open")),
        ({"mode": "off"}, "webhook", 60, ("nack", "held", "circuit_open")),
        (None, "webhook", 0, ("ack", "spooled", "circuit_open")),
        ({"mode": "buffer_and_ack"}, "pubsub", 0, ("ack", "spooled", "circuit_open")),
        ({"mode": "hybrid"}, "webhook", 0, ("ack", "spooled", "hybrid_escalate")),
        ({"mode": "hybrid"}, "pubsub", 0, ("nack", "held", "circuit_open")),
        ({"mode": "hybrid"}, "pubsub", 29, ("nack", "held", "circuit_open")),
        ({"mode": "hybrid"}, "pubsub", 31, ("ack", "spooled", "hybrid_escalate")),
    ],
    ids=[
        "off", "off, later", "no word", "buffer", "hybrid webhook", "hybrid", "hybrid, soon",
        "hybrid, later",
    ],
)  # fmt: skip
def test_the_mode_says_who_keeps_it_while_something_is_away(spool, source, outage_s, expected):
    async def main():
        given = None if spool is None else {**spool, "circuit": CIRCUIT}
        world = listener(given, source)
        world.up["tsdb:5432"] = False
        name = "default" if spool is None else "tsdb"
        async with world.running() as engine:
            if spool is None:
                for _ in range(5):
                    await engine.breakers.failed(name)
            await until(lambda: not engine.breakers.is_closed(name))
            await asyncio.sleep(outage_s)
            found = await push(engine, world, 1)
            assert told(found) == expected
            if found.settle == "nack":
                assert 1_000 <= found.delay_ms <= 60_000
            assert world.server.requests == []

    run_virtually(main())


@pytest.mark.parametrize(
    ("flag", "mode", "source", "expected"),
    [
        ("is_paused", "off", "webhook", ("nack", "held", "paused")),
        ("is_paused", "buffer_and_ack", "webhook", ("ack", "spooled", "paused")),
        ("is_paused", "hybrid", "webhook", ("ack", "spooled", "paused")),
        ("is_paused", "hybrid", "pubsub", ("ack", "spooled", "paused")),
        ("is_limited", "off", "webhook", ("nack", "held", "rate_limited")),
        ("is_limited", "buffer_and_ack", "webhook", ("ack", "spooled", "rate_limited")),
        ("is_limited", "hybrid", "webhook", ("ack", "spooled", "rate_limited")),
        ("is_limited", "hybrid", "pubsub", ("nack", "held", "rate_limited")),
    ],
)
def test_what_is_paused_or_too_much_waits_or_goes_back(flag, mode, source, expected):
    async def main():
        world = listener({"mode": mode}, source)
        engine = world.engine()
        found = await push(engine, world, 1, **{flag: True})
        assert told(found) == expected
        assert world.server.requests == []
        if found.outcome == "spooled":
            assert world.metrics.spooled.value("subscriptions/s", found.reason) == 1

    run_virtually(main())


def test_what_came_while_it_was_paused_runs_in_order_afterwards():
    async def main():
        world = listener()
        world.may_drain = False
        async with world.running() as engine:
            for n in range(250):
                assert (await push(engine, world, n, is_paused=True)).outcome == "spooled"
            await asyncio.sleep(5)
            assert world.server.started == []
            world.may_drain = True
            engine.drain.wake()
            await until(lambda: not engine.spool.pending())
        assert world.server.started == [f"W:{n}" for n in range(250)]
        assert max(world.server.requests) == 100

    run_virtually(main())


def test_what_was_too_much_runs_no_faster_than_it_may_come():
    async def main():
        world = listener(ingress={"rate": {"per_sec": 10, "burst": 5}})
        async with world.running() as engine:
            for n in range(50):
                assert (await push(engine, world, n, is_limited=True)).outcome == "spooled"
            await until(lambda: not engine.spool.pending())
        at = world.server.at
        assert 4.0 <= at[-1] - at[0] <= 6.0

    run_virtually(main())


def test_live_ones_go_behind_those_that_wait():
    async def main():
        world = listener({})
        async with world.running() as engine:
            await until(lambda: engine.lease.is_held)
            await push(engine, world, 1, "k", is_limited=True)
            found = await push(engine, world, 2, "k")
            assert told(found) == ("ack", "spooled", "lane_busy")
            await until(lambda: not engine.spool.pending())
            assert told(await push(engine, world, 3, "k")) == ("ack", "started", "")
        assert world.server.started == ["W:1", "W:2", "W:3"]

    run_virtually(main())


class Broken(MemoryStore):
    """A store that fails, or does not answer."""

    def __init__(self, *, hangs):
        super().__init__()
        self.hangs = hangs
        self.may_go_on = asyncio.Event()

    async def put_new(self, key, data):
        if not self.hangs:
            raise SpoolError("the disk is gone")
        await self.may_go_on.wait()
        await super().put_new(key, data)


def test_a_spool_that_fails_promises_nothing():
    async def main():
        world = listener()
        world.server.is_down = True
        world.store = Broken(hangs=False)
        engine = world.engine()
        found = await push(engine, world, 1)
        assert told(found) == ("nack", "held", "spool_unavailable")
        world.server.is_down = False
        assert told(await push(engine, world, 1)) == ("ack", "started", "")

    run_virtually(main())


def test_a_spool_that_hangs_promises_nothing_and_what_it_keeps_late_is_a_duplicate():
    async def main():
        world = listener()
        world.server.is_down = True
        world.store = Broken(hangs=True)
        async with world.running() as engine:
            began = world.clock.monotonic()
            found = await push(engine, world, 1)
            assert told(found) == ("nack", "held", "spool_unavailable")
            assert world.clock.monotonic() - began == pytest.approx(8.0)
            world.server.is_down = False
            world.store.may_go_on.set()
            await until(lambda: world.server.started == ["W:1"])
            again = await push(engine, world, 1)
            assert again.outcome == "duplicate"

    run_virtually(main())


def test_a_full_spool_promises_nothing():
    async def main():
        world = listener({"retention": {"max_bytes": 1500, "on_full": "stop_acking"}})
        engine = world.engine()
        found = [await push(engine, world, n, is_paused=True) for n in range(4)]
        assert told(found[0]) == ("ack", "spooled", "paused")
        assert told(found[-1]) == ("nack", "held", "spool_full")

    run_virtually(main())


# ---------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("spool", "expected"),
    [
        (None, ("term", "dead_lettered", "dispatch_rejected")),
        ({"mode": "off"}, ("nack", "held", "dispatch_failed")),
    ],
    ids=["spool", "off"],
)
def test_a_playbook_that_is_missing_is_the_operators_fault(spool, expected):
    async def main():
        world = listener(spool)
        world.server.refused.add("plant/store")
        engine = world.engine()
        found = await push(engine, world, 1)
        assert told(found) == expected
        await engine.audit.flush()
        if spool is None:
            assert len(await world.objects("dlq")) == 1
            assert len(world.server.told("message.dead_lettered")) == 1
        else:
            assert world.letters.kept == []
            [about] = world.server.told("message.failed")
            assert about == {"message_id": "W:1", "status": "dispatch_rejected"}

    run_virtually(main())


@pytest.mark.parametrize("mode", ["buffer_and_ack", "off"])
def test_a_delivery_that_is_too_large_to_run(mode):
    async def main():
        world = listener({"mode": mode})
        engine = world.engine()
        asked = brought(world.spec, 1)
        asked.message["metadata"]["size_bytes"] = (8 << 20) + 1
        found = await engine.intake.push(asked)
        large = ("term", "dead_lettered", "message_too_large")
        assert told(found) == (large if mode != "off" else ("nack", "held", "dispatch_failed"))
        assert world.server.requests == []

    run_virtually(main())


def test_a_server_that_does_not_know_us_is_asked_again_after_a_while():
    async def main():
        world = listener()
        world.server.answer = answered(403, "forbidden", "", None)
        async with world.running() as engine:
            for _ in range(3):
                found = await push(engine, world, 1)
                assert told(found) == ("nack", "held", "unauthorized")
            assert len(world.server.requests) == 1
            await asyncio.sleep(25)
            assert told(await push(engine, world, 1)) == ("nack", "held", "unauthorized")
            world.server.answer = None
            await asyncio.sleep(11)
            assert told(await push(engine, world, 1)) == ("ack", "started", "")
            await engine.audit.flush()
        assert world.server.told("runtime.unauthorized") == [{"code": "forbidden"}]

    run_virtually(main())


@pytest.mark.parametrize(
    ("answer", "reason", "delay_ms"),
    [
        (unanswered("<html>", "bad_answer"), "dispatch_failed", 1000),
        (answered(429, "backlog", "", 9.0), "circuit_open", 9000),
        (answered(503, "draining", "", None), "circuit_open", 1000),
    ],
    ids=["nonsense", "busy", "not now"],
)
def test_a_server_that_answers_wrongly_is_told_apart_from_one_that_is_busy(
    answer, reason, delay_ms
):
    async def main():
        world = listener({"mode": "off"})
        world.server.answer = answer
        engine = world.engine()
        began = world.clock.monotonic()
        found = await push(engine, world, 1)
        assert told(found) == ("nack", "held", reason)
        assert found.delay_ms == delay_ms
        assert world.clock.monotonic() - began <= 3.5

    run_virtually(main())


# ---------------------------------------------------------------------------- same keys


def test_a_lost_answer_and_then_the_spool_is_one_run_however_late():
    async def main():
        world = listener()
        world.server.is_mute = True
        world.server.keeps_s = 60.0
        async with world.running() as engine:
            found = await push(engine, world, 1, replay_key="r:1")
            assert told(found) == ("ack", "spooled", "circuit_open")
            assert world.server.started == ["W:1"]
            world.server.is_down, world.server.is_mute = True, False
            await asyncio.sleep(600)
            assert "m:W:1" not in world.server.runs
            assert engine.spool.pending() == 1
            world.server.is_down = False
            await until(lambda: not engine.spool.pending())
        assert world.server.started == ["W:1"]
        assert world.metrics.replayed.value("subscriptions/s") == 0

    run_virtually(main())


def test_keys_are_kept_across_a_crash():
    async def main():
        world = listener()
        world.server.is_down = True
        async with world.running() as engine:
            found = await push(engine, world, 1, replay_key="r:1")
            assert found.outcome == "spooled"
        world.server.is_down = False
        async with world.running("two"):
            await until(lambda: world.server.started)
        [start] = world.server.starts
        assert (start.dedup.key, start.dedup.window_secs) == ("m:W:1", 60)
        assert (start.dedup.replay_key, start.dedup.replay_window_secs) == ("r:1", 600)
        engine = world.engine("three")
        # Another id of the sender, but what was signed is the same.
        again = await push(engine, world, 2, replay_key="r:1")
        assert told(again) == ("ack", "duplicate", "")
        assert again.execution_id == start.execution_id

    run_virtually(main())


def test_a_run_that_failed_runs_again_under_keys_of_its_own():
    async def main():
        world = listener({"circuit": FAST})
        world.server.dead_downstreams.add("default")
        world.server.is_down = True
        async with world.running() as engine:
            assert (await push(engine, world, 1, replay_key="r:1")).outcome == "spooled"
            world.server.is_down = False
            await until(lambda: len(world.server.starts) >= 2)
            world.server.dead_downstreams.clear()
            await until(lambda: not engine.spool.pending())
        first, second = world.server.starts[0], world.server.starts[-1]
        assert (first.dedup.key, first.dedup.replay_key) == ("m:W:1", "r:1")
        assert second.dedup.key.startswith("m:W:1#r")
        assert (second.dedup.replay_key, second.execution_id) == (None, None)

    run_virtually(main())


# ---------------------------------------------------------------------------- probes


async def opened(engine):
    for _ in range(5):
        await engine.breakers.failed("default")
    await asyncio.sleep(1.5)


def test_a_probe_is_answered_at_once_and_its_run_closes_the_circuit():
    async def main():
        world = listener({"mode": "off", "circuit": FAST})
        async with world.running() as engine:
            await opened(engine)
            found = await push(engine, world, 1)
            assert told(found) == ("ack", "started", "")
            assert not engine.breakers.is_closed("default")
            assert (await push(engine, world, 2)).reason == "circuit_open"
            await until(lambda: engine.breakers.is_closed("default"))
            assert (await push(engine, world, 3)).outcome == "started"

    run_virtually(main())


def test_a_probe_whose_run_fails_waits_for_another_run():
    async def main():
        world = listener({"circuit": FAST})
        world.server.dead_downstreams.add("default")
        async with world.running() as engine:
            await opened(engine)
            found = await push(engine, world, 1)
            assert told(found) == ("ack", "started", "")
            await until(lambda: engine.spool.pending() == 1)
            assert engine.breakers.state("default").phase == "open"
            world.server.dead_downstreams.clear()
            await until(lambda: not engine.spool.pending())
        assert [start.dedup.key for start in world.server.starts][-1].startswith("m:W:1#r")

    run_virtually(main())


def test_a_probe_that_is_not_started_tells_nothing():
    async def main():
        world = listener({"mode": "off", "circuit": FAST})
        engine = world.engine()
        await opened(engine)
        world.server.refused.add("plant/store")
        assert (await push(engine, world, 1)).reason == "dispatch_failed"
        world.server.refused.clear()
        assert (await push(engine, world, 2)).outcome == "started"

    run_virtually(main())


def test_whatever_is_under_way_ends_with_the_engine():
    async def main():
        world = listener({"mode": "off", "circuit": FAST})
        world.server.is_silent = True
        engine = world.engine()
        await opened(engine)
        assert (await push(engine, world, 1)).outcome == "started"
        began = world.clock.monotonic()
        await engine.stop()
        assert world.clock.monotonic() - began < PROBE_LASTS_MS / 1000
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "intake-push"]

    run_virtually(main())


def test_a_sender_that_goes_away_changes_nothing():
    async def main():
        world = listener()
        world.server.takes_s = 1.0
        engine = world.engine()
        task = asyncio.create_task(push(engine, world, 1))
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.sleep(1)
        assert world.server.started == ["W:1"]
        assert (await push(engine, world, 1)).outcome == "duplicate"

    run_virtually(main())


def test_a_busy_entry_is_tried_again_alone():
    async def main():
        world = listener()
        engine = world.engine()
        world.server.busy.add("W:3")
        asyncio.get_running_loop().call_later(0.1, world.server.busy.clear)
        found = await pushes(engine, world, range(6))
        assert {one.outcome for one in found} == {"started"}
        assert world.server.requests == [6, 1]

    run_virtually(main())


# ---------------------------------------------------------------------------- out of the spool


async def waiting(world, count):
    """Deliveries without a key that came while the subscription was paused."""
    world.may_drain = False
    async with world.running() as engine:
        for n in range(count):
            assert (await push(engine, world, n, is_paused=True)).outcome == "spooled"
    world.may_drain = True


def test_one_that_is_held_up_holds_up_no_other_of_its_request():
    async def main():
        world = listener()
        await waiting(world, 30)
        world.server.busy.add("W:7")
        async with world.running("two") as engine:
            await until(lambda: engine.spool.pending() == 1)
            world.server.busy.clear()
            await until(lambda: not engine.spool.pending())
        assert world.server.started == [f"W:{n}" for n in range(30) if n != 7] + ["W:7"]

    run_virtually(main())


def test_one_that_nobody_can_read_is_a_dead_letter_alone():
    async def main():
        world = listener()
        await waiting(world, 30)
        name = (await world.objects())[12]
        await world.store.put(f"default/subscriptions/s/spool/{name}", b"{}")
        world.may_drain = False
        async with world.running("two") as engine:
            await asyncio.sleep(1)
            assert engine.spool.pending() == 29
            world.may_drain = True
            engine.drain.wake()
            await until(lambda: not engine.spool.pending())
        assert world.server.started == [f"W:{n}" for n in range(30) if n != 12]
        assert len(await world.objects("dlq")) == 1

    run_virtually(main())


class Forgetful(MemoryStore):
    """A store where what is deleted goes at the second attempt."""

    def __init__(self):
        super().__init__()
        self.asked = set()

    async def delete(self, key):
        if "/spool/" in key and key not in self.asked:
            self.asked.add(key)
            raise SpoolError("not now")
        await super().delete(key)


@pytest.mark.parametrize("keys", [0, 3], ids=["no key", "keys"])
def test_what_has_its_run_and_could_not_be_forgotten_is_a_duplicate(keys):
    async def main():
        world = listener({"circuit": CIRCUIT})
        world.store = Forgetful()
        world.may_drain = False
        async with world.running() as engine:
            for n in range(12):
                await push(engine, world, n, f"k{n % keys}" if keys else None, is_paused=True)
            world.may_drain = True
            engine.drain.wake()
            await until(lambda: not engine.spool.pending())
        assert await world.objects() == []
        assert len(world.store.asked) == len(world.server.started) == 12
        order = [int(name[2:]) for name in world.server.started]
        for lane in range(keys or 1):
            mine = [n for n in order if n % (keys or 1) == lane]
            assert mine == sorted(mine)

    run_virtually(main())


def test_a_crash_while_others_go_ahead_repeats_nothing():
    async def main():
        world = listener({})
        await waiting(world, 5)
        world.may_drain = False
        async with world.running() as engine:
            for n in range(5, 65):
                await push(engine, world, n, f"k{n % 5}", is_paused=True)
        world.may_drain = True
        world.server.takes_s = 0.2
        for holder in range(40):
            async with world.running(f"h{holder}") as engine:
                await asyncio.sleep(0.7)
                left = engine.spool.pending()
                await engine.stop()
            if not left:
                break
        assert await world.objects() == []
        order = [int(name[2:]) for name in world.server.started]
        assert sorted(order) == list(range(65))
        for lane in range(5):
            mine = [n for n in order if n >= 5 and n % 5 == lane]
            assert mine == sorted(mine)

    run_virtually(main())
