from __future__ import annotations

import asyncio
import json

import pytest

from noetl.blobs.spool.base import SpoolError
from noetl.blobs.spool.memory import MemoryStore
from noetl.intake.outcomes import RunOutcome, StartOutcome, answered
from noetl.local.virtual import run_virtually
from tests.unit.intake.world import World, message, settled, until

TSDB = {"name": "tsdb", "probe": "tcp", "target": "tsdb:5432"}


def test_each_message_becomes_one_run_and_is_acknowledged_after_it():
    async def main():
        world = World()
        engine = world.engine()
        found = await engine.intake.handle([message(1), message(2, "other"), message(3)])
        assert settled(found) == [("ack", "started")] * 3
        assert [one.ack_id for one in found] == ["ack-1", "ack-2", "ack-3"]
        start = world.server.starts[0]
        assert (start.path, start.execution_pool, start.parent_execution_id) == (
            "plant/store", "subscription", "7",
        )  # fmt: skip
        assert (start.dedup.key, start.dedup.window_secs) == ("m:S:1", 600)
        assert start.payload["n"] == 1
        assert "ack_id" not in start.payload["message"]

    run_virtually(main())


def test_a_repeat_is_a_duplicate_and_acknowledged():
    async def main():
        world = World()
        engine = world.engine()
        await engine.intake.handle([message(1)])
        found = await engine.intake.handle([message(1)])
        assert settled(found) == [("ack", "duplicate")]
        assert world.server.started == ["S:1"]

    run_virtually(main())


def test_3_with_the_server_away_and_no_spool_nothing_is_acknowledged():
    async def main():
        world = World()
        world.server.is_down = True
        async with world.running() as engine:
            found = await engine.intake.handle([message(n) for n in range(3)])
            assert settled(found) == [("nack", "held")] * 3
            assert all(1_000 <= one.delay_ms <= 60_000 for one in found)
            world.server.is_down = False
            await asyncio.sleep(31)
            again = await engine.intake.handle([message(n) for n in range(3)])
            assert settled(again) == [("ack", "started")] * 3
        assert world.server.started == ["S:0", "S:1", "S:2"]

    run_virtually(main())


def test_an_attempt_is_repeated_three_times_and_the_wait_of_the_server_is_kept():
    async def main():
        world = World()
        world.server.answer = answered(429, "rate_limited", "", 9.0)
        engine = world.engine()
        began = world.clock.monotonic()
        found = await engine.intake.handle([message(1)])
        assert settled(found) == [("nack", "held")]
        assert world.server.requests == [1, 1, 1, 1]
        assert 27.0 <= world.clock.monotonic() - began <= 28.0
        assert engine.breakers.is_closed("server")

    run_virtually(main())


def test_without_a_word_of_the_server_the_waits_are_those_of_the_chapter():
    async def main():
        world = World()
        world.server.is_down = True
        engine = world.engine()
        began = world.clock.monotonic()
        await engine.intake.handle([message(1)])
        assert 6.2 * 0.8 <= world.clock.monotonic() - began <= 6.2 * 1.2
        assert engine.breakers.state("server").consecutive_failures == 4
        await engine.intake.handle([message(1)])
        assert not engine.breakers.is_closed("server")
        assert len(world.server.requests) == 5

    run_virtually(main())


@pytest.mark.parametrize("is_spooled", [True, False], ids=["spool", "server"])
def test_a_refused_start_is_a_dead_letter_and_the_message_comes_no_more(is_spooled):
    async def main():
        world = World(spool={} if is_spooled else None)
        world.server.refused.add("plant/store")
        engine = world.engine()
        found = await engine.intake.handle([message(1)])
        assert settled(found) == [("term", "dead_lettered")]
        assert found[0].reason == "dispatch_rejected"
        await engine.audit.flush()
        if is_spooled:
            assert len(await world.objects("dlq")) == 1
            [told] = world.server.told("message.dead_lettered")
            assert (told["message_id"], told["reason"]) == ("S:1", "dispatch_rejected")
        else:
            assert world.letters.kept == [("S:1", "dispatch_rejected")]

    run_virtually(main())


def test_a_server_that_does_not_know_us_stops_everything_and_is_told_once():
    async def main():
        world = World()
        world.server.answer = answered(403, "forbidden", "", None)
        engine = world.engine()
        found = await engine.intake.handle([message(1), message(2), message(3, "other")])
        assert settled(found) == [("nack", "held")] * 3
        assert (engine.intake.is_unauthorized, engine.intake.room(10)) == (True, 0)
        await engine.audit.flush()
        assert world.server.told("runtime.unauthorized") == [{"code": "forbidden"}]

    run_virtually(main())


def test_a_message_that_is_too_large_is_a_dead_letter():
    async def main():
        world = World(spool={})
        engine = world.engine()
        large = message(1)
        large["metadata"]["size_bytes"] = (8 << 20) + 1
        found = await engine.intake.handle([large])
        assert [(one.settle, one.reason) for one in found] == [("term", "message_too_large")]
        assert world.server.requests == []

    run_virtually(main())


# ---------------------------------------------------------------------------- lanes


def test_messages_of_one_key_go_in_order_and_other_keys_beside_them():
    async def main():
        world = World(runtime={"concurrency": 4})
        world.server.takes_s = 1.0
        engine = world.engine()
        began = world.clock.monotonic()
        first = engine.intake.handle([message(n, f"k{n % 4}") for n in range(8)])
        second = engine.intake.handle([message(n, f"k{n % 4}") for n in range(8, 16)])
        await asyncio.gather(first, second)
        assert world.clock.monotonic() - began == pytest.approx(4.0, abs=0.1)
        assert world.server.most_at_once == 4
        for lane in range(4):
            order = [int(name[2:]) for name in world.server.started if int(name[2:]) % 4 == lane]
            assert order == sorted(order)

    run_virtually(main())


def test_a_global_order_is_one_lane():
    async def main():
        world = World(spool={"ordering": "global"})
        world.server.takes_s = 0.1
        engine = world.engine()
        await engine.intake.handle([message(n, f"k{n}") for n in range(6)])
        assert world.server.most_at_once == 1
        assert world.server.started == [f"S:{n}" for n in range(6)]

    run_virtually(main())


def test_whoever_is_behind_a_message_that_went_back_goes_back_too():
    async def main():
        world = World()
        world.server.busy.add("S:1")
        engine = world.engine()
        found = await engine.intake.handle([message(1), message(2), message(3, "other")])
        assert settled(found) == [("nack", "held"), ("nack", "held"), ("ack", "started")]
        assert world.server.started == ["S:3"]

    run_virtually(main())


def test_a_message_that_comes_back_late_is_waited_for_by_those_behind_it():
    async def main():
        world = World()
        world.server.is_down = True
        async with world.running() as engine:
            handle = engine.intake.handle
            found = await handle([message(1), message(2), message(3, "other")])
            assert settled(found) == [("nack", "held")] * 3
            world.server.is_down = False
            await asyncio.sleep(32)
            early = await handle([message(2), message(3, "other")])
            assert settled(early) == [("nack", "held"), ("ack", "started")]
            assert early[0].reason == "lane_busy"
            assert settled(await handle([message(1)])) == [("ack", "started")]
            assert settled(await handle([message(4)])) == [("nack", "held")]
            assert settled(await handle([message(2)])) == [("ack", "started")]
            assert settled(await handle([message(4)])) == [("ack", "started")]
        assert world.server.started == ["S:3", "S:1", "S:2", "S:4"]

    run_virtually(main())


def test_a_message_that_never_comes_back_is_not_waited_for_for_ever():
    async def main():
        world = World()
        world.server.busy.add("S:1")
        engine = world.engine()
        await engine.intake.handle([message(1)])
        assert settled(await engine.intake.handle([message(2)])) == [("nack", "held")]
        await asyncio.sleep(32)
        assert settled(await engine.intake.handle([message(2)])) == [("ack", "started")]

    run_virtually(main())


@pytest.mark.parametrize(
    "several",
    [
        {"runtime": {"max_instances": 2}},
        {"scaling": {"keda": {"trigger": "nats-jetstream", "max": 4}}},
    ],
)
def test_where_several_listen_nobody_waits_for_what_another_may_get(several):
    async def main():
        world = World(**several)
        world.server.busy.add("S:1")
        engine = world.engine()
        await engine.intake.handle([message(1)])
        assert settled(await engine.intake.handle([message(2)])) == [("ack", "started")]

    run_virtually(main())


# ---------------------------------------------------------------------------- batches


def test_16_of_twelve_in_one_request_one_refused_is_a_dead_letter_and_eleven_are_started():
    async def main():
        route = {
            "header": "x-route", "controls": "dispatch.playbook", "allowed": ["plant/unknown"],
        }  # fmt: skip
        world = World(
            spool={},
            dispatch={"playbook": "plant/store", "batch_dispatch": True},
            headers={"directives": [route], "trace": {"propagate": "w3c"}},
        )
        world.server.refused.add("plant/unknown")
        engine = world.engine()
        parents = [f"00-{n:032x}-{n:016x}-01" for n in range(1, 13)]
        given = [message(n, headers={"traceparent": parents[n - 1]}) for n in range(1, 13)]
        given[4]["headers"]["x-route"] = "plant/unknown"
        found = await engine.intake.handle(given)
        expected = [("ack", "started")] * 12
        expected[4] = ("term", "dead_lettered")
        assert settled(found) == expected
        assert world.server.requests == [12]
        traces = [start.trace["traceparent"] for start in world.server.starts]
        assert traces == parents[:4] + parents[5:]

    run_virtually(main())


def test_a_batch_is_cut_into_requests_and_a_failed_request_leaves_all_of_it_unsettled():
    async def main():
        world = World(dispatch={"playbook": "p", "batch_dispatch": True, "batch_max": 5})
        engine = world.engine()
        found = await engine.intake.handle([message(n, f"k{n}") for n in range(12)])
        assert (world.server.requests, len(found)) == ([5, 5, 2], 12)
        world.server.requests.clear()
        world.server.is_down = True
        found = await engine.intake.handle([message(n, f"k{n}") for n in range(20, 32)])
        assert settled(found) == [("nack", "held")] * 12
        assert world.server.started == [f"S:{n}" for n in range(12)]

    run_virtually(main())


def test_an_entry_that_is_busy_is_tried_again_alone():
    async def main():
        world = World(dispatch={"playbook": "p", "batch_dispatch": True})
        world.server.busy.add("S:2")
        engine = world.engine()
        asyncio.get_running_loop().call_later(0.1, world.server.busy.clear)
        found = await engine.intake.handle([message(n, f"k{n}") for n in range(4)])
        assert settled(found) == [("ack", "started")] * 4
        assert world.server.requests == [4, 1]

    run_virtually(main())


class Slow(MemoryStore):
    """Takes a second for each, and many at once."""

    def __init__(self):
        super().__init__()
        self.order = []
        self.most_at_once = self._at_once = 0

    async def put_new(self, key, data):
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(1.0)
        self._at_once -= 1
        self.order.append(json.loads(data)["message_id"])
        await super().put_new(key, data)


def test_a_batch_that_has_to_wait_is_stored_lane_beside_lane_and_each_lane_in_order():
    async def main():
        world = World(
            dispatch={"playbook": "p", "batch_dispatch": True}, spool={"circuit": {"trip_after": 1}}
        )
        world.store = store = Slow()
        world.server.is_down = True
        engine = world.engine()
        await engine.intake.handle([message(0, "first")])  # opens the circuit
        began = world.clock.monotonic()
        found = await engine.intake.handle([message(n, f"k{n % 5}") for n in range(1, 21)])
        assert settled(found) == [("ack", "spooled")] * 20
        assert world.clock.monotonic() - began == pytest.approx(4.0)
        assert store.most_at_once == 5
        for lane in range(5):
            numbers = [int(name[2:]) for name in store.order if name != "S:0"]
            own = [n for n in numbers if n % 5 == lane]
            assert own == sorted(own)

    run_virtually(main())


# ---------------------------------------------------------------------------- the end of runs


def test_34_a_message_may_wait_for_its_run_and_comes_again_when_something_was_away():
    async def main():
        world = World(dispatch={"playbook": "p", "ack_after": "completed"})
        world.server.is_silent = True
        async with world.running() as engine:
            task = asyncio.create_task(engine.intake.handle([message(1)]))
            await asyncio.sleep(90)
            assert not task.done()
            outcome = world.server._outcome("1", world.server.starts[0].ingress)  # noqa: SLF001 - its own words
            await engine.intake.ended(outcome)
            assert settled(await task) == [("ack", "started")]
            world.server.is_silent = False
            world.server.dead_downstreams.add("default")
            found = await engine.intake.handle([message(2)])
            assert settled(found) == [("nack", "held")]
            world.server.dead_downstreams.clear()
            assert settled(await engine.intake.handle([message(2)])) == [("ack", "started")]
        assert world.server.started == ["S:1", "S:2", "S:2"]
        assert list(world.server.runs) == ["m:S:1", "m:S:2", "m:S:2#r1"]

    run_virtually(main())


def test_runs_of_one_lane_go_together_also_when_their_messages_wait_for_them():
    async def main():
        world = World(dispatch={"playbook": "p", "ack_after": "completed"})
        world.server.is_silent = True
        async with world.running() as engine:
            task = asyncio.create_task(engine.intake.handle([message(1), message(2)]))
            await until(lambda: len(world.server.started) == 2)
            assert not task.done()
            for number, start in enumerate(world.server.starts, 1):
                outcome = world.server._outcome(str(number), start.ingress)  # noqa: SLF001 - its own words
                await engine.intake.ended(outcome)
            assert settled(await task) == [("ack", "started")] * 2
        assert world.server.started == ["S:1", "S:2"]

    run_virtually(main())


def test_a_run_that_fails_by_its_own_fault_is_told_and_its_message_acknowledged():
    async def main():
        world = World(dispatch={"playbook": "p", "ack_after": "completed"})
        world.server.failing.add("S:1")
        async with world.running() as engine:
            assert settled(await engine.intake.handle([message(1)])) == [("ack", "failed")]
            await engine.audit.flush()
        assert world.server.told("message.failed") == [
            {"message_id": "S:1", "execution_id": "1", "status": "FAILED"}
        ]

    run_virtually(main())


@pytest.mark.parametrize(
    "fault", [{}, {"status": "FAILED", "error_kind": "connection", "is_retryable": True}]
)
def test_the_end_of_an_older_run_is_no_answer_to_an_active_probe(fault):
    async def main():
        world = World(spool={"circuit": {"trip_after": 1, "downstream": [TSDB]}})
        engine = world.engine()
        ended = {"execution_id": "1", "status": "COMPLETED", "downstream": "tsdb"} | fault
        await engine.breakers.failed("tsdb")
        await asyncio.sleep(30)
        assert await engine.breakers.enter("tsdb") == ("probe", ("tsdb",))
        await engine.intake.ended(RunOutcome(**ended))
        assert engine.breakers.state("tsdb").phase == "half_open"
        await engine.breakers.succeeded("tsdb")
        assert engine.breakers.is_closed("tsdb")

    run_virtually(main())


# ---------------------------------------------------------------------------- modes


def test_off_stops_fetching_while_everything_is_away_and_lets_one_message_ask():
    async def main():
        world = World()
        world.server.is_down = True
        async with world.running() as engine:
            await engine.intake.handle([message(1), message(2, "b")])
            assert engine.intake.room(100) == 0
            await asyncio.sleep(30)
            assert engine.intake.room(100) == 1
            world.server.is_down = False
            await engine.intake.handle([message(1)])
            assert engine.intake.room(100) == 100

    run_virtually(main())


def test_23_hybrid_writes_nothing_in_a_short_outage_and_buffers_in_a_long_one():
    async def main():
        circuit = {"downstream": [TSDB], "probe_after_ms": 1000, "probe_interval_ms": 1000}
        world = World(spool={"mode": "hybrid", "circuit": {**circuit, "trip_after": 1}})
        async with world.running() as engine:
            world.up["tsdb:5432"] = False
            await until(lambda: not engine.breakers.is_closed("tsdb"))
            assert settled(await engine.intake.handle([message(1)])) == [("nack", "held")]
            await asyncio.sleep(5)
            assert settled(await engine.intake.handle([message(1)])) == [("nack", "held")]
            world.up["tsdb:5432"] = True
            await until(lambda: engine.breakers.is_closed("tsdb"))
            assert settled(await engine.intake.handle([message(1)])) == [("ack", "started")]
            assert await world.objects() == []
            world.up["tsdb:5432"] = False
            await until(lambda: not engine.breakers.is_closed("tsdb"))
            await asyncio.sleep(31)
            found = await engine.intake.handle([message(2)])
            assert settled(found) == [("ack", "spooled")]
            assert found[0].reason == "hybrid_escalate"
            assert len(await world.objects()) == 1
            world.up["tsdb:5432"] = True
            await until(lambda: not engine.spool.pending())
        assert world.server.started == ["S:1", "S:2"]

    run_virtually(main())


@pytest.mark.parametrize(
    ("facts", "metadata"),
    [
        ({"max_deliver": 5}, {"delivered": 3}),
        ({"retention_s": 100.0}, {"publishTime": "2026-05-01T09:59:05Z"}),
        ({"retention_s": 100.0}, {"timestamp": 1777629545000}),
    ],
    ids=["deliveries", "age as text", "age in ms"],
)
def test_hybrid_buffers_what_its_source_may_soon_forget(facts, metadata):
    async def main():
        world = World(spool={"mode": "hybrid", "circuit": {"downstream": [TSDB], "trip_after": 1}})
        engine = world.engine(**facts)
        await engine.breakers.failed("tsdb")
        assert settled(await engine.intake.handle([message(1)])) == [("nack", "held")]
        found = await engine.intake.handle([message(2, "b", **metadata)])
        assert settled(found) == [("ack", "spooled")]

    run_virtually(main())


def test_hybrid_fetches_again_when_its_source_may_soon_forget():
    async def main():
        spool = {"mode": "hybrid", "hybrid_escalate_after_ms": 3_600_000}
        world = World(spool={**spool, "circuit": {"downstream": [TSDB], "trip_after": 1}})
        engine = world.engine(retention_s=100.0)
        await engine.breakers.failed("tsdb")
        await asyncio.sleep(49)
        assert engine.intake.room(10) == 0
        await asyncio.sleep(1)
        assert engine.intake.room(10) == 10
        sent = {"timestamp": "2026-05-01T10:00:00Z"}
        young, old = message(1, "a"), message(2, "b", **sent)
        await asyncio.sleep(1)
        found = await engine.intake.handle([young, old])
        assert settled(found) == [("nack", "held"), ("ack", "spooled")]
        assert World(spool=spool).engine().intake.room(10) == 10

    run_virtually(main())


def test_36_while_paused_a_message_waits_here_or_at_its_source():
    async def main():
        world = World(spool={})
        engine = world.engine()
        found = await engine.intake.handle([message(1)], is_paused=True)
        assert [(one.settle, one.reason) for one in found] == [("ack", "paused")]
        engine = World().engine()
        found = await engine.intake.handle([message(1)], is_paused=True)
        assert [(one.settle, one.reason) for one in found] == [("nack", "paused")]

    run_virtually(main())


class Full(MemoryStore):
    """Takes nothing, until there is room."""

    has_room = False

    async def put(self, key, data):
        if not self.has_room:
            raise SpoolError("no space left on device")
        await super().put(key, data)

    put_new = put


def test_a_dead_letter_that_the_spool_does_not_take_stays_at_its_source_and_that_is_told(caplog):
    async def main():
        world = World(spool={})
        world.store = store = Full()
        world.server.refused.add("plant/store")
        async with world.running() as engine:
            keeping = engine.intake.keeping
            for _ in range(2):
                found = await engine.intake.handle([message(1)])
                assert (settled(found), found[0].reason) == (
                    [("nack", "held")], "spool_unavailable",
                )  # fmt: skip
                assert keeping.fault == "spool_unavailable"
                await asyncio.sleep(found[0].delay_ms / 1000)
            store.has_room = True
            assert settled(await engine.intake.handle([message(1)])) == [("term", "dead_lettered")]
            assert keeping.fault == ""

    run_virtually(main())
    said = [line.message for line in caplog.records if line.name == "noetl.intake.keeping"]
    assert said == ["the spool takes no message"]


def test_25_a_spool_that_stores_nothing_acknowledges_nothing_and_goes_on_when_it_can():
    async def main():
        world = World(spool={"retention": {"max_bytes": 1600}})
        world.server.is_down = True
        async with world.running() as engine:
            await until(lambda: engine.breakers.is_closed("server"))
            for _ in range(5):
                await engine.breakers.failed("server")
            found = await engine.intake.handle([message(n, f"k{n}") for n in range(4)])
            assert settled(found)[0] == ("ack", "spooled")
            assert settled(found)[-1] == ("nack", "held")
            assert found[-1].reason == "spool_full"
            world.server.is_down = False
            await until(lambda: not engine.spool.pending())
            last = [n for n, one in enumerate(found) if one.settle == "nack"]
            found = await engine.intake.handle([message(n, f"k{n}") for n in last])
            assert settled(found) == [("ack", "started")] * len(last)
        assert sorted(world.server.started) == ["S:0", "S:1", "S:2", "S:3"]

    run_virtually(main())


def test_18_no_more_messages_are_under_way_than_may_be():
    """The engine settles nothing before the server answers; the governor counts what it holds."""

    async def main():
        world = World(runtime={"max_in_flight": 5, "concurrency": 16})
        world.server.takes_s = 1000.0
        engine = world.engine()
        open_ones = set()
        task = asyncio.create_task(
            engine.intake.handle(
                [message(n, f"k{n}") for n in range(5)],
                settle=lambda one: open_ones.add(one.message_id),
            )
        )
        await asyncio.sleep(10)
        assert (open_ones, world.server.most_at_once) == (set(), 5)
        await task
        assert len(open_ones) == 5

    run_virtually(main())


def test_every_word_of_a_start_is_counted():
    async def main():
        world = World()
        engine = world.engine()
        await engine.intake.handle([message(1), message(1)])
        world.server.answer = StartOutcome(kind="refused", code="unknown_playbook")
        await engine.intake.handle([message(2)])
        path, metrics = "subscriptions/s", world.metrics
        assert metrics.received.value(path) == 3
        assert metrics.acked.value(path) == 3
        words = {word: metrics.executions.value(path, word) for word in ("started", "duplicate")}
        assert words == {"started": 1, "duplicate": 1}
        assert metrics.executions.value(path, "refused") == 1

    run_virtually(main())
