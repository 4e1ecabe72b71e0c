"""The sandbox against a table of ways out, in real children at every level of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from noetl.telemetry.redact import Redactor
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.interpreter import child
from noetl.tools.interpreter.pool import Interpreters
from noetl.tools.interpreter.process import Processes
from noetl.tools.interpreter.sandbox import Sandbox
from noetl.tools.python import PythonTool
from noetl.tools.shell import ShellTool
from tests.security.escapes import ATTEMPTS, COSTLY, NOT_STOPPED

ROOT = Path(__file__).parents[2]
LEVELS = [
    level
    for level, path in (("namespaces", None), ("user", "/nowhere"))
    if Sandbox.detect(path=path).level == level
]
WALLS = {
    "standard": {},
    "offline": {"network": "off"},
    "strict": {"sandbox": "strict"},
}
# Runs attempts, each in a process of its own, and tells what they got.
HARNESS = """
import json, os, select
def main(attempts, w):
    found, parent = {}, os.getppid()
    for name, code in attempts:
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            place = f"{os.getcwd()}/{os.getpid()}"
            os.mkdir(place)
            os.chdir(place)
            names = {"w": w, "PARENT": parent, "got": ""}
            try:
                exec(code, names)
            except BaseException as fault:
                names["got"] = ""
            os.write(theirs, json.dumps(str(names["got"] or ""))[:60000].encode())
            os._exit(0)
        os.close(theirs)
        said = b""
        while select.select([ours], [], [], 5)[0] and (chunk := os.read(ours, 65536)):
            said += chunk
        os.close(ours)
        try:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        except OSError:
            pass
        try:
            found[name] = json.loads(said or b'""')
        except ValueError:
            found[name] = said.decode("latin-1")
    return found
"""
# Stands for the worker: what it holds must not be reached.
VICTIM = """
import ctypes, json, os, signal, socket, sys, threading
about = json.loads(sys.argv[1])
canary = os.environ["NOETL_INTERNAL_TOKEN"].encode()
held = ctypes.create_string_buffer(canary)
kept = open(about["token"])
os.chdir(about["home"])
signal.signal(signal.SIGURG, lambda *_: open(about["moved"], "w").close())
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
shm = libc.shmget(about["shm_key"], 64, 0o1000 | 0o666)
ctypes.memmove(libc.shmat(shm, None, 0), canary + bytes(1), len(canary) + 1)
def serve(listener):
    while True:
        peer, _ = listener.accept()
        peer.sendall(canary)
        peer.close()
places = ["\\0" + about["abstract"], about["socket"], about["tmp_socket"], ("127.0.0.1", 0)]
for place in places:
    listener = socket.socket(socket.AF_INET if isinstance(place, tuple) else socket.AF_UNIX)
    listener.bind(place)
    listener.listen(64)
    if isinstance(place, str) and place[0] == "/":
        os.chmod(place, 0o777)
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
print(json.dumps({"address": ctypes.addressof(held), "fd": kept.fileno(),
                  "port": listener.getsockname()[1]}), flush=True)
sys.stdin.read()
libc.shmctl(shm, 0, None)
"""


class World:
    """Everything that code must not reach, with one canary in all of it."""

    def __init__(self, level):
        self.canary = f"canary-{secrets.token_hex(12)}"
        (ROOT / ".cache").mkdir(exist_ok=True)
        self._folders = [
            Path(tempfile.mkdtemp(prefix="noetl-canary-", dir=where))
            for where in (ROOT / ".cache", None, "/var/tmp")  # noqa: S108 - what others leave there
        ]
        self.home, tmp, var_tmp = self._folders
        for folder in (tmp, var_tmp):
            folder.chmod(0o755)
            (folder / "open").write_text(self.canary)
        # A cover hides what everybody may read; without one, the rights of files do.
        self.home.chmod(0o755 if level == "namespaces" else 0o700)
        (self.home / "precious").mkdir()
        for name in ("token", "outbox", "precious/file"):
            (self.home / name).write_text(self.canary)
        self.shm = Path("/dev/shm", f"noetl-canary-{secrets.token_hex(4)}")  # noqa: S108 - as above
        self.shm.write_text(self.canary)
        self.shm.chmod(0o644)
        self.about = {
            "home": str(self.home), "token": str(self.home / "token"), "key": self.canary,
            "outbox": str(self.home / "outbox"), "precious": str(self.home / "precious"),
            "socket": str(self.home / "db.sock"), "tmp_socket": str(tmp / "db.sock"),
            "tmp": str(tmp / "open"), "var_tmp": str(var_tmp / "open"), "shm": str(self.shm),
            "abstract": f"noetl-{secrets.token_hex(6)}", "moved": str(self.home / "moved"),
            "shm_key": secrets.randbits(30), "user_home": str(Path.home()),
            "packages": str(Path(pytest.__file__).parents[1]), "child": child.__file__,
            "cache": str(Path(child.__file__).parent / "__pycache__"),
            "is_inner": level == "namespaces",
        }  # fmt: skip
        self._open = os.open(self.home / "token", os.O_RDONLY)
        os.set_inheritable(self._open, True)  # noqa: FBT003 - the signature of os
        self._key = _keyring("add_key", b"user", self.canary.encode(), self.canary.encode())
        self._child = subprocess.Popen(
            [sys.executable, "-c", VICTIM, json.dumps(self.about), self.canary],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            env={"NOETL_INTERNAL_TOKEN": self.canary, "PATH": os.defpath, "HOME": "/"},
        )  # fmt: skip
        self.about |= json.loads(self._child.stdout.readline()) | {"pid": self._child.pid}

    def effects(self):
        """What the attempts changed, by the name of the effect."""
        is_alive = self._child.poll() is None
        return {
            "alive": not is_alive,
            "unmoved": Path(self.about["moved"]).exists(),
            "nice": is_alive and os.getpriority(os.PRIO_PROCESS, self._child.pid) != 0,
            "precious": not (self.home / "precious" / "file").exists(),
        }

    def end(self):
        """Take it all away."""
        os.close(self._open)
        if self._key is not None:
            _keyring("keyctl", 3, self._key)
        with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
            self._child.communicate(timeout=5)
        self._child.kill()
        self._child.wait()
        self.shm.unlink(missing_ok=True)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


def _keyring(call, *arguments):
    """Ask the kernel's keyring of this process; None where it has none."""
    numbers = {
        "x86_64": {"add_key": 248, "keyctl": 250},
        "aarch64": {"add_key": 217, "keyctl": 219},
    }
    number = numbers.get(os.uname().machine, {}).get(call)
    if number is None:
        return None
    if call == "add_key":
        kind, name, payload = arguments
        arguments = (kind, name, payload, ctypes.c_size_t(len(payload)), -3)
    found = ctypes.CDLL(None).syscall(number, *arguments)
    return found if found >= 0 else None


class Bench:
    """Runs tools at one level."""

    def __init__(self, level, *hidden, has_users=True):
        mode = "off" if level == "rlimits" else "prefer"
        path = None if level == "namespaces" else "/nowhere"
        self.sandbox = Sandbox.detect(mode, hidden=hidden, path=path)
        assert self.sandbox.level == level
        self.sandbox.has_users &= has_users
        self.environ = {"PATH": os.defpath, "LANG": "C.UTF-8"}
        self.pool = Interpreters(self.sandbox, self.environ, spares=0)
        self.lines = []
        self.has_told = asyncio.Event()

    async def python(self, code, *, within=30, domain="d", values=None, **config):
        tool = PythonTool(self.pool)
        return await self._run(tool, within, domain, values or {}, code=code, **config)

    async def shell(self, *, within=20, **config):
        tool = ShellTool(Processes(self.sandbox, self.environ))
        return await self._run(tool, within, "d", {}, **config)

    async def _run(self, tool, within, domain, values, **config):
        ctx = ToolContext(
            execution_id="7", step="s", command_id="c", idempotency_key="k", domain=domain,
            deadline=asyncio.get_running_loop().time() + within, input=values,
            redactor=Redactor([]), on_log=self._hear,
        )  # fmt: skip
        return await run_tool(tool, {"kind": tool.kind, **config}, ctx)

    def _hear(self, *line):
        self.lines.append(line)
        self.has_told.set()


def play(level, scene, *hidden, has_users=True):
    """Act a scene at a level."""

    async def acted():
        bench = Bench(level, *hidden, has_users=has_users)
        try:
            return await scene(bench)
        finally:
            await bench.pool.close()

    return asyncio.run(acted())


async def _tried(bench, world, attempts=ATTEMPTS):
    """What every attempt got, by its name; None: its walls do not exist at this level."""
    other = asyncio.create_task(
        bench.python(
            "import time\nopen('open', 'w').write(text)\nlog('up')\ntime.sleep(60)",
            values={"text": world.canary}, domain="other", within=60,
        )
    )  # fmt: skip
    try:
        await bench.has_told.wait()
        places = bench.pool._root.glob("*/open")  # noqa: SLF001 - what a neighbour might guess
        w = world.about | {"other": str(next(places))}
        got = {}
        for walls, config in WALLS.items():
            chosen = [(one.name, one.code) for one in attempts if one.walls == walls]
            if not chosen:
                continue
            outcome = await bench.python(
                HARNESS, values={"attempts": chosen, "w": w}, limits={"memory_mb": 2048}, **config
            )
            if outcome.error is not None and outcome.error["code"] == "sandbox_missing":
                got |= dict.fromkeys([name for name, _ in chosen], None)
            else:
                assert outcome.error is None, outcome.error
                got |= outcome.data
        return got
    finally:
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)


def _reached(level, *, has_users=True):
    """The attempts that succeed at a level."""
    world = World(level)
    try:
        got = play(level, lambda bench: _tried(bench, world), world.home, has_users=has_users)
        changed = world.effects()
    finally:
        world.end()
    assert set(got) == {one.name for one in ATTEMPTS}
    out = []
    for one in ATTEMPTS:
        said = got[one.name] or ""
        if (changed | {"canary": world.canary in said, "any": bool(said)})[one.by]:
            out.append(one.name)
    return out


@pytest.mark.skipif(not LEVELS, reason="this machine has neither bubblewrap nor root")
@pytest.mark.parametrize("level", LEVELS)
def test_no_way_out_is_open(level):
    assert sorted(_reached(level)) == sorted(NOT_STOPPED[level])


@pytest.mark.skipif("namespaces" not in LEVELS, reason="this machine has no bubblewrap")
def test_no_way_out_is_open_for_children_of_our_own_user():
    """Where others cannot read our Python, root included, children run as ourselves."""
    assert _reached("namespaces", has_users=False) == []


# Attempts that read alone, and what they reach where no wall stands: they do what they say.
OPEN_WITHOUT_WALLS = (
    "the token file", "the outbox", "all below the home of the worker",
    "the token through /proc/self/root", "the token through a symbolic link",
    "the token through a descriptor of the root", "the token from above the work folder",
    "the work folder of another playbook", "files of others in /tmp", "files of others in /var/tmp",
    "files of others in /dev/shm", "the words of the worker",
    "a socket of a database in the worker's home", "a socket of a database in /tmp",
    "shared memory of the worker",
)  # fmt: skip


def test_the_attempts_succeed_where_there_are_no_walls():
    world = World("rlimits")
    chosen = [one for one in ATTEMPTS if one.name in OPEN_WITHOUT_WALLS]
    try:
        got = play("rlimits", lambda bench: _tried(bench, world, chosen), world.home)
    finally:
        world.end()
    assert {name for name, said in got.items() if world.canary in said} == set(OPEN_WITHOUT_WALLS)


def test_the_table_is_as_large_as_it_must_be():
    names = [one.name for one in ATTEMPTS] + list(COSTLY)
    assert len(names) == len(set(names)) >= 100
    assert NOT_STOPPED["namespaces"] == {}
    assert set(NOT_STOPPED["user"]) <= set(names)


@pytest.mark.parametrize("level", LEVELS)
def test_what_costs_too_much_ends_and_the_next_command_works(level):
    async def scene(bench):
        found = {}
        for name, (code, limits, _) in COSTLY.items():
            outcome = await bench.python(code, limits=limits, within=3)
            after = await bench.python("result = 1", limits=limits)
            found[name] = (outcome.error or {}).get("code"), after.data
        return found

    before = _resident()
    found = play(level, scene)
    assert {
        name: codes for name, (*_, codes) in COSTLY.items() if found[name][0] not in codes
    } == {}
    assert {after for _, after in found.values()} == {1}
    assert _resident() - before < 64 << 20


def _resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


FORGE = """
import json, os, struct
def frames():
    for number in range(40):
        for frame in ({"op": "done", "id": number, "rss": 0, "value": "FORGED"},
                      {"op": "refuse", "id": number}):
            text = json.dumps(frame).encode()
            yield struct.pack(">I", len(text)) + text
for fd in range(0, 256):
    for frame in frames():
        try:
            os.write(fd, frame)
        except OSError:
            break
print('{"op": "done", "id": 1, "rss": 0, "value": "FORGED"}')
result = "honest"
"""


@pytest.mark.parametrize("level", LEVELS)
def test_a_result_cannot_be_forged_on_any_descriptor(level):
    async def scene(bench):
        return [(await bench.python(code)).data for code in (FORGE, "result = 'next'", FORGE)]

    assert play(level, scene) == ["honest", "next", "honest"]


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_left_running_ends_with_the_child(level):
    mark = f"{4000 + secrets.randbelow(999)}.{secrets.randbits(30)}"
    code = (
        "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        f"        os.execvp('sleep', ['sleep', '{mark}'])\n    os._exit(0)\n"
        "import signal, threading\nsignal.setitimer(signal.ITIMER_PROF, 0.2)\nresult = os.getcwd()"
    )

    async def scene(bench):
        first = await bench.python(code)
        second = await bench.python(
            "import os\nn = 0\nwhile n < 10**7: n += 1\nresult = os.getcwd()"
        )
        return first.data, second.data, second.error

    first, second, error = play(level, scene)
    assert error is None
    assert first != second
    for pid in _running(mark):
        with contextlib.suppress(OSError):
            select.select([os.pidfd_open(pid)], [], [], 10)
    assert not _running(mark)


def _running(text):
    """Processes that have a word in their command."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in place.read_bytes():
                found.append(int(place.parent.name))
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_secrets_of_a_program_are_in_no_list_of_processes(level):
    word = f"secret-{secrets.token_hex(8)}"

    async def scene(bench):
        running = asyncio.create_task(
            bench.shell(command='echo "${#WORD}"; sleep 60', env={"WORD": word})
        )
        await bench.has_told.wait()
        seen = await asyncio.to_thread(_running, word)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return seen, bench.lines

    seen, lines = play(level, scene)
    assert seen == []
    assert lines == [("stdout", "info", str(len(word)))]


CONTROL = """
import os, socket, tempfile
open("own", "w").write("mine")
with tempfile.NamedTemporaryFile("w") as file:
    file.write("x")
listener = socket.create_server(("127.0.0.1", 0))
socket.create_connection(listener.getsockname(), 2)
abstract = socket.socket(socket.AF_UNIX)
abstract.bind("\\0" + os.urandom(8).hex())
import multiprocessing, subprocess
lock = multiprocessing.Lock()
print("said")
result = [open("own").read(), os.path.exists("/usr/bin"), os.getcwd() == os.path.realpath("."),
          subprocess.run(["echo", "ran"], capture_output=True, text=True).stdout,
          open("/etc/hosts").read() != "", listener.getsockname()[1] > 0]
"""


REACH = """
import socket
result = socket.create_connection(("127.0.0.1", port), 2).recv(9).decode()
"""
STRICT = """
import subprocess, threading
thread = threading.Thread(target=print)
thread.start()
thread.join()
open("own", "w").write("x")
result = subprocess.run(["echo", "ran"], capture_output=True, text=True).stdout
"""


@pytest.mark.parametrize("level", LEVELS)
def test_honest_code_is_not_in_the_way_of_the_walls(level):
    async def scene(bench):
        first = await bench.python(CONTROL)
        with _listening() as port:
            second = await bench.python(REACH, values={"port": port})
        strict = await bench.python(STRICT, sandbox="strict")
        return first, second, strict, bench.lines

    first, second, strict, lines = play(level, scene)
    assert (first.error, first.data) == (None, ["mine", True, True, "ran\n", True, True])
    assert (second.error, second.data) == (None, "hello")
    assert ("stdout", "info", "said") in lines
    if level == "namespaces":
        assert (strict.error, strict.data) == (None, "ran\n")
    else:
        assert strict.error["code"] == "sandbox_missing"


@contextlib.contextmanager
def _listening():
    """A port of this machine that greets."""
    code = (
        "import socket\ns = socket.create_server(('127.0.0.1', 0))\n"
        "print(s.getsockname()[1], flush=True)\np, _ = s.accept()\np.sendall(b'hello')\np.close()"
    )
    server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        yield int(server.stdout.readline())
    finally:
        server.send_signal(signal.SIGKILL)
        server.communicate()
