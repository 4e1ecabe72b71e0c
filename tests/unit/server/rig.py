"""A server on memory parts, a client, and a worker that is driven by hand."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.commands import Claim, Command
from noetl.api.events import Report, Reported, Reports
from noetl.api.executions import Execute
from noetl.api.http import AsgiTransport
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import LoopClock
from noetl.ids import Ids
from noetl.local.virtual import run_virtually
from noetl.secrets.kek.local import LocalKek
from noetl.secrets.wallet import Wallet
from noetl.server.app import Server, create_server
from noetl.server.parts import ServerParts
from noetl.store.memory.store import MemoryStore
from tests.servers import ENCRYPTION_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

START = datetime(2026, 1, 1, tzinfo=UTC)
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo, path: demo/it}\n"
PYTHON = '{kind: python, code: "return 1"}'
TWO_STEPS = f"""
workflow:
  - step: start
    tool: {PYTHON}
    next: {{arcs: [{{step: end}}]}}
  - step: end
    tool: {PYTHON}
"""
ONE_STEP = f"""
workflow:
  - step: start
    tool: {PYTHON}
"""


def many(count: int, in_flight: int) -> str:
    """A parallel loop."""
    return f"""
workflow:
  - step: start
    loop: {{in: {count}, iterator: n, spec: {{mode: parallel, max_in_flight: {in_flight}}}}}
    tool: {PYTHON}
"""


class Rig:
    """One server and what tests do with it."""

    def __init__(self, server: Server, store: MemoryStore, ids: Ids, bus: MemoryBus) -> None:
        self.server = server
        self.store = store
        self.ids = ids
        self.bus = bus
        self.plane = server.plane
        self.client = Client(AsgiTransport(server.asgi))

    async def start(self, body: str, **more: Any) -> str:
        """Register a playbook and start it."""
        await self.client.register(Register(content=HEAD + body))
        return (await self.client.execute(Execute(path="demo/it", **more))).execution_id

    async def claim(self, worker_id: str = "w", slots: int = 1, **more: Any) -> list[Command]:
        """Take commands."""
        asked = Claim(worker_id=worker_id, pool="shared", free_slots=slots, **more)
        return list((await self.client.claim(asked)).claimed)

    def event(self, command: Command, name: str, event_id: str = "", **payload: Any) -> Report:
        """A report about a command."""
        return Report(
            execution_id=command.execution_id,
            event_id=event_id or self.ids.new(),
            event_type=name,
            step=command.node_name,
            command_id=command.command_id,
            attempt=command.attempt,
            payload=payload,
        )

    async def report(self, *events: Report, worker_id: str = "w", slots: int = 0) -> Reported:
        """Send reports."""
        return await self.client.report(
            Reports(worker_id=worker_id, pool="shared", events=events, free_slots=slots)
        )

    async def done(
        self, command: Command, result: Any = 1, worker_id: str = "w", slots: int = 0
    ) -> Reported:
        """Start and finish a command."""
        return await self.report(
            self.event(command, "command.started"),
            self.event(command, "call.done", result=result),
            worker_id=worker_id,
            slots=slots,
        )

    async def rows(self, execution_id: str) -> list[str]:
        """The log as `type(step)`."""
        page = await self.client.events(execution_id, limit=1000)
        return [f"{row['event_type']}({row['step']})" for row in page.items]

    async def types(self, execution_id: str) -> list[str]:
        """The log as types."""
        return [row.partition("(")[0] for row in await self.rows(execution_id)]

    async def status(self, execution_id: str) -> str:
        """The status of a run."""
        return (await self.client.execution(execution_id)).status


@asynccontextmanager
async def rig(store: MemoryStore | None = None, **more: Any) -> AsyncIterator[Rig]:
    """A running server on the time of this loop."""
    clock = more.pop("clock", None) or LoopClock(asyncio.get_running_loop(), START)
    ids = Ids(clock, more.pop("machine", 1))
    kept, bus = store or MemoryStore(), MemoryBus()
    more.setdefault("wallet", Wallet(LocalKek(ENCRYPTION_KEY), clock))
    parts = ServerParts(
        store=kept, bus=bus, blobs=more.pop("blobs", None) or MemoryBlobs(), clock=clock, ids=ids,
        **more,
    )  # fmt: skip
    async with create_server(parts) as server:
        yield Rig(server, kept, ids, bus)


def virtually(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on a loop whose waiting costs nothing."""

    def run() -> None:
        run_virtually(test())

    run.__name__ = test.__name__
    return run
