"""The example `examples/subscriptions` on an embedded stack, typed as its page says."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep  # noqa: TID251 - a deadline of the test itself

import pytest

from tests.e2e.test_up import BIN, environ, record

EXAMPLE = Path(__file__).parents[2] / "examples" / "subscriptions"
PORT = "8099"
FIRST_PORT = 21_000
"""Below those that the system gives to whoever asks for any: nobody takes it meanwhile."""
LATE_S = 60.0
COUNT = 60


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    yield folder
    subprocess.run(
        [BIN / "noetl", "down", "--home", folder, "--wipe", "--yes"],
        env=environ(tmp_path), capture_output=True, check=False,
    )  # fmt: skip


@pytest.fixture
def noetl(home, tmp_path):
    def run(*words):
        done = subprocess.run(
            [BIN / "noetl", *words], cwd=tmp_path, capture_output=True, text=True, check=False,
            env={**environ(tmp_path), "NOETL_HOME": str(home)}, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    return run


@pytest.fixture
def port(tmp_path):
    """A copy of the example whose store is at a port of its own."""
    shutil.copytree(EXAMPLE, tmp_path / "example")
    number = next(
        number for number in range(FIRST_PORT + os.getpid() % 5000, 32_000) if _free(number)
    )
    for file in (tmp_path / "example").glob("*.yaml"):
        file.write_text(file.read_text().replace(PORT, str(number)))
    return number


def _free(number):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", number)) != 0


@contextmanager
def store(port):
    """The store of the example, while the block runs."""
    words = [sys.executable, str(EXAMPLE / "store.py"), str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline(), f"the store does not listen at {port}"
            yield
        finally:
            process.terminate()


def readings(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readings", timeout=10) as answer:
        return json.load(answer)


def until(is_so, what):
    deadline = monotonic() + LATE_S
    while not (found := is_so()):
        assert monotonic() < deadline, what
        sleep(0.2)
    return found


def listener(home):
    return next((part for part in record(home).parts if "listener" in part.name), None)


@pytest.mark.timeout(300)
def test_the_example_listens_by_itself_and_an_outage_costs_time_alone(noetl, home, port, tmp_path):
    noetl("up", "--detach", "--port", "auto", "--pools", "shared=4,system=1")
    url = home / "secrets" / "nats.url"
    noetl("credentials", "put", "meters_nats", "--type", "nats", "--from-file", str(url))
    noetl("register", str(tmp_path / "example"))
    send = [sys.executable, str(EXAMPLE / "send.py"), str(url), str(COUNT)]
    subprocess.run(send, check=True, capture_output=True)
    path = "examples/subscriptions/readings"
    with store(port):
        noetl("subscriptions", "register", path)
        noetl("subscriptions", "activate", path)
        until(lambda: listener(home), "a listener is started")
        until(lambda: len(readings(port)) >= COUNT, "every reading is stored")
        found = readings(port)
        assert sorted(one["n"] for one in found) == list(range(1, COUNT + 1))
        assert sorted(one["n"] for one in found if one.get("alarm")) == [3, 8]

        before = listener(home).pid
        os.kill(before, signal.SIGKILL)
        until(lambda: listener(home).pid not in {0, before}, "it is started again")

    def told():
        return json.loads(noetl("subscriptions", "get", path, "-o", "json"))

    until(lambda: told()["circuit"].get("store", {}).get("phase") == "open", "the store is away")
    subprocess.run(send, check=True, capture_output=True)
    # More, when the listener died before it acknowledged: such a reading is delivered once more,
    # waits as any other does, and starts nothing new.
    until(lambda: told()["spool"]["items"] >= COUNT, "they wait")
    with store(port):
        until(lambda: len(readings(port)) >= COUNT, "they are stored afterwards")
        found = readings(port)
        assert Counter(one["n"] for one in found) == Counter(range(1, COUNT + 1))
        for meter in {one["meter"] for one in found}:
            numbers = [one["n"] for one in found if one["meter"] == meter]
            assert numbers == sorted(numbers), meter
        noetl("subscriptions", "deactivate", path, "--yes")
        until(lambda: listener(home) is None, "nobody listens any more")
    noetl("down")
