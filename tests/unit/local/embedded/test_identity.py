import os
import signal
import subprocess
import sys

import pytest

from noetl.local.embedded.identity import Identity, await_end, identity
from noetl.local.embedded.record import Part, Stack, read, write
from noetl.local.embedded.stopping import stop_parts

SLEEPER = [sys.executable, "-S", "-c", "import signal; print(1, flush=True); signal.pause()"]
HEEDLESS = """
import signal
signal.signal(15, signal.SIG_IGN)
print(1, flush=True)
while True: signal.pause()
"""
STUBBORN = [sys.executable, "-S", "-c", HEEDLESS]


@pytest.fixture
def child():
    started = []

    def start(words=SLEEPER):
        process = subprocess.Popen(words, stdout=subprocess.PIPE)
        process.stdout.readline()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def stack(*parts, pid=1, started="0"):
    return Stack(
        version="1",
        home="/h",
        state="ready",
        url="http://127.0.0.1:1",
        pid=pid,
        started=started,
        started_at="2026-01-01T00:00:00.000000Z",
        database_url_file="/h/d",
        nats_url="",
        token_file="/h/t",  # noqa: S106 - the name of a file
        parts=parts,
    )


def part(process, name="one", stage=0):
    seen = identity(process.pid)
    return Part(name=name, stage=stage, pid=seen.pid, started=seen.started)


def test_a_process_is_known_by_its_number_and_its_start():
    mine = identity(os.getpid())

    assert mine.is_alive
    assert not Identity(mine.pid, "1").is_alive
    assert identity(2**22 + 1) is None


def test_a_process_that_nobody_has_waited_for_is_gone(child):
    process = child()
    seen = identity(process.pid)
    process.kill()

    assert await_end([seen], 10) == []
    assert identity(process.pid) is None


def test_a_number_that_is_used_again_gets_no_signal(child):
    process = child()
    Identity(process.pid, "1").send(signal.SIGKILL)

    assert process.poll() is None
    assert await_end([identity(process.pid)], 0.01) == [identity(process.pid)]


def test_a_record_is_read_as_it_was_written_by_its_owner_alone(tmp_path):
    file = tmp_path / "stack.json"
    kept = stack(Part(name="b", stage=1)).with_part(Part(name="a", stage=0, pid=3))
    write(file, kept)

    assert read(file) == kept
    assert [one.name for one in kept.parts] == ["a", "b"]
    assert kept.with_part(Part(name="a", stage=0, pid=4)).parts[0].pid == 4
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"parts": [{"x": 1}]}'])
def test_a_record_that_makes_no_sense_is_none(tmp_path, text):
    (tmp_path / "stack.json").write_text(text)

    assert read(tmp_path / "stack.json") is None
    assert read(tmp_path / "nowhere.json") is None


def test_what_a_record_names_is_stopped_the_last_stage_first(child):
    first, second = child(), child()
    named = stack(part(first, "low", 0), part(second, "high", 1))

    assert [one.name for one in stop_parts(named)] == ["low", "high"]
    assert (first.wait(5), second.wait(5)) == (-signal.SIGTERM, -signal.SIGTERM)
    assert stop_parts(named) == []


def test_what_does_not_end_is_ended(child):
    process = child(STUBBORN)

    stop_parts(stack(part(process)), grace_s=0.1)

    assert process.wait(5) == -signal.SIGKILL
