"""Lines of tasks: bounded, batched, in order."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from noetl.api.http import NoAnswer
from noetl.clock import LoopClock
from noetl.worker import logs as of_logs
from noetl.worker.logs import Logs
from tests.unit.worker.fakes import START, FakeServer, play, refusal


@asynccontextmanager
async def sending(server):
    logs = Logs(server, LoopClock(asyncio.get_running_loop(), START))
    task = asyncio.create_task(logs.run())
    try:
        yield logs
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def written(*texts, count=1):
    async def scene():
        server = FakeServer()
        async with sending(server) as logs:
            lines = logs.of(server.command())
            for _ in range(count):
                for text in texts:
                    lines.write("t", "stdout", "info", text)
            told = lines.close()
            await logs.flushed()
        return server.lines, told

    return play(scene)


def test_lines_carry_where_they_come_from_and_their_number():
    lines, told = written("one", "two")
    assert [(line.n, line.text, line.stream, line.task, line.step) for line in lines] == [
        (0, "one", "stdout", "t", "s"), (1, "two", "stdout", "t", "s"),
    ]  # fmt: skip
    assert lines[0].ts == "2026-01-01T00:00:00.000000Z"
    assert told == {"lines": 2, "bytes": 6, "truncated": False, "tail": "one\ntwo"}


def test_the_lines_of_a_command_that_has_ended_wait_for_nobody():
    async def scene():
        server = FakeServer()
        async with sending(server) as logs:
            lines = logs.of(server.command())
            lines.write("t", "stdout", "info", "one")
            await asyncio.sleep(0.5)
            before = len(server.lines)
            lines.close()
            await asyncio.sleep(0.01)
            return before, len(server.lines)

    assert play(scene) == (0, 1)


def test_no_call_has_more_lines_than_the_server_takes():
    async def scene():
        server = FakeServer()
        sizes = []
        take = server.log

        async def counting(body):
            sizes.append(len(body.entries))
            await take(body)

        server.log = counting
        async with sending(server) as logs:
            lines = logs.of(server.command())
            for _ in range(2_500):
                lines.write("t", "stdout", "info", "")
            lines.close()
            await logs.flushed()
        return sizes

    assert play(scene) == [1_000, 1_000, 500]


def test_a_command_without_lines_tells_nothing():
    assert written() == ([], None)


def test_a_long_line_is_cut_and_marked():
    lines, told = written("x" * 20_000)
    assert lines[0].text == "x" * 8192 + " … (cut)"
    assert len(told["tail"].encode()) <= 4096


def test_text_that_is_no_unicode_is_sent_all_the_same():
    lines, _ = written("a\ud800b")
    assert lines[0].text == "a?b"


def test_of_too_many_lines_the_head_the_tail_and_one_marker_survive():
    count = 12 << 10
    lines, told = written("y" * 1024, count=count)
    markers = [line for line in lines if "left out" in line.text]
    left_out = count - (len(lines) - 1)
    assert [(one.text, one.level) for one in markers] == [
        (f"… {left_out} lines, {left_out << 10} bytes left out …", "warning")
    ]
    assert [line.n for line in lines] == list(range(len(lines)))
    assert sum(len(line.text) for line in lines if line is not markers[0]) <= 10 << 20
    assert len(lines) - 1 - lines.index(markers[0]) == 1024
    assert (told["lines"], told["bytes"], told["truncated"]) == (count, count << 10, True)


def test_a_few_lines_wait_a_second_and_many_do_not():
    async def scene():
        server, when = FakeServer(), []
        loop = asyncio.get_running_loop()
        async with sending(server) as logs:
            lines = logs.of(server.command())
            lines.write("", "log", "info", "few")
            await server.until(lambda: len(server.lines) == 1)
            when.append(loop.time())
            for _ in range(70):
                lines.write("", "log", "info", "z" * 1024)
            await server.until(lambda: len(server.lines) == 71)
            when.append(loop.time())
        return when

    assert play(scene) == [pytest.approx(1.0), pytest.approx(1.0, abs=0.01)]


def test_lines_survive_a_server_that_is_away_and_not_one_that_refuses_them():
    async def scene():
        server = FakeServer()
        server.fail("log", NoAnswer("away"), refusal(503), refusal(422))
        async with sending(server) as logs:
            lines = logs.of(server.command())
            lines.write("", "log", "info", "refused")
            await logs.flushed()
            lines.write("", "log", "info", "kept")
            await server.until(lambda: len(server.lines) == 1)
        return [line.text for line in server.lines], logs.dropped

    assert play(scene) == (["kept"], 1)


def test_the_oldest_lines_make_room_while_the_server_is_away():
    async def scene():
        server = FakeServer()
        logs = Logs(server, LoopClock(asyncio.get_running_loop(), START))
        each = of_logs.LINE_BYTES
        for _ in range(8):
            lines = logs.of(server.command())
            for _ in range(1100):
                lines.write("", "log", "info", "w" * each)
            lines.close()
        return logs.dropped

    assert play(scene) > 0
