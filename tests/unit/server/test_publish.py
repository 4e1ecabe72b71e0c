"""Events of commits on the bus: published at once, or by whoever leads."""

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec

from noetl.bus.base import BusGone, TooLarge
from noetl.bus.memory import MemoryBus
from noetl.bus.subjects import REQUEST_HEADER, events
from noetl.clock import LoopClock, rfc3339
from noetl.engine.events import CommandClaimed, CtxUpdated, Recorded
from noetl.engine.rows import to_row
from noetl.local.virtual import run_virtually
from noetl.server.loops import hints, publish
from noetl.server.metrics import ServerMetrics
from noetl.server.signals import Hint, Signals, Stop
from noetl.store.base import Change, ExecutionRow, Outgoing
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import TWO_STEPS, rig

START = datetime(2026, 1, 1, tzinfo=UTC)
RUN = "7"


class Bus(MemoryBus):
    """A bus whose publishing fails once as told; it remembers what was published."""

    def __init__(self, fault=None):
        super().__init__()
        self.fault = fault
        self.sent = []
        self.batches = []

    async def publish_many(self, letters):
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        self.sent += letters
        self.batches.append(len(letters))
        return await super().publish_many(letters)

    @property
    def bodies(self):
        return [msgspec.json.decode(letter.payload) for letter in self.sent]


@dataclass
class Server:
    """As much of a server as the loops know."""

    parts: Any
    signals: Signals
    cache: Any
    metrics: ServerMetrics
    spans: Any = None


def server(bus=None, **more):
    clock = LoopClock(asyncio.get_running_loop(), START)
    parts = {"store": MemoryStore(), "bus": bus or Bus(), "publishes": True, "server_url": "u"}
    cache = SimpleNamespace(peek=lambda _: None)
    made = SimpleNamespace(clock=clock, **(parts | more))
    return Server(made, Signals(clock), cache, ServerMetrics())


def virtually(test):
    def run():
        run_virtually(test())

    run.__name__ = test.__name__
    return run


def recorded(seq, event=None, text="x"):
    return Recorded(
        execution_id=RUN, seq=seq, event_id=f"{100 + seq}", prev_event_id=None,
        created_at=rfc3339(START),
        event=event or CtxUpdated(step="s", cause="set", ctx={"v": text}),
    )  # fmt: skip


def log(count=3, text="x"):
    return tuple(recorded(seq, text=text) for seq in range(1, count + 1))


def claim(seq):
    made = CommandClaimed(step="s", command_key="s", worker_id="w", attempt=1)
    return recorded(seq, made)


def outgoing(rows, name="o1", **more):
    about = {"first_seq": rows[0].seq, "last_seq": rows[-1].seq, **more}
    return Outgoing(outgoing_id=name, execution_id=RUN, kind="events", payload=about)


def leave(plane, rows, name="o1", **more):
    plane.signals.unpublished.append((outgoing(rows, name, **more), tuple(rows)))


async def commit(plane, rows, *messages, at=START):
    row = ExecutionRow(
        execution_id=RUN, status="RUNNING", catalog_id="1", path="p", version=1, pool="shared",
        priority=0, last_seq=rows[-1].seq, last_event_id=rows[-1].event_id,
        started_at=rfc3339(START), updated_at=rfc3339(at), tenant_id="t", organization_id="o",
    )  # fmt: skip
    change = Change(
        execution_id=RUN, expected_seq=rows[0].seq - 1, events=tuple(rows), execution=row,
        outgoing=messages,
    )  # fmt: skip
    assert await plane.parts.store.log.commit([change]) == frozenset()


@virtually
async def test_one_message_tells_all_events_of_a_commit_but_claims():
    plane = server()
    rows = (recorded(4), claim(5), recorded(6))
    leave(plane, rows, tenant_id="acme co", organization_id="x", request_id="r1")
    assert await publish.drain(plane) == 1
    (letter,) = plane.parts.bus.sent
    assert letter.subject == events("acme co", "x", RUN, 0)
    assert (letter.msg_id, letter.headers) == ("106", ((REQUEST_HEADER, "r1"),))
    assert plane.parts.bus.bodies == [
        {
            "execution_id": RUN,
            "first_seq": 4,
            "last_seq": 6,
            "events": [to_row(rows[0]), to_row(rows[2])],
        }
    ]
    assert plane.signals.taken_done() == ["o1"]


@virtually
async def test_a_commit_of_claims_alone_is_not_told():
    plane = server()
    leave(plane, [claim(1)])
    assert await publish.drain(plane) == 0
    assert plane.parts.bus.sent == []
    assert plane.signals.taken_done() == ["o1"]


@virtually
async def test_the_place_of_a_run_is_looked_up_when_the_message_does_not_tell_it():
    plane = server()
    leave(plane, log())
    await commit(plane, log())
    leave(plane, log(), "o2")
    plane.signals.unpublished.rotate()
    await publish.drain(plane)
    assert {letter.subject for letter in plane.parts.bus.sent} == {events("t", "o", RUN, 0)}


@virtually
async def test_a_large_message_is_stripped_and_a_larger_one_only_says_where_to_look():
    plane = server()
    leave(plane, log(3, "x" * 100_000))
    leave(plane, log(3000), "o2")
    await publish.drain(plane)
    stripped, empty = plane.parts.bus.bodies
    assert [row["seq"] for row in stripped["events"]] == [1, 2, 3]
    assert not any({"context", "result"} & row.keys() for row in stripped["events"])
    assert (stripped["is_stripped"], empty["is_stripped"], empty["events"]) == (True, True, [])
    assert (empty["first_seq"], empty["last_seq"]) == (1, 3000)


@virtually
async def test_a_broker_that_takes_little_is_told_where_to_look():
    plane = server(Bus(TooLarge("too large")))
    leave(plane, log())
    assert await publish.drain(plane) == 1
    assert [body["events"] for body in plane.parts.bus.bodies] == [[]]


@virtually
async def test_what_a_bus_that_is_away_does_not_take_is_left_to_the_outbox():
    plane = server(Bus(BusGone("away")))
    for number in range(1000):
        leave(plane, log(), f"o{number}")
    assert await publish.drain(plane) == 0
    assert not plane.signals.unpublished
    assert plane.signals.taken_done() == []
    assert plane.metrics.outbox_failed.value() == 256


@virtually
async def test_commits_of_a_run_that_follow_each_other_are_one_message_in_their_order():
    plane = server()
    rows = log(600)
    for row in rows:
        leave(plane, [row], row.event_id)
    assert await publish.drain(plane) == 3
    sent = plane.parts.bus.sent
    assert [letter.msg_id for letter in sent] == [rows[n].event_id for n in (255, 511, 599)]
    bodies = [json.loads(letter.payload) for letter in sent]
    places = [(body["first_seq"], body["last_seq"]) for body in bodies]
    assert places == [(1, 256), (257, 512), (513, 600)]
    assert [event["seq"] for body in bodies for event in body["events"]] == list(range(1, 601))
    assert plane.parts.bus.batches == [1, 1, 1]
    leave(plane, rows[513:])
    assert await publish.drain(plane) == 0
    counted = plane.metrics.outbox_published
    assert (counted.value("ok"), counted.value("duplicate")) == (3, 1)


def test_a_gap_and_another_run_are_messages_of_their_own():
    rows = log(6)

    def item(*wanted, run=RUN):
        payload = {"first_seq": wanted[0].seq, "last_seq": wanted[-1].seq}
        outgoing = Outgoing(outgoing_id="1", execution_id=run, kind="events", payload=payload)
        return outgoing, wanted

    found = publish.merged([
        item(*rows[:2]), item(rows[0], run="8"), item(rows[2]), item(*rows[4:]),
    ])  # fmt: skip
    told = [(each.execution_id, each.payload["first_seq"], len(events)) for each, events in found]
    assert told == [(RUN, 1, 3), (RUN, 5, 2), ("8", 1, 1)]


@virtually
async def test_the_loop_publishes_as_soon_as_there_is_something():
    plane = server()
    task = asyncio.create_task(publish.run(plane))
    async with plane.parts.bus.listen("noetl.events.>") as words:
        await asyncio.sleep(1)
        leave(plane, log())
        plane.signals.publish.set()
        assert (await anext(words)).subject == events("default", "default", RUN, 0)
    task.cancel()


@virtually
async def test_what_was_left_behind_is_published_once_it_is_due():
    plane = server()
    rows = log(6)
    other = Outgoing(outgoing_id="o3", execution_id=RUN, kind="return", payload={})
    await commit(plane, rows[:3], outgoing(rows[:3]), other)
    await commit(plane, rows[3:], outgoing(rows[3:], "o2"), at=START + timedelta(seconds=5))
    assert await publish.sweep(plane) == 0
    await asyncio.sleep(11)
    assert await publish.sweep(plane) == 1
    await asyncio.sleep(5)
    assert await publish.sweep(plane) == 1
    told = [[row["seq"] for row in body["events"]] for body in plane.parts.bus.bodies]
    assert told == [[1, 2, 3], [4, 5, 6]]
    assert [letter.msg_id for letter in plane.parts.bus.sent] == ["103", "106"]
    assert await plane.parts.store.outbox.waiting() == [other]


@virtually
async def test_nothing_is_swept_while_the_bus_is_away_or_nothing_is_published():
    plane = server(Bus(BusGone("away")))
    await commit(plane, log(), outgoing(log()))
    await asyncio.sleep(11)
    assert await publish.sweep(plane) == 0
    assert len(await plane.parts.store.outbox.waiting()) == 1
    plane.parts.publishes = False
    assert await publish.sweep(plane) == 0
    assert plane.parts.bus.sent == []


def hint(number, step="s"):
    return Hint(RUN, "shared", f"{number}", step, 1)


@virtually
async def test_hints_are_published_in_chunks_and_words_to_stop_beside_them():
    plane = server()
    plane.signals.unhinted.extend(hint(number) for number in range(300))
    for number in range(300):
        plane.signals.stop(Stop("w", "shared", f"{number}", 1))
    async with plane.parts.bus.listen("noetl.control.shared") as words:
        await hints.publish(plane)
        told = [msgspec.json.decode((await anext(words)).payload) for _ in range(2)]
    assert plane.parts.bus.batches == [256, 44]
    assert plane.metrics.command_publish.value("hint", "shared") == 300
    assert [len(word["command_ids"]) for word in told] == [256, 44]
    assert {word["op"] for word in told} == {"cancel"}


@virtually
async def test_a_hint_carries_the_trace_when_it_is_small():
    plane = server()
    traces = {"7": {"id": "abc"}, "8": {"id": "x" * 5000}}
    plane.cache.peek = lambda run: SimpleNamespace(state=SimpleNamespace(trace=traces[run]))
    small = hint(1)
    plane.signals.unhinted.extend([small, Hint("8", "shared", "2", "s", 1)])
    await hints.publish(plane)
    first, second = plane.parts.bus.bodies
    assert first["trace"] == {"id": "abc"}
    assert "trace" not in second
    assert all(len(letter.payload) < 4096 for letter in plane.parts.bus.sent)


@virtually
async def test_hints_are_forgotten_while_the_bus_is_away():
    plane = server(Bus(BusGone("away")))
    plane.signals.unhinted.append(hint(1))
    await hints.publish(plane)
    assert not plane.signals.unhinted


@virtually
async def test_a_command_that_waits_is_told_again_after_a_while_and_then_rarely():
    asked = []

    async def unhinted(before, *, told):
        asked.append((before, told))
        row = {"execution_id": RUN, "pool": "shared", "command_id": "1", "step": "s", "attempt": 1}
        return [SimpleNamespace(**row)]

    plane = server(store=SimpleNamespace(commands=SimpleNamespace(unhinted=unhinted)))
    assert await hints.repeat(plane) == 1
    assert await hints.repeat(plane) == 1
    plane.parts.bus.fault = BusGone("away")
    assert await hints.repeat(plane) == 0
    earlier, later = START - timedelta(seconds=5), START + timedelta(seconds=25)
    assert asked[0] == (rfc3339(earlier), rfc3339(later))


@virtually
async def test_a_pool_where_nobody_works_is_told_of_its_oldest_commands_alone():
    pools = ("idle", "shared")

    async def unhinted(_, **__):
        row = {"execution_id": RUN, "step": "s", "attempt": 1}
        return [
            SimpleNamespace(**row, pool=pool, command_id=f"{pool}-{number}")
            for number in range(500)
            for pool in pools[: 2 if number < 3 else 1]
        ]

    plane = server(store=SimpleNamespace(commands=SimpleNamespace(unhinted=unhinted)))
    assert await hints.repeat(plane) == hints.MOST_AGAIN + 3
    told = [word["command_id"] for word in plane.parts.bus.bodies]
    assert [name for name in told if name.startswith("idle")] == [
        f"idle-{number}" for number in range(hints.MOST_AGAIN)
    ]
    assert [name for name in told if name.startswith("shared")] == [
        f"shared-{number}" for number in range(3)
    ]


@virtually
async def test_everything_that_a_server_commits_is_told_once_and_in_order():
    async with rig(publishes=True) as r, r.bus.listen("noetl.events.>") as words:
        run = await r.start(TWO_STEPS)
        for _ in range(2):
            (work,) = await r.claim()
            await r.done(work)
        log = await r.store.log.read(run)
        wanted = [to_row(each)["seq"] for each in log if not isinstance(each.event, CommandClaimed)]
        told = []
        while len(told) < len(wanted):
            body = msgspec.json.decode((await anext(words)).payload)
            told += [row["seq"] for row in body["events"]]
        assert told == wanted
        await asyncio.sleep(20)
        assert [each for each in await r.store.outbox.waiting() if each.kind == "events"] == []
        assert r.plane.metrics.outbox_published.value("duplicate") == 0
