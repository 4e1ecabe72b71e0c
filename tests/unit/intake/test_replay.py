from __future__ import annotations

import json

import pytest

from noetl.api.client import Client
from noetl.api.http import Answer, NoAnswer
from noetl.blobs.spool.base import SpoolError
from noetl.blobs.spool.memory import MemoryStore
from noetl.ids import Ids
from noetl.intake.audit import NotTold
from noetl.intake.deliveries import Listener, item_of, received
from noetl.intake.keeping import ServerLetters
from noetl.intake.spans import spanned
from noetl.local.virtual import run_virtually
from noetl.telemetry.traces.tracer import Tracer
from tests.unit.intake.world import PATH, World, message, spec_of, until

TSDB = {"name": "tsdb", "probe": "tcp", "target": "tsdb:5432"}
CIRCUIT = {"downstream": [TSDB], "trip_after": 1000, "probe_interval_ms": 1000}


async def filled(world, count):
    """Messages that came while people had paused it."""
    engine = world.engine()
    await engine.intake.handle([message(n) for n in range(count)], is_paused=True)


def test_a_run_that_fails_because_something_is_away_counts_and_its_next_run_has_a_new_key():
    async def main():
        world = World(
            spool={"circuit": CIRCUIT, "drain": {"max_replay_attempts": 3}},
            dispatch={"playbook": "p", "ack_after": "completed"},
        )
        await filled(world, 2)
        world.server.dead_downstreams.add("tsdb")
        async with world.running() as engine:
            await until(lambda: len(world.server.started) == 2)
            assert list(world.server.runs) == ["m:S:0", "m:S:0#r1"]
            await until(lambda: engine.spool.pending() == 1)
            world.server.dead_downstreams.clear()
            await until(lambda: not engine.spool.pending())
            await engine.audit.flush()
        [told] = world.server.told("message.dead_lettered")
        assert (told["message_id"], told["attempts"]) == ("S:0", 3)
        assert world.server.started[-1] == "S:1"

    run_virtually(main())


def test_a_run_that_fails_by_its_own_fault_is_told_and_its_item_is_done():
    async def main():
        world = World(
            spool={"circuit": CIRCUIT}, dispatch={"playbook": "p", "ack_after": "completed"}
        )
        await filled(world, 2)
        world.server.failing.add("S:0")
        async with world.running() as engine:
            await until(lambda: not engine.spool.pending())
            await engine.audit.flush()
        assert world.server.started == ["S:0", "S:1"]
        assert [one["message_id"] for one in world.server.told("message.failed")] == ["S:0"]

    run_virtually(main())


def test_an_item_that_cannot_be_deleted_is_not_run_again():
    class Stubborn(MemoryStore):
        is_broken = True

        async def delete(self, key):
            if self.is_broken:
                raise SpoolError("no")
            await super().delete(key)

    async def main():
        world = World(spool={"circuit": CIRCUIT})
        world.store = Stubborn()
        await filled(world, 2)
        async with world.running() as engine:
            await until(lambda: world.server.started == ["S:0"])
            await until(lambda: len(world.server.requests) > 3)
            world.store.is_broken = False
            await until(lambda: not engine.spool.pending())
        assert world.server.started == ["S:0", "S:1"]

    run_virtually(main())


def test_an_item_that_turns_bad_while_it_waits_is_a_dead_letter_and_the_next_one_asks():
    async def main():
        world = World(spool={})
        engine = world.engine()
        await engine.intake.handle([message(n) for n in range(3)], is_paused=True)
        async with world.running() as engine:
            key = f"default/{PATH}/spool/{(await world.objects())[0]}"
            data = await world.store.get(key)
            await world.store.put(key, data.replace(b'"n":0', b'"n":9'))
            await until(lambda: not engine.spool.pending())
        assert world.server.started == ["S:1", "S:2"]
        assert len(await world.objects("dlq")) == 1

    run_virtually(main())


def test_a_webhook_is_taken_in_at_once_in_hybrid_mode():
    async def main():
        world = World(
            spec=spec_of(
                {"mode": "hybrid", "circuit": {"trip_after": 1}},
                source="webhook",
                mode="push",
                auth=None,
                stream=None,
                consumer=None,
                ingress={
                    "gateway_path": "/ingress/a",
                    "verify": {"type": "bearer", "secret": "a"},
                },
            )
        )
        engine = world.engine()
        await engine.breakers.failed("default")
        [found] = await engine.intake.handle([message(1)])
        assert (found.settle, found.outcome) == ("ack", "spooled")

    run_virtually(main())


# ---------------------------------------------------------------------------- the server's part


async def letter():
    clock = World().clock
    listener = Listener(subscription_id="7", path=PATH, spec=spec_of())
    return item_of(listener, received(listener, message(1), Ids(clock, 1), None), "x", clock)


class Wire:
    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    async def request(self, method, path, body=b"", headers=None):
        del headers
        self.asked.append((method, path, json.loads(body)))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_without_a_spool_the_server_keeps_a_dead_letter_whole():
    item = await letter()
    kept = {"ref": item.ref, "message_id": "S:1", "reason": "r", "attempts": 0, "at": "t"}
    wire = Wire(Answer(200, {}, json.dumps(kept).encode()))
    await ServerLetters(Client(wire), "7").put(item, "dispatch_rejected")
    [(method, path, body)] = wire.asked
    assert (method, path) == ("POST", "/api/subscriptions/7/dead-letters")
    assert (body["ref"], body["reason"]) == (item.ref, "dispatch_rejected")
    assert body["item"]["message"] == item.message


async def test_a_dead_letter_that_the_server_does_not_take_is_not_kept():
    with pytest.raises(NotTold):
        await ServerLetters(Client(Wire(NoAnswer("no"))), "7").put(await letter(), "r")


async def test_a_span_lasts_as_long_as_its_block_and_tells_its_fault():
    spans = []
    tracer = Tracer(World().clock, spans.append)
    with spanned(tracer, "subscription.dispatch", None, {"messages": 1}):
        pass
    with pytest.raises(KeyError), spanned(tracer, "subscription.spool.put", None, {}):
        raise KeyError("x")
    assert [(span.name, span.error) for span in spans] == [
        ("subscription.dispatch", ""), ("subscription.spool.put", "KeyError"),
    ]  # fmt: skip
