"""Plays playbooks on the full stack: many at once, with mocks where a case has some."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from noetl.api.catalog import Register
from noetl.api.executions import Control, Execute
from noetl.bus.nats import NatsBus
from noetl.clock import SystemClock
from noetl.dsl.tasks import KINDS
from noetl.ids import Ids
from noetl.local.cases import CEILING_S
from noetl.local.keychain import StandIns
from noetl.local.mocks import Mocks
from noetl.local.references import Loader
from noetl.local.workshop import workshop
from noetl.tools.base import Tool, Traits
from noetl.worker.app import WorkerParts, create_worker
from tests.e2e.ending import Ending
from tests.servers.stack import INTERNAL, STAGE
from tests.servers.staged_server import marked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from noetl.api.client import Client
    from noetl.dsl.documents.testcase import Case
    from noetl.dsl.views import Outcome
    from noetl.tools.base import Parked, ToolContext
    from tests.servers.stack import FullStack

AT_ONCE = 12
PATIENCE_S = 40.0
MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A run that is wanted."""

    text: str
    payload: dict[str, Any] = field(default_factory=dict)
    mocks: Mocks | None = None


def mocks_of(case: Case, folder: Path) -> Mocks | None:
    """The mocks of a case; what takes long in them takes no time."""
    if not case.mocks:
        return None
    quick = [replace(mock, delay=0.0) if mock.delay else mock for mock in case.mocks]
    return Mocks(quick, folder, allow=frozenset(case.allow))


class Stage:
    """Runs scripts on a stack, a worker with mocked tools beside its own."""

    def __init__(self, client: Client, inner: Client, tools: Mapping[str, Tool]) -> None:
        self._client = client
        self._inner = inner
        self._real = tools
        self._ids = Ids(SystemClock(), machine=1000)
        self._known: dict[str, dict[str, Tool]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    @property
    def tools(self) -> dict[str, Tool]:
        """A tool of every kind, which answers as the run's own mocks say."""
        return {
            kind: cast("Tool", _Staged(kind, self._real.get(kind), self._known))
            for kind in (*KINDS, *self._real)
        }

    async def shelve(self, text: str) -> None:
        """Put a playbook in the catalog."""
        await self._client.register(Register(content=text))

    async def play(self, script: Script) -> Ending:
        """Run it to its end, with all children."""
        async with self._slots:
            execution_id = await self._start(script)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await self._ended(execution_id)
            except TimeoutError:
                told = await self._client.why(execution_id)
                await self._client.cancel(execution_id, Control(reason="it took too long"))
                raise AssertionError(f"it did not end: {told}") from None

    async def _start(self, script: Script) -> str:
        mocks = script.mocks
        text = script.text if mocks is None else marked(script.text, mocks.steps)
        entry = await self._client.register(Register(content=text))
        wanted = Execute(catalog_id=entry.catalog_id, payload=script.payload)
        if mocks is None:
            return (await self._client.execute(wanted)).execution_id
        execution_id = self._ids.new()
        self._known[execution_id] = mocks.over(self._real)
        return (
            await self._inner.execute(
                Execute(
                    catalog_id=entry.catalog_id, payload=script.payload, execution_pool=STAGE,
                    execution_id=execution_id,
                )
            )
        ).execution_id  # fmt: skip

    async def _ended(self, execution_id: str) -> Ending:
        logs: dict[str, list[dict[str, Any]]] = {}
        await self._collect(execution_id, "", logs)
        found = await self._client.execution(execution_id)
        result = found.result if found.reference is None else found.reference
        whole = await Loader(self._client, MOST_BYTES).whole(result)
        return Ending(found.status, whole, found.error, logs)

    async def _collect(self, execution_id: str, key: str, logs: dict[str, Any]) -> None:
        async for _ in self._client.stream(execution_id):
            pass
        logs[key] = await rows_of(self._client, execution_id)
        for child in (await self._client.children(execution_id)).items:
            first = (await self._client.events(child.execution_id, limit=1)).items[0]
            await self._collect(child.execution_id, f"{key}>{first['meta']['parent_key']}", logs)


async def rows_of(client: Client, execution_id: str) -> list[dict[str, Any]]:
    """The whole log of a run."""
    rows: list[dict[str, Any]] = []
    while True:
        page = await client.events(execution_id, after=len(rows), limit=1000)
        rows += page.items
        if len(rows) >= page.last_seq or not page.items:
            return rows


class _Staged:
    """One kind of tool: the mocks of the run that calls decide."""

    def __init__(self, kind: str, tool: Tool | None, known: Mapping[str, dict[str, Tool]]) -> None:
        self.kind = kind
        self.Config = KINDS[kind] if tool is None else tool.Config
        self.traits = Traits(side_effects=False) if tool is None else tool.traits
        self._known = known

    async def run(self, config: Any, ctx: ToolContext) -> Outcome | Parked:
        return await self._known[ctx.execution_id][self.kind].run(config, ctx)

    async def cancel(self, ctx: ToolContext) -> None:
        await self._known[ctx.execution_id][self.kind].cancel(ctx)


@asynccontextmanager
async def staged(stack: FullStack, folder: Path) -> AsyncIterator[Stage]:
    """A stage on the stack; its worker ends with the block."""
    stack.serve()
    token = stack.worker_token(STAGE)
    clock = SystemClock()
    async with (
        workshop(AT_ONCE) as shop,
        shop.tools(folder, clock) as tools,
        stack.client() as client,
        stack.client(INTERNAL) as inner,
        stack.client(token) as own,
    ):
        stage = Stage(client, inner, tools)
        bus = await NatsBus.open(stack.nats_url)
        worker = create_worker(
            WorkerParts(
                client=own, tools=stage.tools, clock=clock, ids=Ids(clock, machine=1001),
                worker_id="on-stage", pool=STAGE, server_url=stack.url, slots=AT_ONCE,
                bus=bus, secrets=StandIns, ceiling_s=CEILING_S,
            )
        )  # fmt: skip
        working = asyncio.create_task(worker.run())
        try:
            yield stage
        finally:
            worker.drain()
            await working
            await bus.close()
