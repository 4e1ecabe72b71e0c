"""Hints of a bus."""

import asyncio
import json

import pytest

from noetl.api.http import NoAnswer
from noetl.bus.memory import MemoryBus
from tests.unit.worker.fakes import FakeServer, Scripted, Stage, play, refusal


class Hint:
    def __init__(self, payload):
        self.subject = "noetl.commands.shared.81"
        self.payload = payload
        self.deliveries = 1
        self.fate = asyncio.get_running_loop().create_future()

    async def ack(self):
        self.fate.set_result("ack")

    async def nak(self, delay_s=0.0):
        assert delay_s > 0
        self.fate.set_result("nak")

    async def term(self):
        self.fate.set_result("term")


class Bus:
    def __init__(self):
        self.queue = asyncio.Queue()
        self.memory = MemoryBus()
        self.listen = self.memory.listen
        self.limits = []

    def hints(self, pool):
        assert pool == "shared"
        return self

    async def fetch(self, limit, timeout_s):
        assert timeout_s == 30
        self.limits.append(limit)
        return [await self.queue.get()]

    async def fate(self, payload):
        hint = Hint(payload)
        self.queue.put_nowait(hint)
        return await hint.fate


def hint_of(event_id):
    return json.dumps({"event_id": event_id, "execution_id": "81"}).encode()


class Unparked(FakeServer):
    """Gives work only to those who name it."""

    def _take(self, count):
        del count
        return ()

    async def claim(self, body):
        await asyncio.sleep(body.wait_seconds)
        return await super().claim(body) if not self.pending else self._nothing()

    def _nothing(self):
        raise refusal(503)


class Generous(FakeServer):
    """Gives all it has, whatever was asked for."""

    def _take(self, count):
        del count
        return super()._take(len(self.pending))


def test_a_hint_brings_its_command():
    async def scene():
        server, bus = Unparked(), Bus()
        command = server.command(event_id="9")
        server.pending.append(command)
        async with Stage(server, bus=bus) as stage:
            fate = await bus.fate(hint_of(9))
            await server.finals()
            return fate, stage.worker.consumer.counts.claimed.get("bus")

    assert play(scene) == ("ack", 1)


@pytest.mark.parametrize(
    ("faults", "fate"),
    [
        ([refusal(409, "active_claim")], "ack"),
        ([refusal(409, "execution_cancelled")], "ack"),
        ([refusal(409, "something_new")], "nak"),
        ([refusal(404, "unknown_command")], "term"),
        ([NoAnswer("x")] * 5, "nak"),
        ([refusal(429)] * 5, "nak"),
    ],
)
def test_every_answer_to_a_hinted_claim_has_its_end(faults, fate):
    async def scene():
        server, bus = Unparked(), Bus()
        server.fail("claim_one", *faults)
        async with Stage(server, bus=bus):
            return await bus.fate(hint_of("9"))

    assert play(scene) == fate


@pytest.mark.parametrize("payload", [b"", b"no json", b"[]", b"{}", b'{"event_id": "x"}'])
def test_a_hint_without_sense_is_terminated_and_counted(payload):
    async def scene():
        bus = Bus()
        async with Stage(Unparked(), bus=bus) as stage:
            return await bus.fate(payload), stage.worker.consumer.counts.senseless

    assert play(scene) == ("term", 1)


@pytest.mark.parametrize("word", [{"op": "cancel", "command_ids": ["c1"]},
                                  {"op": "cancel", "execution_id": "81"}])  # fmt: skip
def test_a_word_on_the_bus_cancels_at_once(word):
    async def scene():
        server, bus = FakeServer(), MemoryBus()
        server.offer(server.command())
        async with Stage(server, Scripted(lambda _: asyncio.sleep(60)), bus=bus) as stage:
            await server.until(lambda: bool(server.reports))
            await bus.tell("noetl.control.shared", b"no json")
            await bus.tell("noetl.control.shared", json.dumps(word).encode())
            await stage.emptied()
            return asyncio.get_running_loop().time() < 1, server.ended

    assert play(scene) == (True, [])


def test_a_bus_that_is_gone_leaves_the_parked_claim():
    async def scene():
        server, bus = FakeServer(), MemoryBus()
        await bus.close()
        async with Stage(server, bus=bus):
            await server.until(lambda: len(server.claims) == 2)
            server.offer(server.command())
            return (await server.finals())[0].event_type

    assert play(scene) == "call.done"


def test_no_hint_is_fetched_without_a_free_slot():
    async def scene():
        server, bus = FakeServer(), Bus()
        server.offer(server.command())
        async with Stage(server, Scripted(lambda _: asyncio.sleep(60)), slots=1, bus=bus):
            await server.until(lambda: bool(server.reports))
            bus.queue.put_nowait(Hint(b""))
            await server.finals()
            return bus.limits

    assert play(scene) in ([1], [1, 1])


def test_a_command_that_is_given_twice_runs_once():
    async def scene():
        server, bus = FakeServer(), Bus()
        command, tool = server.command(), Scripted(lambda _: asyncio.sleep(5))
        server.offer(command, command)
        async with Stage(server, tool, bus=bus):
            await server.finals()
            await asyncio.sleep(10)
        return len(tool.contexts), len(server.ended)

    assert play(scene) == (1, 1)


def test_commands_beyond_the_slots_wait_for_one():
    async def scene():
        server = Generous()
        server.offer(*(server.command() for _ in range(4)))
        tool = Scripted(*[lambda _: asyncio.sleep(10)] * 4)
        async with Stage(server, tool, slots=2) as stage:
            await server.until(lambda: bool(server.beats))
            first = (stage.worker.running, len(stage.worker.held), len(server.beats[0]["commands"]))
            await server.finals(4)
            return first

    assert play(scene) == (2, 4, 4)
