import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from noetl.errors import NoetlError
from noetl.store.errors import DatabaseGone
from noetl.store.postgres.clock import DatabaseClock, Interval

START = datetime(2026, 3, 1, tzinfo=UTC)


class Machine:
    """The clock of this machine; its wall is set to another day at will."""

    def __init__(self):
        self.passed = 0.0
        self.wall = START

    def now(self):
        return self.wall

    def monotonic(self):
        return 1000.0 + self.passed


class Server:
    """A database whose answers take a while each way."""

    def __init__(self, machine, *, there=0.0, back=0.0):
        self.machine = machine
        self.ahead = 0.0
        self.there = there
        self.back = back
        self.asked = asyncio.Event()
        self.error = None

    async def fetchval(self, _):
        self.asked.set()
        if self.error is not None:
            raise self.error
        self.machine.passed += self.there
        answer = (self.time() - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
        self.machine.passed += self.back
        return answer

    def time(self):
        return START + timedelta(seconds=self.machine.passed + self.ahead)


def off(clock, server):
    return (clock.now() - server.time()).total_seconds()


async def test_it_tells_the_time_of_the_database():
    machine = Machine()
    server = Server(machine)
    clock = await DatabaseClock.open(server, machine)
    assert abs(off(clock, server)) < 1e-5
    machine.passed += 3600
    assert abs(off(clock, server)) < 1e-5
    assert clock.monotonic() == machine.monotonic()


async def test_a_jump_of_the_wall_clock_changes_nothing():
    machine = Machine()
    server = Server(machine)
    clock = await DatabaseClock.open(server, machine)
    machine.wall += timedelta(days=1)
    assert abs(off(clock, server)) < 1e-5
    await clock.correct()
    assert abs(off(clock, server)) < 1e-5


async def test_it_is_wrong_by_half_of_the_way_at_most():
    machine = Machine()
    server = Server(machine, there=0.001, back=0.009)
    clock = await DatabaseClock.open(server, machine)
    assert clock.uncertainty_s == pytest.approx(0.005, abs=1e-4)
    assert abs(off(clock, server)) <= clock.uncertainty_s


async def test_one_slow_answer_among_fast_ones_does_no_harm():
    machine = Machine()
    server = Server(machine, there=0.0001, back=0.0001)
    clock = await DatabaseClock.open(server, machine)
    server.there, server.back = 0.0, 2.0
    await clock.correct()
    assert abs(off(clock, server)) < 0.01


async def test_a_database_that_was_set_forward_is_followed_at_once():
    machine = Machine()
    server = Server(machine)
    clock = await DatabaseClock.open(server, machine)
    server.ahead = 7.0
    await clock.correct()
    assert abs(off(clock, server)) < 1e-5


async def test_time_stands_still_until_a_database_that_was_set_back_has_caught_up():
    machine = Machine()
    server = Server(machine)
    clock = await DatabaseClock.open(server, machine)
    before = clock.now()
    server.ahead = -5.0
    await clock.correct()
    machine.passed += 3
    assert clock.now() == before
    machine.passed += 3
    assert abs(off(clock, server)) < 1e-5


async def test_drift_is_corrected_while_the_clock_runs():
    machine = Machine()
    server = Server(machine)
    clock = await DatabaseClock.open(server, machine)
    running = asyncio.create_task(clock.run(every_s=0))
    for _ in range(20):
        machine.passed += 30
        server.ahead += 0.0015
        server.asked.clear()
        await server.asked.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await clock.correct()
    assert abs(off(clock, server)) < 0.013


async def test_it_goes_on_while_the_database_is_away():
    machine = Machine()
    server = Server(machine)
    clock = await DatabaseClock.open(server, machine)
    running = asyncio.create_task(clock.run(every_s=0))
    server.error = DatabaseGone("away")
    for _ in range(3):
        server.asked.clear()
        await server.asked.wait()
    machine.passed += 100
    assert abs(off(clock, server)) < 1e-5
    server.error = NoetlError("wrong")
    with pytest.raises(NoetlError, match="wrong"):
        await running


async def test_an_answer_that_is_no_time_is_refused():
    machine = Machine()

    class Strange:
        async def fetchval(self, _):
            return None

    with pytest.raises(TypeError, match="None"):
        await DatabaseClock.open(Strange(), machine)


def test_what_two_intervals_allow():
    old = Interval(10.0, 12.0, at=0.0)
    assert old.cut(Interval(11.0, 13.0, at=0.0)) == Interval(11.0, 12.0, 0.0)
    assert old.cut(Interval(20.0, 21.0, at=0.0)) == Interval(20.0, 21.0, 0.0)
    widened = old.cut(Interval(0.0, 100.0, at=1000.0))
    assert widened == Interval(pytest.approx(9.8), pytest.approx(12.2), 1000.0)
