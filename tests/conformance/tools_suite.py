"""What every kind of tool keeps: its schema, its borders, its errors, its silence, its tidiness.

A kind brings a row: tasks that work, one that fails, one that would never end, and some that show a
secret. The rest is the same for all.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import re
import tempfile
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from noetl.api.catalog import Register
from noetl.api.problems import Refused
from noetl.blobs.memory import MemoryBlobs
from noetl.dsl.schema import tool_schema
from noetl.dsl.tasks.about import about
from noetl.telemetry.redact import MASK, Redactor
from noetl.tools.base import MESSAGE_BYTES, Parked, ToolContext, run_tool
from noetl.tools.container.kubernetes import Cluster
from noetl.tools.container.tool import Site
from noetl.tools.http.egress import Egress
from noetl.tools.interpreter.pool import Interpreters
from noetl.tools.interpreter.process import Processes
from noetl.tools.interpreter.sandbox import Sandbox
from noetl.tools.mcp.places import Known
from noetl.tools.objects.store import Stores
from noetl.tools.registry import Parts, Registry, builtins
from tests.unit.server.rig import HEAD, rig

if TYPE_CHECKING:
    from noetl.dsl.views import Outcome
    from noetl.tools.base import Callback

SECRET = "canary-of-every-tool-7e21"  # noqa: S105 - looked for where it must not be
ENVIRON = {"PATH": os.defpath, "LANG": "C.UTF-8"}
SHORT_S = 0.25
"""The limit of a task that would never end."""
SOON_S = 8.0
"""Within so much a task is over whose limit has passed (worker.md B8 5)."""
LONG_S = 30.0
ERROR = {"kind", "code", "message", "retryable", "status_code", "retry_after_s", "details"}
UNKNOWN = "colour_of_nothing"


@cache
def detected() -> Sandbox:
    """The strongest sandbox of this machine, which takes a while to find."""
    return Sandbox.detect()


@dataclass(frozen=True, kw_only=True)
class Row:
    """The tasks of one kind, without `kind`."""

    works: tuple[dict[str, Any], ...]
    """Done in this order; the first can be done again and again."""
    fails: tuple[dict[str, Any], ...]
    hangs: tuple[dict[str, Any], ...] = ()
    """None for a kind that has nothing to wait for, or that parks to wait."""
    echoes: tuple[dict[str, Any], ...] = ()
    """Show the secret: in data, lines, progress or an error."""
    nested: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Tasks with an unknown key deeper in, by the place of that key; none of them is run."""
    lacks: str = ""
    """The code with which every task fails here, because something is not installed."""
    hanging: dict[str, Any] = field(default_factory=dict)
    """What the contexts of endless tasks are given besides."""


class Bench:
    """Every built-in tool, and what one worker would lend it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blobs = MemoryBlobs()
        self.credentials: dict[str, dict[str, Any]] = {}
        self.named: dict[str, Any] = {}
        self.client: Any = None
        self.callback: Callback | None = None
        self.cluster_url = ""
        self.held = AsyncExitStack()
        self.shown: list[Any] = []
        self._numbers = itertools.count(1)
        self._interpreters: Interpreters | None = None

    def open(self) -> None:
        """Make the tools; `close` ends what they keep."""
        sandbox = detected()
        self._interpreters = Interpreters(sandbox, ENVIRON, spares=0)
        parts = Parts(
            interpreters=self._interpreters,
            processes=Processes(sandbox, ENVIRON),
            data_roots=(self.root,),
            egress=Egress(mode="open"),
            mcp=Known(stdio_allow=("*",)),
            site=Site(may_run_processes=True, environ=ENVIRON, cluster=self._cluster),
        )
        self.registry = Registry(builtins(parts))
        self.stores = Stores(Egress(mode="open"))

    async def close(self) -> None:
        """Close the tools."""
        if self._interpreters is not None:
            await self.registry.close()
            await self._interpreters.close()
            self._interpreters = None
            self.stores = Stores(Egress(mode="open"))

    async def run(self, kind: str, config: dict[str, Any], within_s: float = LONG_S, **more: Any):
        """What the border of tools makes of a task."""
        deadline = asyncio.get_running_loop().time() + within_s
        number = next(self._numbers)
        ctx = ToolContext(
            execution_id="7", step="start", command_id=str(number), domain="t",
            idempotency_key=f"7/start/-/{number}", deadline=deadline,
            input=config.get("input", {}), redactor=Redactor([SECRET]), secrets=self._secrets,
            client=self.client, stores=self.stores, callback=self.callback,
            on_log=lambda *line: self.shown.append(line),
            on_progress=lambda *told: self.shown.append(told),
            **{"blobs": self.blobs, "name_secret": self._name_secret, **more},
        )  # fmt: skip
        outcome = await run_tool(self.registry.tools[kind], {"kind": kind, **config}, ctx)
        if isinstance(outcome, Parked):
            return outcome
        if outcome.error is not None:
            well_told(kind, outcome)
        self.shown.append(outcome)
        return outcome

    async def works(self, kind: str, row: Row, config: dict[str, Any] | None = None):
        """The outcome of a task that goes well, or parks, as far as this machine lets it."""
        outcome = await self.run(kind, row.works[0] if config is None else config)
        if row.lacks:
            assert outcome.error["code"] == row.lacks
        else:
            assert isinstance(outcome, Parked) or outcome.error is None, outcome.error
        return outcome

    async def _secrets(self, alias: str) -> dict[str, Any]:
        return self.credentials[alias]

    async def _name_secret(self, handle: str, entry: Any) -> None:
        self.named[handle] = entry

    async def _cluster(self) -> Cluster:
        return Cluster.at(self.cluster_url)


def well_told(kind: str, outcome: Outcome) -> None:
    """Every error has one shape, and a kind that the table of kinds names."""
    error = outcome.error
    assert outcome.status == "error"
    assert error.keys() == ERROR
    assert error["kind"] in about(kind).every_error, error
    assert error["code"]
    assert 0 < len(error["message"].encode()) <= MESSAGE_BYTES
    assert isinstance(error["retryable"], bool)
    json.dumps(error)


def endless(
    bench: Bench, kind: str, row: Row, within_s: float = LONG_S
) -> list[asyncio.Task[Outcome]]:
    """The endless tasks of a row, begun."""
    return [
        asyncio.create_task(bench.run(kind, config, within_s, **row.hanging))
        for config in row.hangs
    ]


async def ended(tasks: list[asyncio.Task[Outcome]]) -> None:
    """Cancel tasks, and wait for their ends."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# ---------------------------------------------------------------------------- what is left


def files() -> set[tuple[str, str]]:
    """Open descriptors and what they are."""
    found = set()
    for one in Path("/proc/self/fd").iterdir():
        try:
            found.add((one.name, str(one.readlink())))
        except FileNotFoundError:
            continue  # that of the listing
    return found


def children() -> set[int]:
    """Processes that this one has started and not yet waited for."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            text = (task / "children").read_text(encoding="ascii")
        except FileNotFoundError:
            continue  # the thread has ended
        found |= {int(pid) for pid in text.split()}
    return found


def folders() -> set[str]:
    """What lies in the temporary folder of this test."""
    return {one.name for one in Path(tempfile.gettempdir()).iterdir()}


def around() -> dict[str, set[Any]]:
    """What a tool might leave behind."""
    tasks = {one for one in asyncio.all_tasks() if not one.done()}
    return {"tasks": tasks, "files": files(), "children": children(), "folders": folders()}


async def nothing_new(before: dict[str, set[Any]]) -> None:
    """Wait until nothing is left that was not there before; servers close a bit later."""
    left: dict[str, set[Any]] = {}
    try:
        async with asyncio.timeout(SOON_S):
            while True:
                gc.collect()
                now = around()
                left = {name: now[name] - before[name] for name in now if now[name] - before[name]}
                if not left:
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"left behind: {left}")


@contextmanager
def soon():
    """Whoever is longer in it than a person waits has failed."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    yield
    assert loop.time() - began < SOON_S


def fields(data: dict[str, Any]) -> set[str]:
    """Names of the fields of data; those with a number stand for all of them."""
    return {re.sub(r"_\d+\Z", "_0", name) for name in data}


# ---------------------------------------------------------------------------- the suite


class ToolsSuite:
    """Asks for `kind`, `bench` (open), `row`, and `noetl` (a command line)."""

    async def test_its_schema_is_published_and_its_tasks_fit(self, kind, row, noetl):
        async with rig() as r:
            told = await r.client.tool(kind)
        schema = json.loads(noetl("tools", "schema", kind))
        assert told.schema == schema == tool_schema(kind)
        assert told.errors == about(kind).every_error
        assert told.returns == about(kind).returns
        judge = Draft202012Validator(schema)
        for config in (*row.works, *row.echoes, *row.hangs):
            judge.validate({"kind": kind, **config})
        for config in ({**row.works[0], UNKNOWN: 1}, *row.nested.values()):
            assert not judge.is_valid({"kind": kind, **config}), config

    async def test_an_unknown_key_is_refused_at_registration_and_by_the_worker(
        self, kind, bench, row
    ):
        task = {"kind": kind, **row.works[0]}
        async with rig() as r:

            async def registered(tool):
                flow = json.dumps({"workflow": [{"step": "start", "tool": tool}]})
                return await r.client.register(Register(content=f"{HEAD}{flow[1:-1]}\n"))

            await registered(task)
            on_top = {**row.works[0], UNKNOWN: 1}
            for where, config in {f"/{UNKNOWN}": on_top, **row.nested}.items():
                with pytest.raises(Refused) as refused:
                    await registered({"kind": kind, **config})
                problem = refused.value.problem
                assert problem.status == 422
                unknown = [one["message"] for one in problem.errors if one["code"] == "DSL030"]
                assert unknown == [f"unknown key `{UNKNOWN}`"]
                error = (await bench.run(kind, config)).error
                assert (error["kind"], error["code"]) == ("config", "invalid_config")
                assert [one["field"] for one in error["details"]["fields"]] == [where]

    async def test_what_takes_too_long_is_ended_and_the_next_task_works(self, kind, bench, row):
        outcome = await bench.works(kind, row)
        assert row.hangs or isinstance(outcome, Parked) or kind == "noop" or row.lacks
        with soon():
            late = await asyncio.gather(*endless(bench, kind, row, SHORT_S))
        for outcome in late:
            error = outcome.error
            assert (error["kind"], error["code"]) == ("timeout", "tool_timeout")
            assert error["retryable"]
        await bench.works(kind, row)

    async def test_what_is_cancelled_ends_and_the_next_task_works(self, kind, bench, row):
        await bench.works(kind, row)
        running = endless(bench, kind, row)
        if running:
            await asyncio.wait(running, timeout=SHORT_S)
        assert not any(task.done() for task in running)
        with soon():
            await ended(running)
        assert all(task.cancelled() for task in running)
        await bench.works(kind, row)

    async def test_a_secret_is_shown_nowhere(self, kind, bench, row):
        for config in row.echoes:
            bench.shown.clear()
            await bench.run(kind, config)
            assert SECRET not in repr(bench.shown)
            assert MASK in repr(bench.shown), f"{config} shows nothing"
        bench.shown.clear()
        error = (await bench.run(kind, {**row.works[0], SECRET: 1})).error
        assert SECRET not in repr(error)
        assert MASK in error["message"]

    async def test_an_error_has_one_shape_and_a_kind_that_is_told(self, kind, bench, row):
        for config in row.fails:
            assert (await bench.run(kind, config)).error is not None

    async def test_every_field_of_its_data_is_told(self, kind, bench, row):
        told = about(kind)
        for config in row.works:
            outcome = await bench.works(kind, row, config)
            if isinstance(outcome, Parked) or row.lacks:
                continue
            assert told.returns or told.data
            if told.returns:
                assert not fields(outcome.data) - told.returns.keys()

    async def test_nothing_is_left_of_it(self, kind, bench, row):
        await bench.works(kind, row)  # libraries open some things once and for all
        await asyncio.gather(*endless(bench, kind, row, SHORT_S))
        await bench.close()
        before = around()
        bench.open()
        await bench.works(kind, row)
        await bench.run(kind, row.fails[0])
        running = endless(bench, kind, row)
        await asyncio.gather(*endless(bench, kind, row, SHORT_S))
        await ended(running)
        del running  # their tracebacks hold what the tool was given
        await bench.close()
        await nothing_new(before)
