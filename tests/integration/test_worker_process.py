"""The worker as a process of its own, on a real server behind a real socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import indent

import pytest
import uvicorn

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.executions import Control, Execute
from noetl.api.sockets import SocketTransport
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.ids import Ids
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.store.memory.store import MemoryStore

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: p}\nworkflow:\n"
NOETL = Path(sys.executable).with_name("noetl")


def python(code, step="start", more=""):
    tool = f"- step: {step}\n  tool:\n    kind: python\n    code: |\n"
    return HEAD + tool + indent(code, "      ") + "\n" + more


class Quiet(uvicorn.Server):
    """A server that leaves signals to the test."""

    def install_signal_handlers(self):
        return


class Site:
    """One server that can go away and come back at the same address."""

    def __init__(self, lease_s=15.0):
        clock = SystemClock()
        self.changed = asyncio.Event()
        self.parts = ServerParts(
            store=MemoryStore(on_commit=self._committed), bus=MemoryBus(), blobs=MemoryBlobs(),
            clock=clock, ids=Ids(clock, machine=1), lease_s=lease_s,
        )  # fmt: skip
        self.control = create_server(self.parts)
        self.calls = []
        self.port = 0
        self.is_away = False
        self.refusal = None

    def _committed(self, *_):
        self.changed.set()

    async def app(self, scope, receive, send):
        if scope["type"] == "http":
            self.calls.append(scope["path"])
            if self.refusal is not None and scope["path"] in self.refusal:
                await self._refuse(send, *self.refusal[scope["path"]])
                return
        await self.control.asgi(scope, receive, send)

    async def _refuse(self, send, status, code):
        body = json.dumps(
            {"type": "t", "title": "t", "status": status, "code": code, "detail": code}
        ).encode()
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    @asynccontextmanager
    async def open(self):
        """Listen while the block runs."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", self.port))
        self.port = sock.getsockname()[1]
        config = uvicorn.Config(
            self.app, interface="asgi3", proxy_headers=False, log_config=None, lifespan="off",
            access_log=False, timeout_graceful_shutdown=1, ws="none",
        )  # fmt: skip
        server = Quiet(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        task = asyncio.create_task(server._serve([sock]))  # noqa: SLF001 - without signal handlers
        try:
            yield
        finally:
            server.should_exit = True
            server.force_exit = True
            await task
            sock.close()

    async def start(self, text, **more):
        """Start a playbook; its id."""
        async with self.client() as client:
            entry = await client.register(Register(content=text))
            run = await client.execute(Execute(catalog_id=entry.catalog_id, **more))
        return run.execution_id

    @asynccontextmanager
    async def client(self):
        transport = SocketTransport(f"http://127.0.0.1:{self.port}")
        try:
            yield Client(transport)
        finally:
            await transport.close()

    async def rows(self, run):
        async with self.client() as client:
            return (await client.events(run, limit=1000)).items

    async def until(self, run, name, count=1):
        """Wait until a run has so many events of this name."""
        while True:
            self.changed.clear()
            rows = await self.rows(run)
            if sum(row["event_type"] == name for row in rows) >= count:
                return rows
            await self.changed.wait()


class Worker:
    """One worker process; it is stopped by its id."""

    def __init__(self, site, home, **settings):
        self.environ = {
            "PATH": os.defpath, "LANG": "C.UTF-8", "NOETL_HOME": str(home),
            "NOETL_SERVER_URL": f"http://127.0.0.1:{site.port}", "WORKER_POOL_NAME": "shared",
            "WORKER_METRICS_BIND": "127.0.0.1:0", "NOETL_HTTP_EGRESS": "open",
            "NOETL_WORKER_TOKEN": "t",
        } | settings  # fmt: skip
        self.lines = []
        self.heard = asyncio.Event()

    async def __aenter__(self):
        self.process = await asyncio.create_subprocess_exec(
            NOETL, "worker", env=self.environ, stderr=asyncio.subprocess.PIPE
        )  # fmt: skip
        self.reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self.reading

    async def _read(self):
        async for line in self.process.stderr:
            self.lines.append(line.decode())
            self.heard.set()

    async def says(self, text):
        """The first line of its log with this text."""
        while True:
            self.heard.clear()
            for line in self.lines:
                if text in line:
                    return line
            await self.heard.wait()

    async def page(self, path):
        """A page of its health port."""
        line = await self.says('"port"')
        transport = SocketTransport(f"http://127.0.0.1:{json.loads(line)['port']}")
        try:
            return await transport.request("GET", path)
        finally:
            await transport.close()

    async def exits(self):
        code = await self.process.wait()
        await self.reading
        return code


@asynccontextmanager
async def site(**more):
    made = Site(**more)
    async with made.control, made.open():
        yield made


def broken_plugin(folder):
    """A package in a folder, whose tool cannot be imported."""
    about = folder / "broken-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[noetl.tools]\nbroken = not_there_at_all:Tool\n")
    return str(folder)


async def test_a_worker_from_its_start_to_its_end(tmp_path):
    path = broken_plugin(tmp_path / "site")
    async with site() as here, Worker(here, tmp_path, PYTHONPATH=path) as worker:
        run = await here.start(python("result = {'n': 6 * 7}"))
        await here.until(run, "playbook.completed")
        ready = await worker.page("/readyz")
        metrics = (await worker.page("/metrics")).body.decode()
        about = json.loads((await worker.page("/healthz")).body)
        worker.process.send_signal(signal.SIGTERM)
        code = await worker.exits()
        calls = list(here.calls)
    assert (ready.status, json.loads(ready.body)) == (200, {"ready": True, "reasons": []})
    assert 'noetl_worker_dispatch_duration_seconds_count{tool_kind="python"} 1.0\n' in metrics
    assert about["pool"] == "shared"
    told = {"broken": "ModuleNotFoundError: No module named 'not_there_at_all'"}
    assert about["plugins"] == {"failed": told}
    assert code == 0, worker.lines
    assert "/api/worker/pool/deregister" in calls
    name = about["worker_id"]
    assert (tmp_path / "worker" / name / "outbox.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("pool", ["", "a.b", "*", ">"])
async def test_a_worker_without_a_good_pool_does_not_start(tmp_path, pool):
    async with site() as here, Worker(here, tmp_path, WORKER_POOL_NAME=pool) as worker:
        code = await worker.exits()
        assert (code, here.calls) == (2, []), worker.lines
        assert "worker.bad_pool" in "".join(worker.lines)


async def test_a_worker_that_may_not_join_does_not_start(tmp_path):
    async with site() as here:
        here.refusal = {"/api/worker/pool/register": (403, "pool_forbidden")}
        async with Worker(here, tmp_path) as worker:
            assert await worker.exits() == 2
            assert "pool_forbidden" in "".join(worker.lines)


async def test_two_workers_of_one_name_are_one_too_many(tmp_path):
    async with site() as here, Worker(here, tmp_path, WORKER_ID="w") as first:
        await first.says("the worker works")
        async with Worker(here, tmp_path, WORKER_ID="w") as second:
            assert await second.exits() == 2
            assert "worker.already_running" in "".join(second.lines)


async def test_a_name_outlives_the_process(tmp_path):
    names = []
    async with site() as here:
        for _ in range(2):
            async with Worker(here, tmp_path) as worker:
                names.append(json.loads(await worker.says("the worker works"))["worker_id"])
    assert names[0] == names[1]


async def test_a_long_tool_is_given_back_after_the_grace(tmp_path):
    async with site() as here, Worker(here, tmp_path, WORKER_DRAIN_SECONDS="0.2") as worker:
        run = await here.start(python("import time\ntime.sleep(600)"))
        await here.until(run, "command.started")
        worker.process.send_signal(signal.SIGTERM)
        code = await worker.exits()
        rows = await here.rows(run)
    assert code == 0, worker.lines
    assert "command.resumed" in [row["event_type"] for row in rows]


async def test_a_second_signal_kills(tmp_path):
    async with site() as here, Worker(here, tmp_path) as worker:
        run = await here.start(python("import time\ntime.sleep(600)"))
        await here.until(run, "command.started")
        worker.process.send_signal(signal.SIGTERM)
        await worker.says("a signal")
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.exits() == 1


async def test_a_worker_that_waits_for_its_server_can_be_told_to_stop(tmp_path):
    gone = Site()
    async with gone.open():
        pass
    async with Worker(gone, tmp_path) as worker:
        await worker.says("the worker works")
        worker.process.send_signal(signal.SIGINT)
        assert await worker.exits() == 0


async def test_cancelling_a_run_ends_its_child(tmp_path):
    pids = tmp_path / "pids"
    pids.mkdir(mode=0o777)
    async with site(lease_s=3.0) as here, Worker(here, tmp_path / "home") as worker:
        run = await here.start(python("import time\nprint('here', flush=True)\ntime.sleep(600)"))
        await here.until(run, "command.started")
        async with here.client() as client:
            await client.cancel(run, Control(reason="enough"))
        while 'via="heartbeat"} 1' not in (await worker.page("/metrics")).body.decode():  # noqa: ASYNC110 - the page is all there is
            await asyncio.sleep(0.1)


async def test_what_was_not_reported_is_replayed_before_anything_is_claimed(tmp_path):
    here, flag = Site(lease_s=60.0), tmp_path / "flag"
    waiting = f"import os, time\nwhile not os.path.exists({str(flag)!r}):\n    time.sleep(0.02)"
    home = tmp_path / "home"
    settings = {"WORKER_ID": "w", "NOETL_PYTHON_SANDBOX": "off"}
    async with here.control:
        async with here.open():
            worker = await Worker(here, home, **settings).__aenter__()
            run = await here.start(python(waiting + "\nresult = 5"))
            await here.until(run, "command.started")
        flag.touch()  # the tool ends while nobody listens
        while "noetl_worker_outbox_events 1" not in (await worker.page("/metrics")).body.decode():  # noqa: ASYNC110 - the page is all there is
            await asyncio.sleep(0.05)
        ready = (await worker.page("/readyz")).status
        worker.process.kill()
        await worker.__aexit__()
        here.calls.clear()
        async with here.open(), Worker(here, home, **settings):
            rows = await here.until(run, "playbook.completed")
        calls = [path for path in here.calls if "events/batch" in path or "claim" in path]
    assert calls[0] == "/api/events/batch"
    assert [row["event_type"] for row in rows].count("call.done") == 1
    assert [row["attempt"] for row in rows if row["event_type"] == "call.done"] == [1]
    assert ready == 200


async def test_lines_of_an_outage_outlive_a_worker_that_is_killed(tmp_path):
    here, flag = Site(lease_s=60.0), tmp_path / "flag"
    waiting = f"import os, time\nwhile not os.path.exists({str(flag)!r}):\n    time.sleep(0.02)"
    home = tmp_path / "home"
    settings = {"WORKER_ID": "w", "NOETL_PYTHON_SANDBOX": "off"}
    async with here.control:
        async with here.open():
            worker = await Worker(here, home, **settings).__aenter__()
            run = await here.start(python(waiting + "\nfor n in range(3):\n    print('line', n)"))
            await here.until(run, "command.started")
        flag.touch()  # the tool speaks while nobody listens
        while "noetl_worker_outbox_lines 3" not in (await worker.page("/metrics")).body.decode():  # noqa: ASYNC110 - the page is all there is
            await asyncio.sleep(0.05)
        worker.process.kill()
        await worker.__aexit__()
        mode = (home / "worker" / "w" / "logs.db").stat().st_mode & 0o777
        before = (await here.parts.store.output.read(run), mode)
        async with here.open(), Worker(here, home, **settings), here.client() as client:
            while len(lines := await client.logs(run)) < 3:  # noqa: ASYNC110 - lines have no event
                await asyncio.sleep(0.05)
    assert before == ([], 0o600)
    told = [(line["attempt"], line["n"], line["text"]) for line in lines]
    assert told == [(1, 0, "line 0"), (1, 1, "line 1"), (1, 2, "line 2")]
