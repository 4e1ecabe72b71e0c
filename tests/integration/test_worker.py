"""A worker with real children: what user code does reaches the server as reports and lines."""

from __future__ import annotations

import asyncio
import hashlib
import os
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import indent

import msgspec

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.commands import Beat
from noetl.api.executions import Control, Execute
from noetl.api.http import AsgiTransport
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.ids import Ids
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.store.memory.store import MemoryStore
from noetl.tools.interpreter.pool import Interpreters
from noetl.tools.interpreter.process import Processes
from noetl.tools.interpreter.sandbox import Sandbox
from noetl.tools.registry import Parts, builtins
from tests.unit.worker.fakes import HEAD, FakeServer, Stage

ENVIRON = {"PATH": os.defpath, "LANG": "C.UTF-8"}
SANDBOX = Sandbox.detect()


@asynccontextmanager
async def toolbox():
    interpreters = Interpreters(SANDBOX, ENVIRON, spares=0)
    parts = Parts(interpreters=interpreters, processes=Processes(SANDBOX, ENVIRON))
    try:
        yield builtins(parts).values()
    finally:
        await interpreters.close()


@asynccontextmanager
async def at_work(server, **more):
    async with toolbox() as tools, Stage(server, *tools, **more) as stage:
        yield stage


def python(code, more="", step="s"):
    """A step that runs this code."""
    tool = f"- step: {step}\n  tool:\n    kind: python\n    code: |\n"
    return tool + indent(code, "      ") + "\n" + indent(more, "    ") + "\n"


async def one(workflow, **command):
    """What is reported of one command, and the server that heard it."""
    server = FakeServer(workflow)
    server.offer(server.command(**command))
    async with at_work(server) as stage:
        report = (await server.finals())[0]
        stage.worker.drain()
        await stage.task
    return server, report


async def test_the_value_of_the_code_is_the_result():
    server, report = await one(python("result = {'n': n + 1}", "input: {n: 41}"))
    assert (report.event_type, report.payload["result"]) == ("call.done", {"n": 42})
    assert server.told("c1") == ["command.started", "call.done"]


async def test_an_exception_is_a_call_error_that_names_it_and_its_line():
    _, report = await one(python("x = 1\nraise ValueError('no such thing')"))
    error = report.payload["error"]
    assert (report.event_type, error["kind"]) == ("call.error", "python")
    assert error["details"]["exception"] == "ValueError"
    assert "no such thing" in error["message"]
    assert "line 2" in error["message"] + str(error["details"])


async def test_a_hundred_megabytes_of_output_keep_their_head_their_tail_and_one_marker():
    code = "line = 'x' * 999\nfor n in range(100_000):\n    print(f'{n:06}{line}')"
    server, report = await one(python(code, "limits: {output_mb: 200}"))
    assert report.event_type == "call.done"
    told = report.payload["logs"]
    assert (told["lines"], told["truncated"]) == (100_000, True)
    assert told["tail"].splitlines()[-1].startswith("099999")
    assert server.lines[0].text.startswith("000000")
    assert server.lines[-1].text.startswith("099999")
    assert sum("left out" in line.text for line in server.lines) == 1
    assert sum(len(line.text) for line in server.lines) < 10.1 * 2**20


async def test_output_over_the_limit_of_the_task_is_a_clean_failure():
    code = "line = 'x' * 999\nfor n in range(100_000):\n    print(line)"
    _, report = await one(python(code))
    error = report.payload["error"]
    assert (error["kind"], error["code"]) == ("limit", "output_limit")


async def test_a_timeout_kills_the_child_and_the_next_command_works():
    slow = python("while True:\n    pass", "timeout: 1")
    server = FakeServer(slow + python("result = 1", step="t"))
    server.offer(server.command(), server.command("t"))
    async with at_work(server, slots=1):
        first, second = await server.finals(2)
    assert (first.payload["error"]["kind"], first.payload["error"]["code"]) == (
        "timeout", "tool_timeout",
    )  # fmt: skip
    assert second.payload["result"] == 1


async def test_a_result_over_64_kib_is_stored_and_referenced():
    server, report = await one(python("result = ['y' * 1024] * 5000"))
    reference = report.payload["reference"]
    raw = server.objects[reference["ref"]]
    assert msgspec.json.decode(raw) == ["y" * 1024] * 5000
    assert reference["sha256"] == hashlib.sha256(raw).hexdigest()
    assert "result" not in report.payload


async def test_a_pipeline_parks_for_its_retry_and_goes_on_without_repeating():
    workflow = (
        "- step: s\n  tool:\n"
        "  - {name: a, kind: python, code: 'result = idempotency_key'}\n"
        "  - name: b\n    kind: python\n    code: |\n"
        "      if _attempt == 1:\n          raise ConnectionError('down')\n      result = a\n"
        "    input: {a: '{{ a }}', _attempt: '{{ _attempt }}'}\n"
        "    spec: {retry: {attempts: 2, delay: 30, kinds: [python]}}\n"
    )
    server = FakeServer(workflow)
    server.offer(server.command())
    async with at_work(server):
        parked = (await server.finals())[0]
        server.offer(server.command(attempt=2, checkpoint=parked.payload["checkpoint"]))
        done = (await server.finals(2))[1]
    assert (parked.event_type, parked.payload["reason"]) == ("command.parked", "retry")
    assert parked.payload["delay_ms"] >= 25_000
    assert done.payload["result"] == {"a": "81/s/-/1/a", "b": "81/s/-/1/a"}
    assert [(task["name"], task["try"]) for task in done.payload["tasks"]] == [
        ("a", 1), ("b", 1), ("b", 2),
    ]  # fmt: skip


async def test_a_cancel_kills_the_child_in_mid_tool_and_reports_nothing():
    code = "import os, time\nprint(os.getpid(), flush=True)\nlog('on')\ntime.sleep(600)"
    server = FakeServer(python(code))
    server.lease_s = 0.9
    command = server.command()
    server.offer(command)
    before = _children()  # those of other tests
    async with at_work(server) as stage:
        await server.until(lambda: len(server.lines) == 2)
        children = _children() - before
        server.beat = Beat(cancel=(command.command_id,))
        async with asyncio.timeout(6):
            await stage.worker.held.emptied()
        assert children
        assert not children & _children()
    assert server.ended == []


def _children() -> set[int]:
    """Processes below this one, as the kernel lists them."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


async def test_memory_exhaustion_is_a_clean_failure():
    _, report = await one(python("result = bytearray(4 << 30)"))
    error = report.payload["error"]
    assert (error["kind"], error["code"]) == ("limit", "memory_limit")


async def test_a_fork_bomb_is_a_clean_failure_and_the_worker_goes_on():
    bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    workflow = python(bomb, "timeout: 3") + python("result = 'alive'", step="t")
    server = FakeServer(workflow)
    server.offer(server.command(), server.command("t"))
    async with at_work(server, slots=1):
        first, second = await server.finals(2)
    assert first.event_type == "call.error"
    assert first.payload["error"]["kind"] in {"limit", "timeout"}
    assert second.payload["result"] == "alive"


async def test_the_context_of_the_code_is_bound_fetched_or_asked_for():
    server = FakeServer(
        python(
            "result = [context['workload'], context['variables'], context['big']['rows'],"
            " context['other'], context.get('ghost'), context['small']]"
        )
    )
    raw = b'{"rows": [1]}'
    server.objects["r"] = raw
    server.steps["other"] = {"x": 1}
    refs = {"steps.big": {"ref": "r", "store": "memory",
                          "sha256": hashlib.sha256(raw).hexdigest()}}  # fmt: skip
    bindings = {
        "workload": {"n": 1}, "ctx": {"v": 2},
        "steps": {"big": {}, "small": {"data": 5}},
    }  # fmt: skip
    server.offer(server.command(bindings=bindings, refs=refs))
    async with at_work(server):
        report = (await server.finals())[0]
    assert report.payload.get("result") == [{"n": 1}, {"v": 2}, [1], {"x": 1}, None, 5]


async def test_progress_and_lines_travel_beside_the_result():
    server, report = await one(python("progress(0.5, 'half')\nlog.warning('hm')\nprint('out')"))
    told = [one for one in server.reports if one.event_type == "step.progress"]
    assert [one.payload for one in told] == [{"percent": 50.0, "message": "half"}]
    assert [(line.stream, line.level, line.text) for line in server.lines] == [
        ("log", "warning", "hm"), ("stdout", "info", "out"),
    ]  # fmt: skip
    assert report.payload["logs"] == {
        "lines": 2, "bytes": 5, "truncated": False, "tail": "hm\nout",
    }  # fmt: skip


# ---------------------------------------------------------------------------- the real server


class Run:
    """A real server in memory, a worker, and runs of one playbook."""

    def __init__(self, server, client, stage):
        self.server = server
        self.client = client
        self.stage = stage

    async def start(self, workflow, payload=None):
        content = HEAD + "workflow:\n" + workflow
        await self.client.register(Register(content=content))
        started = await self.client.execute(Execute(path="p", payload=payload or {}))
        return started.execution_id

    async def end(self, execution_id):
        await self.server.finished(execution_id)
        return await self.client.execution(execution_id)

    async def events(self, execution_id):
        page = await self.client.events(execution_id, limit=1000)
        return [row["event_type"] for row in page.items]


@asynccontextmanager
async def real(**more):
    clock = SystemClock()
    bus, blobs = MemoryBus(), MemoryBlobs()
    server = create_server(
        ServerParts(store=MemoryStore(), bus=bus, blobs=blobs, clock=clock, ids=Ids(clock))
    )
    async with server, toolbox() as tools:
        client = Client(AsgiTransport(server.asgi))
        async with Stage(client, *tools, bus=bus, blobs=blobs, clock=clock, **more) as stage:
            yield Run(server, client, stage)


async def test_a_chain_of_twenty_steps_needs_one_report_a_step():
    steps = [
        python(f"result = {n}", step=f"s{n}") + (f"  next: s{n + 1}\n" if n < 19 else "")
        for n in range(20)
    ]
    async with real() as run:
        ended = await run.end(await run.start("".join(steps)))
        batches = run.stage.worker.reporter.counts.batches
    assert (ended.status, ended.error) == ("COMPLETED", None)
    assert batches <= 22


async def test_an_error_fails_the_run_and_names_the_line():
    async with real() as run:
        ended = await run.end(await run.start(python("x = 1\nraise KeyError('k')")))
    assert (ended.status, ended.error["kind"]) == ("FAILED", "python")
    assert ended.error["details"]["exception"] == "KeyError"


async def test_a_large_result_is_read_by_the_next_step():
    first = python("result = {'rows': list(range(50_000))}", step="a") + "  next: b\n"
    second = python("result = [n, len(context['a']['rows'])]",
                    "input: {n: '{{ a.rows | length }}'}", step="b")  # fmt: skip
    async with real() as run:
        execution_id = await run.start(first + second)
        ended = await run.end(execution_id)
        found = await run.client.step_result(execution_id, "b")
    assert (ended.status, ended.error) == ("COMPLETED", None)
    assert found == [50_000, 50_000]


async def test_a_retry_waits_without_a_slot_and_succeeds():
    workflow = (
        "- step: s\n  tool:\n    kind: python\n    code: |\n"
        "      if n == 1:\n          raise ValueError('once')\n      result = n\n"
        "    input: {n: '{{ _attempt }}'}\n"
        "    spec: {retry: {attempts: 2, delay: 0.2, kinds: [python]}}\n"
    )
    async with real(slots=1) as run:
        execution_id = await run.start(workflow)
        ended = await run.end(execution_id)
        events = await run.events(execution_id)
        assert await run.client.step_result(execution_id, "s") == 2
    assert ended.status == "COMPLETED"
    assert [name for name in events if name.startswith(("command.", "call."))] == [
        "command.issued", "command.claimed", "command.started", "command.parked",
        "command.resumed", "command.claimed", "command.started", "call.done",
        "command.completed",
    ]  # fmt: skip


async def test_a_cancelled_run_kills_its_tool():
    async with real() as run:
        execution_id = await run.start(python("import time\ntime.sleep(600)"))
        watcher = run.server.watch(execution_id)
        while "command.started" not in await run.events(execution_id):
            watcher.clear()
            await watcher.wait()
        await run.client.cancel(execution_id, Control(reason="enough"))
        async with asyncio.timeout(8):
            await run.stage.worker.held.emptied()
        ended = await run.end(execution_id)
        events = await run.events(execution_id)
    assert ended.status == "CANCELLED"
    assert "call.done" not in events
    assert "call.error" not in events


async def test_a_hundred_iterations_share_the_slots():
    workflow = (
        "- step: s\n  loop: {in: '{{ workload.items }}', iterator: n, spec: {mode: parallel}}\n"
        "  tool: {kind: python, code: 'result = n * 2', input: {n: '{{ n }}'}}\n"
    )
    async with real(slots=4) as run:
        execution_id = await run.start(workflow, {"items": list(range(100))})
        ended = await run.end(execution_id)
        found = await run.client.step_result(execution_id, "s")
    assert (ended.status, ended.error) == ("COMPLETED", None)
    assert found == [n * 2 for n in range(100)]


async def test_lines_of_a_step_can_be_read_back():
    async with real() as run:
        execution_id = await run.start(python("print('hello')"))
        await run.end(execution_id)
        run.stage.worker.drain()
        await run.stage.task
        lines = await run.client.logs(execution_id)
    assert [line["text"] for line in lines] == ["hello"]
