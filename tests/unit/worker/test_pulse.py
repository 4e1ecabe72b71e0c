"""The heart with a thread of its own."""

import asyncio
import threading

import pytest

from noetl.api.commands import Beat
from noetl.api.http import NoAnswer
from noetl.worker.heartbeat import Chart
from noetl.worker.held import Held
from noetl.worker.pulse import Line, Pulse
from tests.unit.worker.fakes import FakeServer, refusal


class Far:
    """A server that beats reach from another thread."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.bodies = []
        self.threads = set()
        self.count = threading.Semaphore(0)
        self.is_closed = False

    async def pool_heartbeat(self, body):
        self.bodies.append(body)
        self.threads.add(threading.current_thread())
        answer = self.answers.pop(0) if self.answers else Beat()
        self.count.release()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self):
        self.is_closed = True

    async def beats(self, count):
        for _ in range(count):
            assert await asyncio.to_thread(self.count.acquire, timeout=20)


class Body:
    """What has a heart."""

    def __init__(self, far, lease_s=0.3):
        self.far = far
        self.ran = asyncio.Event()
        self.held = Held(4, self._execute)
        self.chart = Chart(self.held, "w-1")
        self.chart.lease_s = lease_s
        self.pulse = Pulse(lambda: Line(far, far.close), self.chart)
        self.registered = asyncio.Event()
        self.beat = asyncio.Queue()

    async def _execute(self, run):
        del run
        self.ran.set()
        await asyncio.sleep(600)

    async def register(self):
        self.registered.set()

    async def __aenter__(self):
        self.task = asyncio.create_task(self.pulse.run(self.register, self.beat.put_nowait))
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        for run in list(self.held):
            self.held.stop(run)
        await self.held.emptied()


def commands(*ids):
    server = FakeServer()
    return [server.command(command_id=name) for name in ids]


async def test_a_busy_loop_holds_up_no_beat():
    far = Far()
    async with Body(far) as body:
        body.held.take(commands("c1"))
        await far.beats(1)
        before = len(far.bodies)
        threading.Event().wait(2.0)  # nothing else of this loop runs meanwhile
        during = far.bodies[before:]
    assert len(during) >= 4
    assert {held.command_id for beat in during for held in beat.commands} == {"c1"}
    assert threading.current_thread() not in far.threads
    assert far.is_closed


async def test_an_answer_stops_what_is_lost_and_what_is_cancelled():
    far = Far(Beat(lost=("c1",), cancel=("c2",)))
    async with Body(far) as body:
        body.held.take(commands("c1", "c2", "c3"))
        await body.beat.get()
        stopped = {run.command.command_id for run in body.held if run.is_stopped}
        assert (stopped, body.chart.lost) == ({"c1", "c2"}, 1)


async def test_a_checkpoint_travels_once_it_is_new():
    far = Far(NoAnswer("x"))
    async with Body(far, lease_s=1.5) as body:
        body.held.take(commands("c1"))
        (run,) = body.held
        run.checkpoint, run.is_saved = lambda: {"task": "b"}, False
        await far.beats(3)
    checkpoints = [beat.commands[0].checkpoint for beat in far.bodies[:3]]
    assert checkpoints == [{"task": "b"}, {"task": "b"}, None]


async def test_a_checkpoint_that_came_too_late_for_its_beat_goes_with_a_later_one():
    far = Far()
    async with Body(far) as body:
        body.held.take(commands("c1"))
        await far.beats(1)
        (run,) = body.held
        run.checkpoint, run.is_saved = lambda: {"task": "b"}, False
        before = len(far.bodies)
        threading.Event().wait(0.8)
        during = far.bodies[before:]
        await far.beats(len(during) + 3)
    assert {beat.commands[0].checkpoint for beat in during if beat.commands} == {None}
    later = [beat.commands[0].checkpoint for beat in far.bodies[before + len(during) :]]
    assert later.count({"task": "b"}) == 1


async def test_leases_in_doubt_start_nothing():
    far = Far(*[NoAnswer("x")] * 4)
    async with Body(far) as body:
        await far.beats(4)
        async with asyncio.timeout(20):
            while body.chart.may_start.is_set():  # noqa: ASYNC110 - cleared from the thread
                await asyncio.sleep(0.01)
            await body.chart.may_start.wait()
    assert body.chart.failures == 4


async def test_a_forgotten_worker_registers_again():
    far = Far(refusal(404, "unknown_worker"))
    async with Body(far) as body:
        async with asyncio.timeout(20):
            await body.registered.wait()


async def test_a_defect_of_the_thread_is_raised():
    far = Far()
    body = Body(far)

    def broken():
        raise RuntimeError("no line")

    body.pulse = Pulse(broken, body.chart)
    with pytest.raises(RuntimeError, match="no line"):
        await body.pulse.run(body.register, body.beat.put_nowait)
