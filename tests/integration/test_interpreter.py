"""Python and shell steps in real children."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from noetl.telemetry.redact import Redactor
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.interpreter.pool import Interpreters
from noetl.tools.interpreter.process import Processes
from noetl.tools.interpreter.runner import Job
from noetl.tools.interpreter.sandbox import Sandbox, SandboxMissing, Walls
from noetl.tools.python import PythonTool
from noetl.tools.shell import ShellTool

ENVIRON = {"PATH": os.defpath, "LANG": "C.UTF-8", "SECRET_TOKEN": "worker-token"}
SANDBOX = Sandbox.detect()


class Bench:
    """One pool, and what its commands told."""

    def __init__(self, pool):
        self.pool = pool
        self.lines = []
        self.steps = []
        self.redactor = Redactor(["hunter22"])

    async def python(self, code, *, within=20, domain="d", values=None, **config):
        return await self._run(PythonTool(self.pool), within, domain, values, code=code, **config)

    async def shell(self, *, within=20, **config):
        tool = ShellTool(Processes(SANDBOX, ENVIRON))
        return await self._run(tool, within, "d", None, **config)

    async def _run(self, tool, within, domain, values, *, names=(), fetch=None, **config):  # noqa: PLR0913 - one call of a test
        more = {} if fetch is None else {"fetch": fetch}
        ctx = ToolContext(
            execution_id="7", step="s", command_id="c", idempotency_key="7/s/-/1", domain=domain,
            deadline=asyncio.get_running_loop().time() + within, input=values or {},
            scope={"workload": {"n": 3}, "variables": {"v": 1}}, names=names,
            redactor=self.redactor, on_log=lambda *line: self.lines.append(line),
            on_progress=lambda *step: self.steps.append(step), **more,
        )  # fmt: skip
        return await run_tool(tool, {"kind": tool.kind, **config}, ctx)


@asynccontextmanager
async def bench(**more):
    pool = Interpreters(SANDBOX, ENVIRON, **{"spares": 0} | more)
    try:
        yield Bench(pool)
    finally:
        await pool.close()


def play(scene, **more):
    async def acted():
        async with bench(**more) as stage:
            return await scene(stage)

    return asyncio.run(acted())


def one(code, **more):
    return play(lambda stage: stage.python(code, **more))


# ---------------------------------------------------------------------------- results

WRAPPED = """
import functools
def wrap(f):
    @functools.wraps(f)
    def inner(*a, **k):
        return f(*a, **k)
    return inner
@wrap
def main(x):
    return x
"""


@pytest.mark.parametrize(
    ("code", "values", "result"),
    [
        ("result = x + 1", {"x": 1}, 2),
        ("x = x + 1\nif x > 1:\n    return {'x': x}\nresult = 0", {"x": 1}, {"x": 2}),
        ("if x > 5:\n    return 1\nresult = 'fell'", {"x": 1}, "fell"),
        ("n: int = 4\ndef f():\n    return n\nreturn f()", {}, 4),
        ("return", {}, None),
        ("def main(x, y=2, *, z=3):\n    return [x, y, z]", {"x": 1, "z": 9}, [1, 2, 9]),
        ("def main(x, /, **rest):\n    return [x, rest]", {"x": 1, "y": 2}, [1, {"y": 2}]),
        ("def main(input_data):\n    return input_data", {"a": 1}, {"a": 1}),
        ("async def main(x):\n    return x", {"x": 5}, 5),
        ("def main():\n    return 1\nresult = 2", {}, 2),
(WRAPPED, {"x": 5}, 5),
        ("pass", {}, None),
        ("1 + 1", {"result": 5}, None),
        ("result = result + 1", {"result": 5}, 6),
        ("result = [args, input_data]", {"a": 1}, [{"a": 1}, {"a": 1}]),
        ("result = input_data", {"input_data": 3}, 3),
        ("result = args", {"args": [1]}, [1]),
        ("result = idempotency_key", {}, "7/s/-/1"),
        ("import sys\nresult = 3\nsys.exit(0)", {}, 3),
        ("result = f'{{x}}'", {}, "{x}"),
        ("print('{\"op\": \"done\", \"value\": 1}')\nresult = 2", {}, 2),
        ("result = (1, 'é', None, True, 2**70)", {}, [1, "é", None, True, 2**70]),
    ],
)  # fmt: skip
def test_every_form_of_a_result(code, values, result):
    outcome = one(code, values=values)
    assert (outcome.error, outcome.data) == (None, result)


def test_values_that_json_lacks_have_a_form():
    code = (
        "import datetime, decimal\nutc = datetime.timezone.utc\n"
        "result = {'d': decimal.Decimal('1.10'), 't': datetime.datetime(2024, 1, 2, tzinfo=utc),"
        " 'day': datetime.date(2024, 1, 2), 'b': b'\\x00\\xff', 'n': [float('nan'), float('inf')]}"
    )

    async def scene(stage):
        return (await stage.python(code)).data, stage.lines

    data, lines = play(scene)
    assert data == {"d": "1.10", "t": "2024-01-02T00:00:00Z", "day": "2024-01-02", "b": "AP8=",
                    "n": [None, None]}  # fmt: skip
    assert lines == [("log", "warning", "NaN or infinity in the result became null")]


@pytest.mark.parametrize(
    "code",
    ["result = object()", "result = {1, 2}", "result = []\nresult.append(result)",
     "result = {(1, 2): 3}", "result = '\\ud800'"],
)  # fmt: skip
def test_what_has_no_form_fails(code):
    error = one(code).error
    assert (error["kind"], error["code"]) == ("schema", "not_serialisable")


@pytest.mark.parametrize(
    ("libs", "code"),
    [
        ({"m": "math", "p": "os.path"}, "result = [m.floor(1.5), p.basename('/a/b')]"),
        ({"floor": {"from": "math", "import": "floor"},
          "b": {"from": "os.path", "import": "basename"}},
         "result = [floor(1.5), b('/a/b')]"),
        (["math", "os.path"], "result = [math.floor(1.5), os.path.basename('/a/b')]"),
    ],
)  # fmt: skip
def test_every_form_of_libs(libs, code):
    assert one(code, libs=libs).data == [1, "b"]


def test_the_context_is_lazy_and_read_only():
    asked = []

    async def fetch(name):
        asked.append(name)
        if name == "broken":
            raise RuntimeError("store unreachable")
        return name == "other", {"rows": [1]}

    code = (
        "r = [context['workload']['n'], context['execution_id'], context['step'],"
        " context['other']['rows'], context['other']['rows'], context.get('none', 5),"
        " 'other' in context, 'ghost' in context, sorted(context)]\n"
        "try:\n    context['x'] = 1\nexcept TypeError:\n    r.append('read-only')\n"
        "try:\n    context['broken']\nexcept RuntimeError as fault:\n    r.append(str(fault))\n"
        "result = r"
    )
    outcome = one(code, fetch=fetch, names=("other",))
    assert outcome.data == [
        3, "7", "s", [1], [1], 5, True, False,
        ["args", "execution_id", "other", "step", "variables", "workload"],
        "read-only", "context['broken']: store unreachable",
    ]  # fmt: skip
    assert asked == ["other", "none", "ghost", "broken"]


def test_progress_and_logs_arrive_in_order():
    code = (
        "import os, sys\nprogress(0.5, 'half')\nlog('a')\nlog.warning('b')\n"
        "print('one')\nprint('two', end='')\nprint('bad', file=sys.stderr)\n"
        "os.system('echo from a child')"
    )

    async def scene(stage):
        await stage.python(code)
        return stage.steps, stage.lines

    steps, lines = play(scene)
    assert steps == [(50.0, "half")]
    assert [line for line in lines if line[0] == "log"] == [
        ("log", "info", "a"),
        ("log", "warning", "b"),
    ]
    printed = [text for stream, _, text in lines if stream == "stdout"]
    assert (printed[0], sorted("".join(printed[1:]))) == ("one", sorted("twofrom a child"))
    assert ("stderr", "info", "bad") in lines


# ---------------------------------------------------------------------------- failures


def test_an_exception_names_the_line_of_the_user():
    outcome = one("x = 1\n\ndef f():\n    raise ValueError('no good')\nf()")
    assert outcome.error["message"] == "ValueError: no good"
    assert (outcome.error["kind"], outcome.error["retryable"]) == ("python", False)
    assert outcome.error["details"]["line"] == 4
    assert outcome.py["exception"] == "ValueError"
    assert "raise ValueError('no good')" in outcome.py["traceback"]
    assert "child.py" not in outcome.py["traceback"]


def test_a_deep_traceback_is_bounded():
    outcome = one("def f(n):\n    return g(n)\ndef g(n):\n    return f(n + 1)\nf(0)")
    assert outcome.error["message"].startswith("RecursionError")
    assert outcome.py["traceback"].count("File ") <= 51


@pytest.mark.parametrize(
    ("code", "kind", "error_code"),
    [
        ("def f(:", "python", "syntax_error"),
        ("import sys\nsys.exit(3)", "python", "exit"),
        ("import not_there_at_all", "python", "import_error"),
        ("raise KeyboardInterrupt", "python", "exception"),
        ("import os\nos._exit(5)", "python", "exit_5"),
        ("import os\nos.kill(os.getpid(), 11)", "python", "signal_11"),
        ("import os\nos.closerange(0, 100)", "python", None),
        ("result = 'x' * (65 << 20)", "limit", "output_limit"),
        ("result = bytearray(4 << 30)", "limit", "memory_limit"),
        ("open('big', 'wb').truncate(600 << 20)", "limit", "disk_limit"),
        ("def main(ghost):\n    return 1", "python", "exception"),
    ],
)  # fmt: skip
def test_every_failure_is_clean_and_the_next_command_works(code, kind, error_code):
    async def scene(stage):
        first = await stage.python(code)
        return first.error, (await stage.python("result = 1")).data

    error, after = play(scene)
    assert (error["kind"], after) == (kind, 1)
    assert error_code in {None, error["code"]}


def test_memory_without_end_is_a_limit_and_no_memory_of_the_worker():
    code = (
        "kept = []\nwhile True:\n    kept.append(bytearray(64 << 20))\nresult = bytearray(4 << 30)"
    )

    async def scene(stage):
        await stage.python("result = 1")
        before = _resident()
        errors = [(await stage.python(text)).error for text in (code, "bytearray(4 << 30)")]
        return errors, _resident() - before, (await stage.python("result = 1")).data

    errors, grown, after = play(scene)
    assert [(error["kind"], error["code"]) for error in errors] == [("limit", "memory_limit")] * 2
    assert (grown < 16 << 20, after) == (True, 1)


def _resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_an_endless_loop_ends_in_a_timeout():
    async def scene(stage):
        before = time.perf_counter()
        outcome = await stage.python("while True: pass", within=2)
        return outcome.error, time.perf_counter() - before, (await stage.python("result = 1")).data

    error, seconds, after = play(scene)
    assert (error["kind"], error["code"], after) == ("timeout", "tool_timeout", 1)
    assert seconds < 8


def test_code_that_ignores_the_polite_signal_is_killed():
    code = "import signal\nsignal.signal(15, signal.SIG_IGN)\nwhile True: pass"
    before = time.perf_counter()
    assert one(code, within=0.5).error["code"] == "tool_timeout"
    assert time.perf_counter() - before < 8


def test_a_cpu_limit_ends_the_command():
    error = one("while True: pass", limits={"cpu_s": 1}).error
    assert (error["kind"], error["code"]) == ("limit", "cpu_limit")


ONE_CHILD = 3  # an interpreter, and the two processes of bubblewrap in front of it


def test_a_fork_bomb_is_contained():
    code = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"

    async def scene(stage):
        outcome = await stage.python(code, within=3, limits={"procs": 20})
        for _ in range(500):
            after = await stage.python("import os\nresult = os.getcwd()")
            left = _named(Path(after.data).parent.name)
            if len(left) <= ONE_CHILD:
                break
        return outcome.error, left

    error, left = play(scene)
    assert error["kind"] in {"limit", "timeout"}
    assert len(left) <= ONE_CHILD


def _named(text):
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if text.encode() in _command(pid)]


def test_much_output_is_bounded():
    code = "line = 'x' * 9999\nfor _ in range(10_000):\n    print(line)"
    error = one(code).error
    assert (error["kind"], error["code"]) == ("limit", "output_limit")


def test_much_allowed_output_arrives_in_cut_lines():
    code = "line = 'x' * 9999\nfor _ in range(10_000):\n    print(line)\nresult = 1"

    async def scene(stage):
        outcome = await stage.python(code, limits={"output_mb": 120}, within=50)
        return outcome.data, len(stage.lines), max(len(text) for _, _, text in stage.lines)

    data, count, longest = play(scene)
    assert (data, count) == (1, 10_000)
    assert longest < 8300


def test_a_child_that_is_killed_from_outside_fails_cleanly():
    async def scene(stage):
        is_up = asyncio.Event()
        stage.lines = _Telling(is_up)
        running = asyncio.ensure_future(stage.python("log('up')\nwhile True: pass"))
        await is_up.wait()
        for pid in _children():
            if b"child.main" in _command(pid):
                os.kill(pid, 9)
        return (await running).error, (await stage.python("result = 1")).data

    error, after = play(scene)
    assert (error["kind"], error["code"], after) == ("python", "signal_9", 1)


class _Telling(list):
    """A list that tells of its first item."""

    def __init__(self, event):
        super().__init__()
        self.event = event

    def append(self, item):
        super().append(item)
        self.event.set()


def _children():
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_secrets_are_redacted_everywhere():
    async def scene(stage):
        good = await stage.python("print('say hunter22')\nresult = {'hunter22': 'a hunter22'}")
        bad = await stage.python("raise ValueError('hunter22')")
        return good.data, bad.error["message"], bad.py["traceback"], stage.lines

    data, message, traceback, lines = play(scene)
    assert data == {"***": "a ***"}
    assert message == "ValueError: ***"
    assert "hunter22" not in traceback
    assert lines == [("stdout", "info", "say ***")]


# ---------------------------------------------------------------------------- isolation


def test_two_commands_in_a_row_share_nothing():
    dirty = (
        "import os, sys, signal, locale\nleak = 1\nos.environ['LEAK'] = '1'\nos.mkdir('d')\n"
        "open('d/f', 'w').close()\nopen('leaky.py', 'w').close()\nsys.path.insert(0, os.getcwd())\n"
        "import leaky\nos.chdir('/')\nsys.argv.append('x')\nsys.stdout = None\n"
        "signal.signal(signal.SIGTERM, lambda *a: None)\nlocale.setlocale(locale.LC_ALL, 'C')\n"
        "os.umask(0)\nsys.setrecursionlimit(5000)\nresult = os.getpid()"
    )
    clean = (
        "import os, sys, signal, locale\n"
        "result = [os.getpid(), 'leak' in globals(), 'LEAK' in os.environ, os.listdir('.'),"
        " os.getcwd() == '/', sys.argv, 'leaky' in sys.modules, sys.stdout is None,"
        " signal.getsignal(15) is signal.SIG_DFL, os.umask(18), sys.getrecursionlimit()]"
    )

    async def scene(stage):
        first = await stage.python("import os\nresult = [os.getpid(), os.umask(18)]")
        return first.data, (await stage.python(dirty)).data, (await stage.python(clean)).data

    (pid, umask), second, third = play(scene)
    assert pid == second
    assert third == [pid, False, False, [], False, ["<code>"], False, False, True, umask, 1000]


@pytest.mark.parametrize(
    "code",
    [
        "import threading as t, time\nt.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "import os\nos.fork() or os.execvp('sleep', ['sleep', '60'])",
        "import os, sys\nsys.kept = os.dup(0)",
    ],
)
def test_left_overs_retire_the_child(code):
    async def scene(stage):
        pid = "\nimport os\nresult = os.getpid()"
        first = await stage.python(code + pid)
        second = await stage.python(pid)
        return first.data, second.data, stage.pool.counts.retired

    first, second, retired = play(scene)
    assert retired == {"left_over": 1}
    assert SANDBOX.level == "namespaces" or first != second


def test_domains_never_share_a_child():
    code = "import sys, os\nresult = hasattr(sys, 'mark')\nsys.mark = 1"

    async def scene(stage):
        return [(await stage.python(code, domain=d)).data for d in ("a", "b", "a", "b")]

    assert play(scene) == [False, False, True, True]


def test_a_fresh_interpreter_keeps_not_even_a_patched_module():
    code = "import sys\nresult = hasattr(sys, 'mark')\nsys.mark = 1"

    async def scene(stage):
        return [(await stage.python(code, isolation="fresh")).data for _ in range(2)]

    assert play(scene, spares=1) == [False, False]


def test_the_environment_is_clean():
    code = "import os\nresult = dict(os.environ)"
    env = [{"name": "A", "value": 1}, {"name": "B", "value": True}]
    assert one(code, env=env).data == {
        "PATH": os.defpath, "LANG": "C.UTF-8", "A": "1", "B": "true",
    }  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0 and SANDBOX.level == "rlimits", reason="no walls here")
def test_the_environment_of_the_worker_cannot_be_read():
    code = (
        "import os\nfound = []\n"
        "for pid in [os.getppid(), PARENT, *filter(str.isdigit, os.listdir('/proc'))]:\n"
        "    if str(pid) == str(os.getpid()): continue\n"
        "    for name in ('environ', 'mem', 'fd', 'cwd', 'maps'):\n"
        "        try:\n"
        "            path = f'/proc/{pid}/{name}'\n"
        "            link = {'fd': path + '/0', 'cwd': path}.get(name)\n"
        "            data = os.readlink(link) if link else open(path, 'rb').read(10)\n"
        "            if data: found.append([pid, name])\n"
        "        except OSError: pass\n"
        "result = [f for f in found if str(f[0]) == str(PARENT)]\n"
    )
    assert one(code, values={"PARENT": os.getpid()}).data in ([], None)


REACHES = (
    "import socket\ntry:\n    socket.create_connection((HOST, PORT), 2)\n"
    "except OSError as fault:\n    result = fault.errno\nelse:\n    result = 0"
)


def test_network_off_leaves_no_network():
    outcome = one(REACHES, network="off", values={"HOST": "192.0.2.1", "PORT": 1})
    assert outcome.data == 101 or outcome.error["kind"] == "sandbox"


@pytest.mark.skipif(SANDBOX.level == "rlimits", reason="nothing here takes a network away")
@pytest.mark.parametrize("isolation", ["warm", "fresh"])
def test_a_worker_without_network_gives_none_to_a_step_that_asks_for_it(isolation):
    async def reached(*, is_offline):
        sandbox = Sandbox.detect()
        if is_offline:
            sandbox.shut_off()
        pool = Interpreters(sandbox, ENVIRON, spares=1)
        try:
            stage = Bench(pool)
            values = {"HOST": "127.0.0.1", "PORT": listening.getsockname()[1]}
            asks = {"network": "on", "isolation": isolation, "values": values}
            return (await stage.python(REACHES, **asks)).data
        finally:
            await pool.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert asyncio.run(reached(is_offline=False)) == 0
        assert asyncio.run(reached(is_offline=True)) in {errno.ENETUNREACH, errno.ECONNREFUSED}


def test_a_network_that_cannot_be_taken_away_is_told():
    sandbox = Sandbox.detect("off")
    with pytest.raises(SandboxMissing, match="NOETL_PYTHON_NETWORK=off"):
        sandbox.shut_off()
    assert not sandbox.is_offline


def test_strict_walls_are_required_where_they_are_asked_for():
    outcome = one("result = 1", sandbox="strict")
    assert (
        outcome.data == 1 if SANDBOX.level == "namespaces" else outcome.error["kind"] == "sandbox"
    )


def test_a_required_sandbox_that_is_missing_is_refused():
    with pytest.raises(SandboxMissing):
        Sandbox.detect("require", path="/nowhere")
    assert Sandbox.detect("off").level == "rlimits"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"NOETL_PYTHON_SANDBOX": "require"}, b"NOETL_PYTHON_SANDBOX=require"),
        (
            {"NOETL_PYTHON_SANDBOX": "off", "NOETL_PYTHON_NETWORK": "off"},
            b"NOETL_PYTHON_NETWORK=off",
        ),
    ],
)
def test_a_worker_does_not_start_without_the_sandbox_that_it_must_have(tmp_path, asked, told):
    environ = {
        "PATH": "/nowhere", "HOME": str(tmp_path), "NOETL_HOME": str(tmp_path / "home"),
        "NOETL_SERVER_URL": "http://127.0.0.1:9", **asked,
    }  # fmt: skip
    words = [
        sys.executable,
        str(Path(sys.executable).with_name("noetl")),
        "worker",
        "--pool",
        "shared",
    ]
    done = subprocess.run(
        words, env=environ, cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert told in done.stdout + done.stderr


def test_many_commands_run_side_by_side():
    async def scene(stage):
        found = await asyncio.gather(
            *(stage.python("result = n * n", values={"n": n}) for n in range(40))
        )
        return [outcome.data for outcome in found]

    assert play(scene, slots=4, spares=2) == [n * n for n in range(40)]


def test_a_warm_child_is_reused_and_the_longest_idle_one_makes_room():
    async def scene(stage):
        for domain in ("a", "b", "c", "a"):
            await stage.python("result = 1", domain=domain)
        return stage.pool.counts.started, stage.pool.counts.retired

    assert play(scene, slots=2) == (4, {"idle": 2})


def test_closing_leaves_no_process_and_no_folder():
    async def scene(stage):
        await stage.pool.warm_up()
        outcome = await stage.python("import os\nresult = os.getcwd()")
        return Path(outcome.data)

    before = _children()
    work = play(scene, spares=2)
    assert not work.exists()
    assert not work.parent.exists()
    assert _children() == before


def test_a_job_of_the_pool_needs_no_tool():
    async def scene(stage):
        async def fetch(_name):
            return False, None

        job = Job(
            domain="d", code="result = 1", walls=Walls(), fetch=fetch,
            on_line=lambda *_: None, on_progress=lambda *_: None,
        )  # fmt: skip
        return (await stage.pool.run(job)).value

    assert play(scene) == 1


@pytest.mark.parametrize(
    ("config", "data"),
    [
        ({"code_b64": "cmVzdWx0ID0gMQ=="}, 1),
        ({"script": {"source": {"type": "inline", "code": "result = 2"}}}, 2),
    ],
)
def test_code_may_lie_elsewhere(config, data):
    async def scene(stage):
        tool = PythonTool(stage.pool)
        return await stage._run(tool, 20, "d", None, **config)  # noqa: SLF001 - the test's own class

    assert play(scene).data == data


# ---------------------------------------------------------------------------- shell


def test_a_command_gives_its_output():
    outcome = play(
        lambda stage: stage.shell(command="echo out; echo err >&2; pwd; cat", stdin="in")
    )
    assert outcome.data["exit_code"] == 0
    assert outcome.data["stdout"].startswith("out\n/tmp/noetl-")
    assert outcome.data["stdout"].endswith("in")
    assert outcome.data["stderr"] == "err\n"


def test_commands_stop_at_the_first_failure():
    async def scene(stage):
        outcome = await stage.shell(cmds=["echo a > f", "cat f; exit 3", "echo never"])
        return outcome.error, stage.lines

    error, lines = play(scene)
    assert (error["kind"], error["code"], error["details"]["stdout"]) == (
        "process",
        "exit_3",
        "a\n",
    )
    assert lines == [("stdout", "info", "a")]


def test_argv_runs_without_a_shell():
    outcome = play(lambda stage: stage.shell(argv=["printf", "%s", "$HOME; x"], env={"A": "b"}))
    assert outcome.data["stdout"] == "$HOME; x"


def test_a_missing_program_is_a_failed_process():
    assert play(lambda stage: stage.shell(argv=["not-there"])).error["code"] == "exit_127"


def test_a_shell_has_a_clean_environment_and_the_key():
    data = play(lambda stage: stage.shell(command="env; echo $0", env={"A": "b"}, cwd="x/y")).data
    names = {line.partition("=")[0] for line in data["stdout"].splitlines() if "=" in line}
    assert names <= {"A", "LANG", "PATH", "PWD", "NOETL_IDEMPOTENCY_KEY", "OLDPWD", "SHLVL", "_"}
    assert "PWD" in names


def test_a_shell_that_runs_too_long_is_ended_with_its_children():
    async def scene(stage):
        return await stage.shell(command="sleep 61.5 & sleep 61.5", within=0.5)

    assert play(scene).error["code"] == "tool_timeout"
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if b"61.5" in _command(pid.name)]


def test_a_shell_prints_within_limits():
    outcome = play(lambda stage: stage.shell(command="yes", limits={"output_mb": 1}))
    assert (outcome.error["kind"], outcome.error["code"]) == ("limit", "output_limit")


def test_only_the_head_of_the_output_is_inline():
    outcome = play(lambda stage: stage.shell(command="yes | head -c 200000"))
    assert len(outcome.data["stdout"]) == 65_536


@pytest.mark.parametrize("cwd", ["/etc", "../x"])
def test_a_folder_outside_the_work_folder_is_refused(cwd):
    assert (
        play(lambda stage: stage.shell(command="true", cwd=cwd)).error["code"] == "invalid_config"
    )


def test_a_shell_without_network_says_when_it_cannot_be_had():
    outcome = play(lambda stage: stage.shell(command="true", network=False))
    assert outcome.status == "ok" or outcome.error["kind"] == "sandbox"


def test_requirements_are_refused():
    error = one("result = 1", requirements=["x"]).error
    assert (error["kind"], error["code"]) == ("config", "requirements_denied")


def test_large_inputs_and_results_pass_whole():
    text = "é" * (4 << 20)
    assert one("result = text", values={"text": text}).data == text


def test_shell_steps_can_be_off():
    async def scene(stage):
        tool = ShellTool(Processes(SANDBOX, ENVIRON), is_on=False)
        return await stage._run(tool, 5, "d", None, command="true")  # noqa: SLF001 - the test's own class

    assert play(scene).error["code"] == "shell_off"


def test_short_commands_wait_for_a_child_instead_of_starting_another():
    async def scene(bench):
        await bench.python("result = 1")
        done = await asyncio.gather(*(bench.python("result = 1") for _ in range(4)))
        return [outcome.data for outcome in done], bench.pool.counts.started

    results, started = play(scene, slots=4, patience_s=30.0)
    assert (results, started) == ([1, 1, 1, 1], 1)
