"""Hints of a bus."""

import asyncio
import json

import msgspec
import pytest

from noetl.api.commands import Beat
from noetl.api.http import NoAnswer
from noetl.bus.base import BusGone
from noetl.bus.memory import MemoryBus
from tests.unit.worker.fakes import FakeServer, Scripted, Stage, play, refusal


class Hint:
    def __init__(self, payload):
        self.subject = "noetl.commands.shared.81"
        self.payload = payload
        self.deliveries = 1
        self.delay_s = None
        self.fate = asyncio.get_running_loop().create_future()

    async def ack(self):
        self.fate.set_result("ack")

    async def nak(self, delay_s=0.0):
        assert delay_s > 0
        self.delay_s = delay_s
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
        found = await self.queue.get()
        return self.batch if found is None else [found]

    async def fate(self, payload, subject=None, deliveries=1):
        self.hint = hint = Hint(payload)
        hint.deliveries = deliveries
        hint.subject = subject or hint.subject
        self.queue.put_nowait(hint)
        return await hint.fate


def hint_of(event_id, **more):
    """A hint of another server of the same cluster, which this worker was not told of."""
    about = {"event_id": event_id, "execution_id": "81", "server_url": "http://another"}
    return json.dumps(about | more).encode()


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


def test_a_word_about_a_lost_attempt_leaves_the_next_one():
    async def scene():
        server, bus = FakeServer(), MemoryBus()
        server.offer(server.command(attempt=2))
        word = {"op": "cancel", "command_ids": ["c1"], "attempts": {"c1": 1}}
        async with Stage(server, Scripted(lambda _: asyncio.sleep(1)), bus=bus):
            await server.until(lambda: bool(server.reports))
            await bus.tell("noetl.control.shared", json.dumps(word).encode())
            await server.until(lambda: bool(server.ended))
            return [event.event_type for event in server.ended]

    assert play(scene) == ["call.done"]


@pytest.mark.parametrize("word", [{"op": "drain", "workers": ["w-9", "w-1"]}, {"op": "drain"}])
def test_a_word_on_the_bus_drains_at_once(word):
    async def scene():
        server, bus = FakeServer(), MemoryBus()
        async with Stage(server, bus=bus) as stage:
            await server.until(lambda: bool(server.claims))
            await bus.tell("noetl.control.shared", b'{"op": "drain", "workers": ["w-9"]}')
            await bus.tell("noetl.control.shared", b'{"op": "dance"}')
            server.offer(server.command())
            await server.finals()
            began = asyncio.get_running_loop().time()
            await bus.tell("noetl.control.shared", json.dumps(word).encode())
            await stage.task
            return asyncio.get_running_loop().time() - began < 1, server.left

    assert play(scene) == (True, ["w-1"])


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

    assert play(scene) in ([], [1], [1, 1])


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
        tool = Scripted(*[lambda _: asyncio.sleep(0.2)] * 4)
        async with Stage(server, tool, slots=2) as stage:
            await asyncio.sleep(0.1)  # of the loop's own time
            first = (stage.worker.running, len(stage.worker.held))
            await server.finals(4)
            return first, server.released

    assert play(scene) == ((2, 4), [])


def test_what_waits_long_for_a_slot_is_given_back():
    async def scene():
        server = Generous()
        server.offer(*(server.command() for _ in range(4)))
        tool = Scripted(*[lambda _: asyncio.sleep(10)] * 4)
        async with Stage(server, tool, slots=2) as stage:
            await server.until(lambda: len(server.released) == 2)
            held = len(stage.worker.held)
            await server.finals(2)
            given = [(body.reason, body.commands[0].is_started) for body in server.released]
            return held, given, len(tool.contexts)

    assert play(scene) == (2, [("no_slot", False)] * 2, 2)


def test_an_unclear_answer_brings_the_hint_back_later_and_later():
    async def scene():
        server, bus, delays = Unparked(), Bus(), []
        async with Stage(server, bus=bus):
            for deliveries in (1, 2, 6, 9):
                server.fail("claim_one", refusal(409, "something_new"))
                await bus.fate(hint_of("9"), deliveries=deliveries)
                delays.append(bus.hint.delay_s)
        return delays

    assert play(scene) == [1.0, 2.0, 30.0, 30.0]


@pytest.mark.parametrize(
    ("more", "subject"),
    [({"execution_pool": "other"}, None), ({}, "noetl.commands.other.81")],
)
def test_a_hint_of_another_pool_is_left_to_it(more, subject):
    async def scene():
        server, bus = Unparked(), Bus()
        async with Stage(server, bus=bus) as stage:
            fate = await bus.fate(hint_of("9", **more), subject)
            return fate, bus.hint.delay_s, stage.worker.consumer.counts.foreign_pool

    assert play(scene) == ("nak", 30.0, 1)


def test_a_hint_of_another_server_is_claimed_there_when_ours_vouches_for_it():
    async def scene():
        server, other, bus = Unparked(), Unparked(), Bus()
        server.servers = ("http://a", "http://b/")
        other.pending.append(other.command(event_id="9"))
        asked = []

        def connect(url):
            asked.append(url)
            return other

        async with Stage(server, bus=bus, server_url="http://a/", other=connect):
            fate = await bus.fate(hint_of("9", server_url="http://b"))
            await server.finals()
        return fate, asked, len(other.pending)

    assert play(scene) == ("ack", ["http://b"], 0)


def test_a_server_that_nobody_knows_is_never_called_and_its_command_is_asked_for_at_our_own():
    async def scene():
        server, bus, asked = Unparked(), Bus(), []
        server.pending.append(server.command(event_id="9"))
        async with Stage(server, bus=bus, server_url="http://a", other=asked.append) as stage:
            fate = await bus.fate(hint_of("9", server_url="http://evil"))
            dead = await bus.fate(hint_of("404", server_url="http://evil"))
            return fate, dead, stage.worker.consumer.counts.foreign_server, asked

    assert play(scene) == ("ack", "term", 2, [])


def test_a_hint_of_our_own_server_costs_no_request_since_the_parked_claim_takes_it():
    async def scene():
        server, bus = Unparked(), Bus()
        async with Stage(server, bus=bus, server_url="http://a"):
            # A claim of this command would be refused, and the hint terminated.
            return [await bus.fate(hint_of("9", server_url=url)) for url in ("http://a/", "")]

    assert play(scene) == ["ack", "ack"]


def test_a_bus_that_goes_away_under_a_hint_is_survived():
    class Gone(Hint):
        async def ack(self):
            self.fate.set_result("gone")
            raise BusGone("gone")

    async def scene():
        server, bus = Unparked(), Bus()
        server.pending.append(server.command(event_id="9"))
        async with Stage(server, bus=bus):
            hint = Gone(hint_of("9"))
            bus.queue.put_nowait(hint)
            await hint.fate
            await server.finals()
            return await bus.fate(b"")

    assert play(scene) == "term"


def test_retry_after_of_a_claim_is_kept_to():
    async def scene():
        server = FakeServer()
        server.fail("claim", refusal(429, retry_after=3))
        loop = asyncio.get_running_loop()
        async with Stage(server):
            await server.until(lambda: len(server.claims) == 1)
            began = loop.time()
            await server.until(lambda: len(server.claims) == 2)
            return loop.time() - began

    assert 3 <= play(scene) < 4


def test_a_pressed_server_is_asked_for_less_and_slowly_for_more_again():
    async def scene():
        server = FakeServer()
        server.fail("claim", refusal(503, retry_after=1), refusal(503, retry_after=1))
        async with Stage(server, slots=16):
            await server.until(lambda: len(server.claims) == 5)
            return [claim.free_slots for claim in server.claims]

    assert play(scene) == [8, 4, 2, 3, 4]


def kinds(server, *names):
    return [server.command(action=name) for name in names]


def test_a_full_kind_blocks_no_other():
    async def scene():
        server = FakeServer()
        first, second = asyncio.Event(), asyncio.Event()
        order = []

        async def note(ctx):
            order.append(ctx.command_id)
            if ctx.command_id == "c1":
                await first.wait()
            if ctx.command_id == "c4":
                second.set()

        server.offer(*kinds(server, "slow", "slow", "fast", "fast"))
        tool = Scripted(*[note] * 4)
        async with Stage(server, tool, slots=8, kind_limits={"slow": 1}):
            await second.wait()
            seen = list(order)
            await server.until(lambda: len(server.claims) == 2)
            first.set()
            await server.finals(4)
            return seen, order[-1], server.claims[1].exclude_kinds

    seen, last, excluded = play(scene)
    assert (sorted(seen), last, excluded) == (["c1", "c3", "c4"], "c2", ("slow",))


def test_far_too_many_of_a_kind_are_given_back_as_they_are():
    async def scene():
        server, go = FakeServer(), asyncio.Event()
        server.offer(*kinds(server, *["slow"] * 6))
        tool = Scripted(*[lambda _: go.wait()] * 6)
        async with Stage(server, tool, slots=16, kind_limits={"slow": 1}) as stage:
            await server.until(lambda: len(server.released) == 2)
            held = len(stage.worker.held)
            go.set()
            await server.finals(4)
            return held, [(body.reason, body.commands[0].is_started) for body in server.released]

    assert play(scene) == (4, [("kind_limit", False)] * 2)


def test_no_hint_is_claimed_while_a_kind_is_full():
    async def scene():
        server, bus, go = Unparked(), Bus(), asyncio.Event()
        server.pending.extend(kinds(server, "slow"))
        server.pending[0] = msgspec.structs.replace(server.pending[0], event_id="9")
        tool = Scripted(lambda _: go.wait())
        async with Stage(server, tool, bus=bus, kind_limits={"slow": 1}):
            one, two = Hint(hint_of("9")), Hint(hint_of("10"))
            bus.batch = [one, two]
            bus.queue.put_nowait(None)
            fates = await one.fate, await two.fate
            go.set()
            return fates

    assert play(scene) == ("ack", "nak")


def test_brakes_stop_claims_and_let_go_by_themselves():
    async def scene():
        server, loop = FakeServer(), asyncio.get_running_loop()
        async with Stage(server, brakes={"memory": lambda: loop.time() < 5}) as stage:
            await asyncio.sleep(4)
            before = len(server.claims), stage.worker.held.brakes
            await server.until(lambda: len(server.claims) > before[0])
            return before[1], stage.worker.held.brakes, loop.time()

    before, after, now = play(scene)
    assert (before, after) == (frozenset({"memory"}), frozenset())
    assert now >= 5


def test_the_machine_number_is_told():
    async def scene():
        server, told = FakeServer(), []
        server.machine_id = 7
        async with Stage(server, on_machine=told.append):
            await server.until(lambda: bool(server.claims))
        return told

    assert play(scene) == [7]


def test_a_drained_worker_gives_back_the_unstarted_as_they_are_and_the_rest_as_a_new_attempt():
    async def scene():
        server = Generous()
        server.offer(server.command(), server.command())
        tool = Scripted(lambda _: asyncio.sleep(600))
        async with Stage(server, tool, slots=1, drain_s=5) as stage:
            await server.until(lambda: bool(server.reports))
            stage.worker.drain()
            await stage.task
        return [
            [(held.command_id, held.is_started) for held in body.commands]
            for body in server.released
        ]

    assert play(scene) == [[("c2", False)], [("c1", True)]]


def test_a_server_that_says_stop_is_left_alone_by_reports_too():
    async def scene():
        server, loop = FakeServer(), asyncio.get_running_loop()
        server.beat = Beat(pressure="stop")
        async with Stage(server, slots=4) as stage:
            await server.until(lambda: bool(server.beats))
            await asyncio.sleep(0)
            during = stage.worker.held.free
            await asyncio.sleep(1.1)
            claims = len(server.claims)
            await server.until(lambda: len(server.claims) > claims)
            return during, server.claims[-1].free_slots, loop.time() < 60

    assert play(scene) == (0, 2, True)
