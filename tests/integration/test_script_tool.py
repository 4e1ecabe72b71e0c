"""Scripts in sandboxed children, and as jobs of the container tool."""

from __future__ import annotations

import asyncio
import json
import shutil

import pytest

from noetl.clock import SystemClock
from noetl.telemetry.redact import Redactor
from noetl.tools.base import Parked, ToolContext, run_tool
from noetl.tools.container.tool import ContainerTool, Site
from noetl.tools.interpreter.process import Processes
from noetl.tools.interpreter.sandbox import Sandbox
from noetl.tools.script import ScriptTool

SHOW = """
import json, os, sys
print(json.dumps([sys.argv[1:], json.loads(os.environ["NOETL_INPUT"]),
                  json.load(open("input.json")), os.environ.get("A"), os.path.basename(__file__)]))
"""
ENVIRON = {"PATH": "/usr/local/bin:/usr/bin:/bin", "SECRET": "of-the-worker"}


def run(values=None, *, within=20, is_shell_on=True, load=None, lines=None, **config):
    """The outcome of one script."""

    async def ran():
        processes = Processes(Sandbox.detect(), ENVIRON)
        site = Site(may_run_processes=False)
        container = ContainerTool(site, processes, SystemClock())
        tool = ScriptTool(processes, container, is_shell_on=is_shell_on)
        ctx = ToolContext(
            execution_id="7", step="s", command_id="c", idempotency_key="7/s", domain="d",
            deadline=asyncio.get_running_loop().time() + within, input=values or {},
            redactor=Redactor(["hunter22"]), load_script=load,
            on_log=lambda *line: lines.append(line) if lines is not None else None,
        )  # fmt: skip
        return await run_tool(tool, {"kind": "script", **config}, ctx)

    return asyncio.run(ran())


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["a b", 3, True, None, {"k": [1]}], ["a b", "3", "true", "", '{"k": [1]}']),
        ({"name": "Ada; rm", "count": 2}, ["--name", "Ada; rm", "--count", "2"]),
        (None, []),
    ],
)
def test_a_script_has_its_arguments_and_its_input(args, words):
    given = {"x": [1, "é"]}
    outcome = run(given, script=SHOW, args=args, env={"A": "b"})
    assert outcome.error is None
    assert outcome.data["exit_code"] == 0
    assert json.loads(outcome.data["stdout"]) == [words, given, given, "b", "script.py"]


def test_a_large_input_lies_in_the_file_alone():
    code = (
        "import json, os\n"
        "print(len(json.load(open('input.json'))['x']), os.environ.get('NOETL_INPUT'))"
    )
    assert run({"x": "y" * 100_000}, script=code).data["stdout"] == "100000 None\n"


def test_other_interpreters():
    bash = run(script='echo "$1:$BASH_VERSION" | cut -c1-3', interpreter="bash", args=["ab"])
    assert bash.data["stdout"] == "ab:\n"
    words = run(script="a\nb\n", interpreter=["sort", "-r"])
    assert words.data["stdout"] == "b\na\n"
    line = run(script="c", interpreter="wc -l")
    assert line.data["stdout"].startswith("0 ")


@pytest.mark.skipif(shutil.which("node", path=ENVIRON["PATH"]) is None, reason="no node here")
def test_node():
    code = "console.log(JSON.stringify(process.argv.slice(2)))"
    outcome = run(script=code, interpreter="node", args=["x"], limits={"memory_mb": 65_536})
    assert json.loads(outcome.data["stdout"]) == ["x"]


def test_a_script_that_fails_is_a_failed_process():
    lines = []
    outcome = run(script="import sys\nprint('hunter22')\nsys.exit('no good')", lines=lines)
    error = outcome.error
    assert (error["kind"], error["code"]) == ("process", "exit_1")
    assert error["message"].endswith("no good")
    assert error["details"] == {"exit_code": 1, "stdout": "***\n", "stderr": "no good\n"}
    assert ("stdout", "info", "***") in lines


def test_a_script_that_lies_elsewhere_is_fetched():
    asked = []

    async def load(script):
        asked.append(script.uri)
        return "print('fetched')"

    assert run(script={"uri": "s3://b/x.py"}, load=load).data["stdout"] == "fetched\n"
    assert asked == ["s3://b/x.py"]
    assert run(script={"uri": "s3://b/x.py"}).error["code"] == "script_unavailable"


def test_a_script_has_the_walls_and_limits_of_its_task():
    assert run(script="while True: pass", within=0.5).error["code"] == "tool_timeout"
    assert run(script="import os\nprint(sorted(os.environ))").data["stdout"].count("SECRET") == 0
    many = "while True: print('x' * 9999)"
    assert run(script=many, limits={"output_mb": 1}).error["code"] == "output_limit"
    fill = "for n in range(999): open(str(n), 'wb').write(bytes(1 << 20))"
    assert run(script=fill, limits={"disk_mb": 8}).error["code"] == "disk_limit"
    strict = run(script="print(1)", sandbox="strict")
    assert strict.status == "ok" or strict.error["kind"] == "sandbox"


def test_no_shell_means_python_alone():
    assert run(script="echo", interpreter="bash", is_shell_on=False).error["code"] == "shell_off"
    assert run(script="print(1)", is_shell_on=False).data["stdout"] == "1\n"


def test_packages_need_a_job():
    error = run(script="print(1)", install_dependencies=["x"]).error
    assert (error["code"], "/install_dependencies" in error["message"]) == ("invalid_config", True)


class Recorder:
    """A container tool that keeps what it was asked."""

    def __init__(self):
        self.asked = None

    async def run(self, config, ctx, files):
        self.asked = (config, dict(ctx.input), files)
        return Parked(reason="callback", request={})

    async def cancel(self, ctx):
        """Nothing runs."""


def test_a_job_goes_to_the_containers():
    async def ran():
        container = Recorder()
        tool = ScriptTool(Processes(Sandbox.detect("off"), ENVIRON), container)
        ctx = ToolContext(
            execution_id="7", step="s", command_id="c", idempotency_key="7/s", input={"n": 1}
        )
        config = {
            "kind": "script", "script": "print(1)", "args": {"a": 1}, "env": {"A": "b"},
            "job": {"image": "python:3.12"}, "install_dependencies": ["httpx"],
        }  # fmt: skip
        return await run_tool(tool, config, ctx), container.asked

    outcome, (asked, given, files) = asyncio.run(ran())
    assert isinstance(outcome, Parked)
    assert asked.image == "python:3.12"
    assert list(asked.command[-4:]) == ["python", "/noetl/script", "--a", "1"]
    assert asked.env["A"] == "b"
    assert (given, files["script"], files["packages"]) == ({"n": 1}, b"print(1)", b"httpx\n")


def test_where_no_container_runs_that_is_told():
    error = run(script="print(1)", job={"runtime": "process"}).error
    assert error["code"] == "process_runtime_off"
