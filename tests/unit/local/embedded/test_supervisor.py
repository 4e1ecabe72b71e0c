import asyncio
import os
import sys

import pytest

from noetl.clock import LoopClock, SystemClock
from noetl.local.embedded import record
from noetl.local.embedded.children import PartFailed, Process, ending
from noetl.local.embedded.home import Home
from noetl.local.embedded.logs import Logs
from noetl.local.embedded.supervisor import Life, StackFailed, Supervisor, me
from noetl.local.virtual import VirtualLoop
from tests.unit.local.embedded.test_identity import stack


class Child:
    """A part that ends when it is told to."""

    def __init__(self, name="one", stage=0, failures=()):
        self.name = name
        self.stage = stage
        self.failures = list(failures)
        self.starts = 0
        self.stopped = 0
        self.ends = asyncio.Queue()

    @property
    def pid(self):
        return os.getpid()

    def part(self):
        return record.Part(name=self.name, stage=self.stage, pid=self.pid)

    async def start(self, spawned):
        self.starts += 1
        if self.failures:
            raise self.failures.pop(0)
        spawned()

    async def wait(self):
        return await self.ends.get()

    async def stop(self, grace_s):
        self.stopped += 1
        assert grace_s == 30


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path / "home")
    made.make()
    return made


def virtually(home, scenario):
    """Run a scenario with a supervisor, in virtual time."""
    said = []
    loop = VirtualLoop()
    logs = Logs(home, lambda part, line: said.append(f"{part}: {line}"))

    async def run():
        clock = LoopClock(asyncio.get_running_loop(), SystemClock().now())
        await scenario(Supervisor(home, stack(), logs, clock))

    try:
        loop.run_until_complete(run())
    finally:
        logs.close()
        loop.close()
    return said


def test_the_pause_doubles_up_to_half_a_minute_and_starts_again_after_a_quiet_minute():
    life = Life()

    assert [life.died(at) for at in (0, 40, 80, 120, 160, 200)] == [1, 2, 4, 8, 16, 30]
    assert life.died(300) == 1


def test_five_ends_within_a_minute_are_too_many():
    life = Life()

    assert [life.died(at) for at in range(5)] == [1, 2, 4, 8, None]


def test_a_part_that_ends_is_started_again_and_shown(home):
    async def scenario(supervisor):
        child = Child()
        await supervisor.start(child)
        child.ends.put_nowait(-9)
        await asyncio.sleep(2)
        assert child.starts == 2
        assert supervisor.stack.parts[0].restarts == 1
        assert record.read(home.record) == supervisor.stack
        await supervisor.stop()
        assert child.stopped == 1
        assert not home.record.exists()

    said = virtually(home, scenario)

    assert said[0] == "up: one ended with signal SIGKILL. It starts again in 1 s."
    assert said[1] == f"up: one runs again as process {os.getpid()}."


def test_a_part_that_cannot_be_kept_alive_ends_the_stack_with_its_last_words(home):
    async def scenario(supervisor):
        child = Child()
        await supervisor.start(child)
        for _ in range(5):
            child.ends.put_nowait(1)
        with pytest.raises(StackFailed, match="one ended 5 times within a minute") as broken:
            await supervisor.unless_broken(asyncio.sleep(3600))
        assert broken.value.part == "one"
        await supervisor.stop()

    virtually(home, scenario)


def test_a_first_start_that_failed_is_tried_again(home):
    async def scenario(supervisor):
        child = Child(failures=[PartFailed("not yet", exit_code=1)])
        await supervisor.unless_broken(supervisor.start(child))
        assert child.starts == 2
        await supervisor.stop()

    assert virtually(home, scenario)[0] == "up: not yet It starts again in 1 s."


def test_a_first_start_with_bad_settings_is_hopeless(home):
    async def scenario(supervisor):
        with pytest.raises(StackFailed, match="bad"):
            await supervisor.start(Child(failures=[PartFailed("bad", exit_code=2)]))
        await supervisor.stop()

    virtually(home, scenario)


def test_what_is_being_done_is_heard_when_it_fails(home):
    async def broken():
        raise LookupError

    async def scenario(supervisor):
        with pytest.raises(LookupError):
            await supervisor.unless_broken(broken())
        await supervisor.stop()

    virtually(home, scenario)


def process(said, code, port=1):
    return Process(
        name="one",
        stage=0,
        command=[sys.executable, "-I", "-S", "-c", code],
        environ={},
        said=said.append,
        health=f"http://127.0.0.1:{port}/",
    )


async def test_a_process_that_ends_before_it_is_ready_has_failed():
    said = []
    child = process(said, "import sys; print('no'); sys.exit(2)")

    with pytest.raises(
        PartFailed, match="one ended with exit code 2 before it was ready"
    ) as failed:
        await child.start(lambda: None)
    assert failed.value.is_hopeless
    assert said == ["no"]
    await child.stop(1)


async def test_a_process_that_is_not_ready_in_time_is_not_left_behind():
    child = process([], "import signal; signal.pause()")
    child.ready_s = 0.25

    with pytest.raises(PartFailed, match=r"one was not ready after 0\.25 s"):
        await child.start(lambda: None)
    assert child.pid is None


async def test_a_process_that_does_not_heed_is_killed():
    said = asyncio.Queue()
    code = "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); signal.pause()"
    child = process([], code)
    child.said = said.put_nowait
    await child.spawn()
    assert await said.get() == "1"
    await child.stop(0.05)

    assert child.pid is None
    assert said.get_nowait() == "did not end within 0.05 s of SIGTERM"


def test_an_end_is_told_in_words():
    assert [ending(code) for code in (0, 3, -15, -64)] == [
        "exit code 0", "exit code 3", "signal SIGTERM", "signal SIGRTMAX",
    ]  # fmt: skip
    assert ending(-100) == "signal 100"


def test_a_record_names_this_process():
    assert me()[0] == os.getpid()
