"""Lines of steps while the server is away: on the disk, in order, within their share."""

import asyncio
import sqlite3
from contextlib import asynccontextmanager

import pytest

from noetl.api.events import LogLine
from noetl.api.http import NoAnswer
from noetl.clock import SystemClock
from noetl.worker.backlog import SHARE_BYTES, Backlog
from noetl.worker.logs import Logs
from noetl.worker.shelf import OutboxDamaged, OutboxFull
from tests.unit.worker.fakes import FakeServer, Scripted, Stage, play, refusal
from tests.unit.worker.test_spill import until

GONE = NoAnswer("gone")


def line(n):
    return LogLine(execution_id="81", command_id="c1", attempt=1, n=n, ts="", text=f"line {n}")


def sized(*numbers, size=10):
    return [(line(n), size) for n in numbers]


@asynccontextmanager
async def opened(folder, **more):
    made = Backlog(folder, SystemClock(), **more)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def lines_of(backlog):
    return (await backlog.oldest(1000, 1 << 20)).lines


class Away(FakeServer):
    """A server that takes no lines until it is told to."""

    def __init__(self, *args):
        super().__init__(*args)
        self.is_back = asyncio.Event()
        self.requests = 0

    async def log(self, body):
        self.requests += 1
        if not self.is_back.is_set():
            raise GONE
        await super().log(body)

    @property
    def texts(self):
        return [line.text for line in self.lines]


class Hanging(FakeServer):
    """A server that never answers for lines."""

    def __init__(self):
        super().__init__()
        self.asked = asyncio.Event()

    async def log(self, body):
        del body
        self.asked.set()
        await asyncio.Event().wait()


@asynccontextmanager
async def sending(server, backlog):
    logs = Logs(server, SystemClock(), backlog)
    task = asyncio.create_task(logs.run())
    try:
        yield logs
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await logs.saved()


def say(logs, server, *texts):
    """A command that says this and ends."""
    lines = logs.of(server.command())
    for text in texts:
        lines.write("t", "stdout", "info", text)
    lines.close()


# ---------------------------------------------------------------------- the file


async def test_lines_come_back_in_order_and_as_they_were(tmp_path):
    async with opened(tmp_path) as backlog:
        await backlog.keep(sized(3, 1))
        await backlog.keep(sized(2))
        found = await backlog.oldest(10, 1 << 20)
        assert (found.lines, backlog.events, backlog.size_bytes) == (
            [line(3), line(1), line(2)], 3, 30,
        )  # fmt: skip
        first = await backlog.oldest(2, 1 << 20)
        assert (first.lines, (await backlog.oldest(9, 5)).lines) == ([line(3), line(1)], [line(3)])
        await backlog.drop(first.last)
        assert (await lines_of(backlog), backlog.events) == ([line(2)], 1)


async def test_the_next_run_finds_the_lines_of_the_last_one(tmp_path):
    async with opened(tmp_path) as first:
        await first.keep(sized(1, 2))
    async with opened(tmp_path) as second:
        assert (second.events, await lines_of(second)) == (2, [line(1), line(2)])


async def test_the_oldest_lines_on_the_disk_make_room(tmp_path):
    async with opened(tmp_path, most_bytes=50) as backlog:
        gone = [await backlog.keep(sized(n, n + 1)) for n in (0, 2, 4, 6)]
        assert (gone, backlog.size_bytes) == ([0, 0, 1, 2], 50)
        assert await lines_of(backlog) == [line(n) for n in (3, 4, 5, 6, 7)]
        assert await backlog.keep(sized(9, size=60)) == 6
        assert (await lines_of(backlog), backlog.events) == ([], 0)


async def test_lines_have_64_mib_of_the_disk(tmp_path):
    async with opened(tmp_path) as backlog:
        gone = await backlog.keep([(line(0), 1), (line(1), 64 << 20)])
        assert (backlog.most_bytes, gone, await lines_of(backlog)) == (64 << 20, 1, [line(1)])
    assert SHARE_BYTES == 64 << 20


async def test_there_is_no_file_before_a_line_and_then_only_its_owner_reads_it(tmp_path):
    folder = tmp_path / "w"
    async with opened(folder) as backlog:
        assert (folder.exists(), backlog.events) == (False, 0)
        await backlog.keep(sized(1))
        modes = {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}
    assert modes == {"logs.db": 0o600, "logs.db-shm": 0o600, "logs.db-wal": 0o600}


async def test_a_damaged_file_of_lines_is_set_aside(tmp_path):
    (tmp_path / "logs.db").write_bytes(b"this is no database" * 100)
    backlog = Backlog(tmp_path, SystemClock())
    with pytest.raises(OutboxDamaged):
        await backlog.open()
    await backlog.keep(sized(1))
    assert (backlog.damaged, await lines_of(backlog)) == (1, [line(1)])
    assert len(list(tmp_path.glob("logs.corrupt-2*"))) == 1
    await backlog.close()


async def test_the_last_room_of_the_disk_is_not_for_lines(tmp_path):
    async with opened(tmp_path, is_disk_full=lambda: True) as backlog:
        with pytest.raises(OutboxFull):
            await backlog.keep(sized(1))
        assert (backlog.events, list(tmp_path.iterdir())) == (0, [])


# ---------------------------------------------------------------------- the way


async def test_lines_lie_on_the_disk_until_the_server_is_back(tmp_path):
    server = Away()
    async with opened(tmp_path) as backlog, sending(server, backlog) as logs:
        say(logs, server, "a", "b")
        await until(lambda: backlog.events == 2)
        say(logs, server, "c")
        await until(lambda: backlog.events == 3)
        assert server.texts == []
        server.is_back.set()
        say(logs, server, "d")
        await until(lambda: backlog.events == 0)
        await logs.flushed()
        say(logs, server, "e")
        await logs.flushed()
        assert (server.texts, logs.dropped, logs.kept) == (["a", "b", "c", "d", "e"], 0, 0)


async def test_nothing_is_written_while_the_server_takes_lines(tmp_path):
    server = Away()
    server.is_back.set()
    async with opened(tmp_path) as backlog, sending(server, backlog) as logs:
        say(logs, server, "a", "b")
        await logs.flushed()
    assert (server.texts, list(tmp_path.iterdir())) == (["a", "b"], [])


async def test_many_lines_go_in_the_order_in_which_they_were_written(tmp_path):
    server, texts = Away(), [f"{n}" for n in range(2500)]
    async with opened(tmp_path) as backlog, sending(server, backlog) as logs:
        say(logs, server, *texts)
        await until(lambda: backlog.events == 2500)
        tries = server.requests
        server.is_back.set()
        await logs.flushed()
    assert (server.texts, server.requests - tries) == (texts, 3)


def test_a_server_that_does_not_answer_in_ten_seconds_is_away(tmp_path):
    async def scene():
        server = Hanging()
        async with opened(tmp_path) as backlog, sending(server, backlog) as logs:
            say(logs, server, "a")
            await asyncio.sleep(9)
            before = backlog.events
            await asyncio.sleep(2)
            return before, backlog.events

    assert play(scene) == (0, 1)


def test_while_the_server_is_away_a_line_is_on_the_disk_within_a_second(tmp_path):
    async def scene():
        server = Away()
        async with opened(tmp_path) as backlog, sending(server, backlog) as logs:
            say(logs, server, "a")
            await asyncio.sleep(60)
            lines = logs.of(server.command())
            lines.write("t", "stdout", "info", "b")
            await asyncio.sleep(1.1)
            return backlog.events

    assert play(scene) == 2


async def test_lines_on_the_disk_that_are_refused_are_dropped_and_counted(tmp_path):
    server = Away()
    async with opened(tmp_path) as backlog, sending(server, backlog) as logs:
        say(logs, server, "a", "b")
        await until(lambda: backlog.events == 2)
        server.fail("log", refusal(422))
        server.is_back.set()
        await logs.flushed()
        say(logs, server, "c")
        await logs.flushed()
        assert (server.texts, logs.dropped, logs.kept) == (["c"], 2, 0)


async def test_lines_that_make_room_on_the_disk_are_counted(tmp_path):
    server = Away()
    async with opened(tmp_path, most_bytes=3 * 257) as backlog, sending(server, backlog) as logs:
        say(logs, server, "a", "b")
        await until(lambda: backlog.events == 2)
        say(logs, server, "c", "d", "e")
        await until(lambda: logs.dropped == 2)
        server.is_back.set()
        await logs.flushed()
    assert (server.texts, logs.dropped) == (["c", "d", "e"], 2)


async def test_lines_on_a_disk_that_breaks_are_counted_and_the_next_ones_arrive(tmp_path, caplog):
    server = Away()
    async with opened(tmp_path) as backlog, sending(server, backlog) as logs:
        say(logs, server, "a", "b")
        await until(lambda: backlog.events == 2)
        with sqlite3.connect(tmp_path / "logs.db") as other:
            other.execute("UPDATE line SET body = 'x'")
        other.close()
        await until(lambda: logs.damaged == 1)
        say(logs, server, "c")
        server.is_back.set()
        await logs.flushed()
        assert (server.texts, logs.dropped, logs.kept) == (["c"], 2, 0)
    assert "the file of log lines is damaged" in caplog.text


async def test_a_full_disk_leaves_lines_in_memory_and_behind_those_on_the_disk(tmp_path, caplog):
    server, full = Away(), asyncio.Event()
    async with (
        opened(tmp_path, is_disk_full=full.is_set) as backlog,
        sending(server, backlog) as logs,
    ):
        say(logs, server, "a")
        await until(lambda: backlog.events == 1)
        full.set()
        say(logs, server, "b")
        await until(lambda: "the disk takes no log lines" in caplog.text)
        assert logs.kept == 1
        server.is_back.set()
        await logs.flushed()
    assert (server.texts, logs.dropped) == (["a", "b"], 0)


class Failing(Backlog):
    """A disk that fails each of these once."""

    def __init__(self, *args):
        super().__init__(*args)
        self.failures = {"oldest", "drop"}

    def _fail(self, name):
        if name in self.failures:
            self.failures.remove(name)
            raise OutboxFull("input/output error")

    async def oldest(self, most, most_bytes):
        self._fail("oldest")
        return await super().oldest(most, most_bytes)

    async def drop(self, last):
        self._fail("drop")
        await super().drop(last)


async def test_lines_that_the_disk_does_not_let_go_of_are_sent_again(tmp_path):
    server, backlog = Away(), Failing(tmp_path, SystemClock())
    async with sending(server, backlog) as logs:
        say(logs, server, "a", "b")
        await until(lambda: backlog.events == 2)
        server.is_back.set()
        await logs.flushed()
        assert (server.texts, logs.dropped, logs.kept) == (["a", "b", "a", "b"], 0, 0)
    await backlog.close()


async def test_lines_go_to_the_disk_when_it_has_room_again(tmp_path, caplog):
    server, full = Away(), asyncio.Event()
    full.set()
    async with (
        opened(tmp_path, is_disk_full=full.is_set) as backlog,
        sending(server, backlog) as logs,
    ):
        say(logs, server, "a", "b")
        await until(lambda: "the disk takes no log lines" in caplog.text)
        full.clear()
        await until(lambda: backlog.events == 2)
    assert server.texts == []


def test_a_drained_worker_leaves_its_lines_to_the_next_run_which_sends_them(tmp_path):
    async def talk(ctx):
        ctx.log("a")
        ctx.log("b")

    async def drained():
        server = Away()
        server.offer(server.command())
        async with opened(tmp_path) as backlog:
            async with Stage(server, Scripted(talk), backlog=backlog) as stage:
                await server.finals()
                stage.worker.drain()
                await stage.task
            return server.texts, backlog.events

    async def started():
        server = Away()
        server.is_back.set()
        async with opened(tmp_path) as backlog, Stage(server, backlog=backlog) as stage:
            await server.until(lambda: len(server.lines) == 2)
            await stage.worker.logs.flushed()
            return server.texts, backlog.events, stage.worker.logs.dropped

    assert (play(drained), play(started)) == (([], 2), (["a", "b"], 0, 0))


async def test_lines_that_nobody_answered_for_are_on_the_disk_at_the_end(tmp_path):
    server = Hanging()
    async with opened(tmp_path) as backlog:
        async with sending(server, backlog) as logs:
            say(logs, server, "a")
            await server.asked.wait()
            say(logs, server, "b")
        assert [one.text for one in await lines_of(backlog)] == ["a", "b"]
