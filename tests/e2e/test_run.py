"""`noetl run` as a process of its own: signals, a kill, a terminal, the time it takes."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import perf_counter

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
# Steps open a pipe of the test in /tmp, which children in a sandbox have for themselves.
ENV = {"PATH": f"{BIN}:/usr/bin:/bin", "LANG": "C.UTF-8", "NOETL_PYTHON_SANDBOX": "off"}
# A test run in the background ignores SIGINT, and so would its children.
HEEDING = (
    "import os, signal, sys;"
    "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: t, path: t/main}\n"
# The second step tells that it runs by opening the pipe, and ends when the test closes it.
HELD = (
    HEAD
    + """\
workflow:
  - step: first
    tool: {kind: python, code: 'result = {"n": 1}'}
    next: {arcs: [{step: second}]}
  - step: second
    tool:
      kind: python
      input: {n: "{{ first.n }}", pipe: "{{ workload.pipe }}"}
      code: |
        open(pipe).read()
        result = {"n": n + 1}
"""
)

MARK = "60.0417"  # seconds that nobody else sleeps
SLOW = HEAD + f"workflow: [{{step: start, tool: {{kind: shell, command: sleep {MARK}}}}}]\n"
TERMINAL = {"playbook.completed", "playbook.failed", "playbook.cancelled"}
# Sockets of the network are refused to the whole process; those of its own loop are not.
WATCHED = """\
import socket, sys
def hook(event, given):
    if event == "socket.__new__" and given[1] not in (-1, socket.AF_UNIX):
        raise SystemExit(f"a socket of the family {given[1]}")
    if event in ("socket.connect", "socket.bind", "sqlite3.connect"):
        raise SystemExit(event)
sys.addaudithook(hook)
sys.argv = sys.argv[1:]
from noetl.cli.app import main
sys.exit(main())
"""


def commands():
    """The command lines of all processes."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            found.append(file.read_bytes().decode("utf-8", "replace"))
    return found


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "held.yaml").write_text(HELD)
    return tmp_path


def lay(path):
    """A new pipe at this place: whoever still reads the one before is not a reader of it."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    path.chmod(0o666)
    return path


@pytest.fixture
def pipe(tmp_path_factory):
    # Children have a user of their own: the pipe lies where everybody may open it.
    place = tmp_path_factory.mktemp("pipes")
    for parent in (place, *place.parents[:-2]):
        parent.chmod(parent.stat().st_mode | 0o055)
    return lay(place / "pipe")


def begin(folder, *words):
    return subprocess.Popen(
        [sys.executable, "-c", HEEDING, BIN / "noetl", "run", *words],
        cwd=folder, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def types_of(log):
    return [json.loads(line)["event_type"] for line in log.read_text().splitlines()]


def test_an_example_runs_from_start_to_end(folder):
    before = perf_counter()
    done = subprocess.run(
        [BIN / "noetl", "run", "examples/hello.yaml", "--set", "name=Ada", "-o", "json"],
        cwd=folder, env=ENV, capture_output=True, check=True,
    )  # fmt: skip
    taken = perf_counter() - before

    assert json.loads(done.stdout)["result"] == {"message": "Hello, Ada!"}
    # The target of 1 s is measured on a machine that does nothing else.
    assert taken < 10, f"{taken:.2f} s"


def test_a_run_opens_no_connection(folder):
    words = ["noetl", "run", "examples/hello.yaml", "-o", "json"]
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *words],
        cwd=folder, env=ENV, capture_output=True, check=True,
    )  # fmt: skip

    assert json.loads(done.stdout)["status"] == "COMPLETED"


def test_a_run_that_takes_too_long_ends_with_its_child(folder):
    (folder / "slow.yaml").write_text(SLOW)
    words = ("slow.yaml", "--timeout", "1", "--events", "log.jsonl", "-o", "json", "-q")
    before = perf_counter()
    with begin(folder, *words) as process:
        out, _ = process.communicate(timeout=30)
    taken = perf_counter() - before

    assert (process.returncode, json.loads(out)["status"]) == (8, "CANCELLED")
    ends = [name for name in types_of(folder / "log.jsonl") if name in TERMINAL]
    assert (ends, types_of(folder / "log.jsonl")[-1]) == (ends[:1], ends[0])
    assert [word for word in commands() if MARK in word] == []
    # The target of 3 s is that of a machine that does nothing else.
    assert taken < 15, f"{taken:.2f} s"


def test_an_interrupt_cancels_the_run_and_closes_its_log(folder, pipe):
    words = ("held.yaml", "--set", f"pipe={pipe}", "--events", "log.jsonl", "-o", "json", "-q")
    with begin(folder, *words) as process, pipe.open("w"):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)

    assert (process.returncode, err) == (130, b"")
    shown = json.loads(out)
    assert (shown["status"], shown["steps"]["second"]["status"]) == ("CANCELLED", "CANCELLED")
    assert types_of(folder / "log.jsonl")[-1] == "playbook.cancelled"


def test_a_termination_ends_with_143(folder, pipe):
    with begin(folder, "held.yaml", "--set", f"pipe={pipe}", "-q") as process, pipe.open("w"):
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)

    assert process.returncode == 143


def test_a_killed_run_goes_on_where_it_was_and_repeats_nothing(folder, pipe):
    words = ("held.yaml", "--set", f"pipe={pipe}", "--events", "log.jsonl", "-q")
    with begin(folder, *words) as process, pipe.open("w"):
        process.kill()
        process.communicate(timeout=30)
    log = folder / "log.jsonl"
    assert types_of(log).count("step.exit") == 1
    with log.open("a") as file:
        file.write('{"torn":')
    lay(pipe)  # the killed run's child may not have ended yet

    with (
        begin(folder, "--resume", "log.jsonl", "-o", "json", "-q") as process,
        pipe.open("w") as held,
    ):
        held.close()
        out, err = process.communicate(timeout=30)

    assert (process.returncode, err) == (0, b"")
    shown = json.loads(out)
    assert shown["result"] == {"n": 2}
    assert {name: step["attempts"] for name, step in shown["steps"].items()} == {
        "first": 1, "second": 2,
    }  # fmt: skip
    assert types_of(log).count("command.lost") == 1


def test_a_terminal_shows_the_live_tree(folder):
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [BIN / "noetl", "run", "examples/branches.yaml"],
        cwd=folder, env=ENV | {"TERM": "xterm"}, stdin=theirs, stdout=subprocess.PIPE,
        stderr=theirs, check=True,
    )  # fmt: skip
    shown = os.read(ours, 1 << 20).decode()
    os.close(ours)
    os.close(theirs)

    assert done.stdout.startswith(b"COMPLETED ")
    assert "✔ start" in shown
    assert "⋯ reject" in shown
    assert "\x1b[" in shown
