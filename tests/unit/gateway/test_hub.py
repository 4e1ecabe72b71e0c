"""The hub: clients on several gateways, what each is told, and what becomes of slow ones."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from noetl.bus.gateway import MemoryGatewayBus
from noetl.bus.memory_clients import MemoryClients
from noetl.clock import LoopClock, rfc3339
from noetl.gateway import frames
from noetl.gateway.errors import ClientNotYours, TooManyClients
from noetl.gateway.hub import Hub, Pace
from noetl.gateway.hub.stream import MOST_BYTES, MOST_MESSAGES, PAGE
from noetl.gateway.metrics import GatewayMetrics
from noetl.gateway.person import Person
from tests.unit.server.rig import START, virtually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.bus.clients import History
    from noetl.gateway.hub.stream import Stream

ANN = Person(user_id="u1", subject="ann", session_id="s1")
BOB = Person(user_id="u2", subject="bob", session_id="s2")
CLIENT = "client-00001"


def _wire(frame: bytes, event_id: str) -> bytes:
    return b"%b %b" % (event_id.encode(), frame)


def _frame(number: int, size: int = 0) -> bytes:
    return frames.progress("r", "1", text="x" * size, share=number)


class World:
    """Gateways on one bus."""

    def __init__(self) -> None:
        self.clock = LoopClock(asyncio.get_running_loop(), START)
        self.bus = MemoryGatewayBus(clock=self.clock)
        self.metrics = GatewayMetrics()
        self.tasks: list[asyncio.Task[Any]] = []

    def hub(self, **pace: float) -> Hub:
        """One more gateway."""
        made = Hub(
            bus=self.bus,
            upstream=None,  # type: ignore[arg-type] # nobody watches a run here
            clock=self.clock,
            metrics=self.metrics,
            pace=Pace(**pace),
        )
        for loop in made.loops().values():
            self.tasks.append(asyncio.ensure_future(loop()))
        return made


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """A bus, and the gateways that are made on it."""
    made = World()
    try:
        yield made
    finally:
        for task in made.tasks:
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)
        await made.bus.close()


async def _read(stream: Stream, count: int) -> list[bytes]:
    """So many messages of a stream, or all until its end."""
    found: list[bytes] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            chunk = await stream.next()
            if not chunk:
                break
            found += chunk
    return found


def _ids(messages: list[bytes]) -> list[str]:
    return [one.split(b" ", 1)[0].decode() for one in messages]


@virtually
async def test_22_one_client_id_in_two_tabs_supersedes_the_older_stream() -> None:
    async with world() as made:
        here, there = made.hub(), made.hub()
        await asyncio.sleep(0.01)
        older = await here.open(ANN, CLIENT, "", "sse", _wire)
        newer = await there.open(ANN, CLIENT, "", "sse", _wire)
        await asyncio.sleep(0.01)
        assert b"connection/superseded" in (await _read(older, 1))[0]
        assert await older.next() == []
        await here.close(older)
        assert await here.send(CLIENT, _frame(1), "1")
        assert len(await _read(newer, 1)) == 1
        assert (older.generation, newer.generation) == (1, 2)
        await there.close(newer)
        assert not await here.send(CLIENT, _frame(2), "2")


@virtually
async def test_a_stream_that_missed_the_word_is_superseded_at_its_next_look() -> None:
    async with world() as made:
        here = made.hub()
        older = await here.open(ANN, CLIENT, "", "ws", _wire)
        await here.presence.claim(ANN, CLIENT)  # a gateway whose word got lost
        older.timing.heard_at += 10_000
        await asyncio.sleep(400)
        assert older.ending is not None
        assert older.ending.code == 4409


@virtually
async def test_a_client_of_somebody_else_is_refused_before_anything_changes() -> None:
    async with world() as made:
        hub = made.hub()
        stream = await hub.open(ANN, CLIENT, "", "sse", _wire)
        with pytest.raises(ClientNotYours):
            await hub.open(BOB, CLIENT, "", "sse", _wire)
        assert stream.ending is None
        assert await hub.owns(ANN, CLIENT)
        assert not await hub.owns(BOB, CLIENT)
        assert not await hub.owns(ANN, "client-unknown")
        await hub.close(stream)
        with pytest.raises(ClientNotYours):
            await hub.open(BOB, CLIENT, "", "sse", _wire)


@virtually
async def test_after_a_new_sign_in_the_user_keeps_his_client() -> None:
    async with world() as made:
        hub = made.hub()
        await hub.close(await hub.open(ANN, CLIENT, "", "sse", _wire))
        again = Person(user_id="u1", subject="ann", session_id="s9")
        await hub.close(await hub.open(again, CLIENT, "", "sse", _wire))
        assert await hub.owns(again, CLIENT)
        assert await hub.clients_of(session_id="s9") == [CLIENT]
        assert await hub.clients_of(user_id="u1") == [CLIENT]


@virtually
async def test_whoever_takes_a_forgotten_id_reads_nothing_of_its_former_owner() -> None:
    async with world() as made:
        hub = made.hub()
        await hub.close(await hub.open(ANN, CLIENT, "", "sse", _wire))
        epoch = await made.bus.clients.epoch()
        await asyncio.sleep(1700)
        await hub.send(CLIENT, _frame(1), "1")
        await asyncio.sleep(200)
        stream = await hub.open(BOB, CLIENT, f"{epoch}-0", "sse", _wire)
        assert (stream.behind, stream.recovery.recovered, stream.is_lost) == ((0, 0), False, True)
        await hub.close(stream)
        stream = await hub.open(BOB, CLIENT, "", "sse", _wire)
        assert stream.behind == (0, 0)


@virtually
async def test_a_session_has_at_most_20_clients_and_those_who_left_make_room() -> None:
    async with world() as made:
        hub = made.hub()
        streams = [await hub.open(ANN, f"client-{n:05}", "", "sse", _wire) for n in range(20)]
        with pytest.raises(TooManyClients):
            await hub.open(ANN, "client-one-more", "", "sse", _wire)
        await hub.close(streams[3])
        await hub.open(ANN, "client-one-more", "", "sse", _wire)
        assert "client-00003" not in await hub.clients_of(session_id="s1")
        assert len(await hub.clients_of(session_id="s1")) == 20


@virtually
async def test_a_user_has_at_most_50_clients() -> None:
    async with world() as made:
        hub = made.hub()
        for n in range(50):
            person = Person(user_id="u1", subject="ann", session_id=f"s{n // 10}")
            await hub.open(person, f"client-{n:05}", "", "sse", _wire)
        other = Person(user_id="u1", subject="ann", session_id="s99")
        with pytest.raises(TooManyClients):
            await hub.open(other, "client-one-more", "", "sse", _wire)


@virtually
async def test_a_replica_that_was_killed_holds_no_client() -> None:
    async with world() as made:
        here, there = made.hub(), made.hub()
        await here.open(ANN, CLIENT, "", "sse", _wire)
        await asyncio.sleep(1)
        assert await there.send(CLIENT, _frame(1), "1")
        for task in made.tasks[:3]:
            task.cancel()
        await asyncio.sleep(60)
        assert not await there.send(CLIENT, _frame(2), "2")


@virtually
async def test_everything_after_the_id_is_replayed_in_order_then_live() -> None:
    async with world() as made:
        hub = made.hub()
        stream = await hub.open(ANN, CLIENT, "", "sse", _wire)
        await hub.send(CLIENT, _frame(0), "0")
        (first,) = _ids(await _read(stream, 1))
        await hub.close(stream)
        count = 3 * PAGE + 7
        for n in range(1, count):
            await hub.send(CLIENT, _frame(n), str(n))
        stream = await hub.open(ANN, CLIENT, first, "sse", _wire)
        assert stream.recovery.recovered
        reading = asyncio.ensure_future(_read(stream, count))
        await hub.send(CLIENT, _frame(count), str(count))
        ids = _ids(await reading)
        assert len(ids) == count
        assert ids == sorted(ids, key=lambda one: int(one.rpartition("-")[2]))
        assert first not in ids


class Busy(MemoryClients):
    """A log that gets a message whenever it was just read."""

    async def after(self, client_id: str, seq: int, limit: int = 1000) -> History:
        found = await super().after(client_id, seq, limit)
        self.count = getattr(self, "count", 0) + 1
        if self.count <= 3:
            await self.append(client_id, _frame(self.count), f"busy-{self.count}")
        return found


@virtually
async def test_what_comes_while_the_history_is_read_is_told_once() -> None:
    async with world() as made:
        made.bus.clients = Busy(made.clock)
        hub = made.hub()
        await hub.close(await hub.open(ANN, CLIENT, "", "sse", _wire))
        last = ""
        for count in (0, 1):
            for n in range(count):
                await hub.send(CLIENT, _frame(n), f"{n}")
            made.bus.clients.count = 0
            stream = await hub.open(ANN, CLIENT, last, "sse", _wire)
            ids: list[str] = []
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    while True:
                        ids += [one for one in _ids(await stream.next()) if one]
            assert stream.place == made.bus.clients._seq  # noqa: SLF001 - the newest message
            assert len(ids) == len(set(ids))
            last = ids[-1]
            await hub.close(stream)


@virtually
async def test_a_client_that_never_had_an_id_gets_all_it_was_told() -> None:
    async with world() as made:
        hub = made.hub()
        await hub.close(await hub.open(ANN, CLIENT, "", "sse", _wire))
        await hub.send(CLIENT, _frame(1), "1")
        stream = await hub.open(ANN, CLIENT, "", "sse", _wire)
        assert len(await _read(stream, 1)) == 1


@virtually
async def test_another_epoch_is_not_recovered_and_the_stream_goes_on() -> None:
    async with world() as made:
        hub = made.hub()
        for n, last in enumerate(("other-1", "nonsense", "-5", "-", "x-" + "9" * 30)):
            client_id = f"client-{n:05}"
            await hub.close(await hub.open(ANN, client_id, "", "sse", _wire))
            stream = await hub.open(ANN, client_id, last, "sse", _wire)
            assert (stream.recovery.recovered, stream.is_lost) == (False, True)
            await hub.send(client_id, _frame(1), "1")
            assert len(await _read(stream, 1)) == 1


@virtually
async def test_an_id_that_was_never_given_hides_nothing() -> None:
    async with world() as made:
        hub = made.hub()
        stream = await hub.open(ANN, CLIENT, "", "sse", _wire)
        await hub.send(CLIENT, _frame(1), "1")
        epoch = _ids(await _read(stream, 1))[0].rpartition("-")[0]
        await hub.close(stream)
        stream = await hub.open(ANN, CLIENT, f"{epoch}-999999", "sse", _wire)
        assert stream.is_lost
        await hub.send(CLIENT, _frame(2), "2")
        assert len(await _read(stream, 1)) == 1


@virtually
async def test_a_stream_that_heard_with_a_gap_reads_what_it_missed() -> None:
    async with world() as made:
        hub = made.hub()
        stream = await hub.open(ANN, CLIENT, "", "sse", _wire)
        await stream.ears.aclose()  # the connection to the broker is lost
        for n in range(5):
            await hub.send(CLIENT, _frame(n), str(n))
        await stream.ears.enter_async_context(made.bus.clients.hear(CLIENT, stream.hear))
        await hub.send(CLIENT, _frame(5), "5")
        assert len(await _read(stream, 6)) == 6


@virtually
async def test_a_new_connection_of_the_bus_looks_for_what_was_missed() -> None:
    async with world() as made:
        hub = made.hub()
        stream = await hub.open(ANN, CLIENT, "", "sse", _wire)
        await stream.ears.aclose()
        await hub.send(CLIENT, _frame(1), "1")
        made.bus.connections += 1
        assert len(await _read(stream, 1)) == 1


@virtually
async def test_another_log_ends_every_stream_so_that_clients_come_back() -> None:
    async with world() as made:
        hub = made.hub()
        stream = await hub.open(ANN, CLIENT, "", "ws", _wire)
        made.bus.clients._epoch = "another"  # noqa: SLF001 - the store was wiped
        made.bus.connections += 1
        await asyncio.sleep(3)
        assert stream.ending is not None
        assert (stream.ending.reason, stream.ending.code) == ("history_lost", 1013)


@virtually
async def test_a_reader_that_is_too_far_behind_is_dropped_and_its_log_keeps_the_messages() -> None:
    async with world() as made:
        hub = made.hub()
        for n, (count, size) in enumerate(((MOST_MESSAGES, 0), (MOST_BYTES // 65_536, 65_536))):
            client_id = f"client-{n:05}"
            stream = await hub.open(ANN, client_id, "", "ws", _wire)
            for number in range(count):
                await hub.send(client_id, _frame(number, size), str(number))
            stream.tell(frames.ping())
            assert stream.ending is not None
            assert (stream.ending.reason, stream.ending.code) == ("slow_consumer", 1013)
            assert stream.behind == (0, 0)
            assert await stream.next() == []
            await hub.close(stream)
            stream = await hub.open(ANN, client_id, "", "ws", _wire)
            assert len(await _read(stream, count)) == count
            assert made.metrics.slow_consumer.value("ws") == n + 1


@virtually
async def test_a_replay_that_is_larger_than_the_bound_is_not_a_slow_reader() -> None:
    async with world() as made:
        hub = made.hub()
        await hub.close(await hub.open(ANN, CLIENT, "", "sse", _wire))
        for n in range(40):
            await hub.send(CLIENT, _frame(n, 200_000), str(n))
        stream = await hub.open(ANN, CLIENT, "", "sse", _wire)
        await hub.send(CLIENT, _frame(40), "40")
        assert len(await _read(stream, 41)) == 41


@virtually
async def test_a_write_that_is_stuck_for_30_s_cuts_the_connection() -> None:
    async with world() as made:
        hub = made.hub()
        stream = await hub.open(ANN, CLIENT, "", "sse", _wire)
        cut: list[bool] = []
        stream.abort = lambda: cut.append(True)
        stream.writing_since = made.clock.monotonic()
        await asyncio.sleep(28)
        assert not cut
        await asyncio.sleep(4)
        assert cut == [True]
        assert stream.is_cut


@virtually
async def test_what_is_watched_is_left_out_for_a_reader_that_is_behind() -> None:
    async with world() as made:
        hub = made.hub()
        stream = await hub.open(ANN, CLIENT, "", "sse", _wire)
        for n in range(2 * MOST_MESSAGES):
            stream.spare(_frame(n))
        assert stream.behind[0] == MOST_MESSAGES // 2
        assert stream.ending is None


@virtually
async def test_an_expiring_session_is_told_a_minute_before_and_closed_at_its_end() -> None:
    async with world() as made:
        hub = made.hub()
        ends = rfc3339(START + timedelta(seconds=120))
        person = Person(user_id="u1", subject="ann", session_id="s1", expires_at=ends)
        stream = await hub.open(person, CLIENT, "", "sse", _wire)
        await asyncio.sleep(65)
        told = b"".join(await _read(stream, 3))
        assert b"session/expiring" in told
        assert b"session/closed" not in told
        await asyncio.sleep(60)
        assert b"session/closed" in b"".join(await _read(stream, 99))
        assert stream.ending is not None
        assert stream.ending.code == 4401


@virtually
async def test_a_stream_lasts_4_hours_give_or_take_a_tenth() -> None:
    async with world() as made:
        hub = made.hub(idle_s=1e9)
        lives = []
        for n in range(8):
            stream = await hub.open(ANN, f"client-{n:05}", "", "sse", _wire)
            lives.append((stream.timing.ends_at - made.clock.monotonic()) / 3600)
        assert all(3.6 <= one <= 4.4 for one in lives)
        assert len(set(lives)) == 8


@virtually
async def test_a_session_that_does_not_last_ends_its_streams_also_without_a_word() -> None:
    async with world() as made:
        hub = made.hub(idle_s=1e9)

        async def still(person: Person) -> Person:
            raise ClientNotYours(person.subject)

        hub.still = still
        stream = await hub.open(ANN, CLIENT, "", "ws", _wire)
        await asyncio.sleep(400)
        assert stream.ending is not None
        assert stream.ending.code == 4401


@virtually
async def test_draining_tells_every_client_when_to_come_back() -> None:
    async with world() as made:
        hub = made.hub()
        streams = [await hub.open(ANN, f"client-{n:05}", "", "sse", _wire) for n in range(3)]

        async def reading(stream: Stream) -> bytes:
            told = b"".join(await _read(stream, 99))
            await hub.close(stream)
            return told

        told = await asyncio.gather(hub.drain(1.0), *map(reading, streams))
        assert all(b"server/draining" in one and b'"retry":' in one for one in told[1:])
        assert hub.count == 0


@virtually
async def test_an_acknowledged_result_is_told_to_whoever_keeps_requests() -> None:
    async with world() as made:
        here, there = made.hub(), made.hub()
        await asyncio.sleep(0.01)
        seen: list[tuple[str, str]] = []

        async def acknowledged(client_id: str, request_id: str) -> None:
            seen.append((client_id, request_id))

        here.on_acknowledged = acknowledged
        stream = await here.open(ANN, CLIENT, "", "sse", _wire)
        await here.send(CLIENT, frames.message("playbook/result", {"requestId": "r-1"}), "1")
        (event_id,) = _ids(await _read(stream, 1))
        await there.acknowledge(BOB, event_id)
        await there.acknowledge(ANN, event_id)
        await asyncio.sleep(0.01)
        assert seen == [(CLIENT, "r-1")]


@virtually
async def test_a_result_is_told_again_once_whatever_the_log_has_forgotten() -> None:
    async with world() as made:
        hub = made.hub()
        frame = frames.message("playbook/result", {"requestId": "r-1"})
        stream = await hub.open(ANN, CLIENT, "", "sse", _wire)
        await hub.again(stream, frame, "r-1/result/completed")
        await hub.again(stream, frame, "r-1/result/completed")
        await hub.send(CLIENT, frame, "r-1/result/completed")
        assert stream.behind[0] == 1
        await hub.close(stream)
        await made.bus.clients.forget(CLIENT)
        stream = await hub.open(ANN, CLIENT, "lost-1", "sse", _wire)
        await hub.again(stream, frame, "r-1/result/completed")
        assert stream.behind[0] == 1


@virtually
async def test_200_clients_with_random_reconnects_each_get_every_message_once() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - to repeat a failure
    chance = random.Random(seed)
    async with world() as made:
        hubs = [made.hub(), made.hub()]
        await asyncio.sleep(0.01)
        got: dict[str, list[str]] = {f"client-{n:05}": [] for n in range(200)}
        done = asyncio.Event()

        async def client(client_id: str, person: Person) -> None:
            last = ""
            while not (done.is_set() and len(got[client_id]) == 20):
                hub = chance.choice(hubs)
                stream = await hub.open(person, client_id, last, "sse", _wire)
                if last:
                    assert stream.recovery.recovered
                until = made.clock.monotonic() + chance.uniform(0.0, 3.0)
                try:
                    async with asyncio.timeout(max(0.01, until - made.clock.monotonic())):
                        while chunk := await stream.next():
                            ids = [one for one in _ids(chunk) if one]
                            got[client_id] += ids
                            last = ids[-1] if ids else last
                except TimeoutError:
                    pass
                await hub.close(stream)
                await asyncio.sleep(chance.uniform(0.0, 0.5))

        async def sender(client_id: str) -> None:
            for n in range(20):
                await chance.choice(hubs).send(client_id, _frame(n), f"{client_id}-{n}")
                await asyncio.sleep(chance.uniform(0.0, 1.0))

        people = [Person(user_id=f"u{n}", subject="x", session_id=f"s{n}") for n in range(20)]
        readers = [asyncio.ensure_future(client(one, people[n % 20])) for n, one in enumerate(got)]
        await asyncio.sleep(5)
        await asyncio.gather(*map(sender, got))
        done.set()
        async with asyncio.timeout(600):
            await asyncio.gather(*readers)
        for ids in got.values():
            assert len(ids) == len(set(ids)) == 20
            assert ids == sorted(ids, key=lambda one: int(one.rpartition("-")[2]))


@virtually
async def test_a_history_that_was_cut_while_connected_is_not_passed_over_in_silence() -> None:
    async with world() as made:
        hub = made.hub()
        stream = await hub.open(ANN, CLIENT, "", "sse", _wire)
        await hub.send(CLIENT, _frame(0), "0")
        await _read(stream, 1)
        await stream.ears.aclose()
        for n in range(1, 1102):
            await hub.send(CLIENT, _frame(n), str(n))
        stream.look()
        assert await _read(stream, 9999) == []
        assert stream.ending is not None
        assert stream.ending.reason == "history_lost"
