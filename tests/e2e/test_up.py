"""The embedded stack as a person starts it: real processes in a folder of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from time import monotonic  # noqa: TID251 - a deadline of the test itself

import pytest

from noetl.local.embedded.identity import Identity, await_end, identity
from noetl.local.embedded.record import read

BIN = Path(sys.executable).parent
HEALED_S = 30.0
LOOPBACK = "0100007F"
LISTENING = "0A"


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    yield folder
    # Whatever a failed test left behind ends here, each process by its own number.
    subprocess.run(
        [BIN / "noetl", "down", "--home", folder, "--wipe", "--yes"],
        env=environ(tmp_path), capture_output=True, check=False,
    )  # fmt: skip


def environ(folder):
    return {
        "PATH": f"{BIN}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }


@pytest.fixture
def noetl(home, tmp_path):
    def run(*words):
        return subprocess.run(
            [BIN / "noetl", *words, "--home", home],
            cwd=tmp_path, env=environ(tmp_path), capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


def record(home):
    return read(home / "run" / "stack.json")


def healthy(noetl, restarts):
    """The parts of a stack as soon as all are well and some were started again."""
    deadline = monotonic() + HEALED_S
    while monotonic() < deadline:
        done = noetl("status", "-o", "json")
        parts = {part["name"]: part for part in json.loads(done.stdout)["parts"]}
        known = {name: part["restarts"] for name, part in parts.items() if part["restarts"]}
        if done.returncode == 0 and known == restarts:
            return parts
    raise AssertionError(f"not healed: {done.stdout}")


def bound_to_others(ports):
    """Ports that are listened on at another address than loopback."""
    rows = [
        row.split() for row in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    ]
    local = [row[1].split(":") for row in rows if row[3] == LISTENING]
    return [at for at, port in local if int(port, 16) in ports and at != LOOPBACK]


def test_a_stack_comes_up_heals_and_goes_down(noetl, home, tmp_path):
    started = noetl(
        "up", "--detach", "--port", "auto", "--pools", "shared=2,system=1", "-o", "json"
    )
    assert started.returncode == 0, started.stderr
    told = json.loads(started.stdout)
    parts = healthy(noetl, {})
    assert sorted(parts) == [
        "gateway", "nats", "postgres", "server", "worker-shared", "worker-system",
    ]  # fmt: skip
    assert bound_to_others({part["port"] for part in parts.values()}) == []
    assert parts["worker-shared"]["queue"] == 0

    secret = [*(home / "secrets").iterdir(), home / "run" / "stack.json", *home.glob("logs/*")]
    assert {oct(path.stat().st_mode & 0o777) for path in secret} == {"0o600"}
    assert {
        oct(path.stat().st_mode & 0o777) for path in (home, *home.iterdir()) if path.is_dir()
    } == {"0o700"}
    config = (tmp_path / "config" / "noetl" / "config.toml").read_text()
    assert 'current = "embedded"' in config
    assert f'server_url = "{told["url"]}"' in config
    assert f'gateway_url = "{told["gateway_url"]}"' in config

    again = noetl("up")
    assert again.returncode == 0
    assert again.stdout.startswith(f"{told['gateway_url']}/login?ticket=")
    assert again.stdout.strip() != told["login_url"]

    for name in ("server", "worker-shared"):
        os.kill(parts[name]["pid"], signal.SIGKILL)
    healed = healthy(noetl, {"server": 1, "worker-shared": 1})
    assert healed["nats"]["pid"] == parts["nats"]["pid"]
    said = noetl("logs", "up", "--tail", "50").stdout
    assert "[up] server ended with signal SIGKILL. It starts again in 1 s.\n" in said
    assert noetl("logs", "server", "--tail", "1").stdout.startswith("[server] ")

    last = record(home)
    down = noetl("down")
    assert (down.returncode, down.stdout) == (0, "")
    alive = [last.supervisor, *(part.identity for part in last.parts)]
    assert [process for process in alive if process.is_alive] == []
    assert record(home) is None
    assert noetl("status").returncode == 10


def test_ctrl_c_and_the_death_of_the_supervisor_leave_nothing_behind(noetl, home, tmp_path):
    words = [BIN / "noetl", "up", "--home", home, "--port", "auto", "--pools", "", "--no-gateway"]
    # A test run in the background ignores SIGINT, and so would its children.
    heeding = (
        "import os, signal, sys;"
        "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", heeding, *words],
        cwd=tmp_path, env=environ(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout.readline().endswith(b"/api/health\n")
        first = record(home)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert b"[up] stopping server\n" in err
    assert [part.name for part in first.parts if part.identity.is_alive] == []

    assert noetl("up", "--detach", "--port", "auto", "--pools", "").returncode == 0
    second = record(home)
    second.supervisor.send(signal.SIGKILL)
    assert await_end([part.identity for part in second.parts], 30) == []
    assert noetl("down").returncode == 0


def test_what_a_stack_that_was_killed_left_is_stopped_by_the_next(noetl, home):
    with (
        socket.socket() as taken,
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as left,
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as foreign,
    ):
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        (home / "run").mkdir(parents=True, mode=0o700)
        dead = Identity(2**22 + 1, "1")
        parts = [
            {"name": "left", "stage": 0, "pid": left.pid, "started": identity(left.pid).started},
            {"name": "foreign", "stage": 0, "pid": foreign.pid, "started": "1"},
        ]
        names = ("version", "home", "state", "url", "started_at", "database_url_file")
        kept = dict.fromkeys((*names, "nats_url", "token_file"), "")
        kept |= {"pid": dead.pid, "started": dead.started, "parts": parts}
        (home / "run" / "stack.json").write_text(json.dumps(kept))

        refused = noetl("up", "--server-port", str(taken.getsockname()[1]))

        assert refused.returncode == 1
        assert f"error[port_in_use]: Port {taken.getsockname()[1]} of 127.0.0.1" in refused.stderr
        assert f"by process {os.getpid()}" in refused.stderr
        assert left.wait(10) == -signal.SIGTERM
        assert foreign.poll() is None
        foreign.kill()
