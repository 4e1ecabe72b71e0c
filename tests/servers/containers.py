"""A server, a worker with containers, and a cluster that a test drives, in one process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from noetl.clock import SystemClock
from noetl.telemetry.redact import Redactor
from noetl.tools.container.kubernetes import Cluster
from noetl.tools.container.report import Messenger, as_watcher
from noetl.tools.container.tool import ContainerTool, Site
from noetl.tools.interpreter.process import Processes
from noetl.tools.interpreter.sandbox import Sandbox
from noetl.tools.noop import NoopTool
from noetl.worker.app import WorkerParts, create_worker
from noetl.worker.watcher.watch import Pace, Watcher
from tests.servers.kubernetes import kubernetes
from tests.unit.server.rig import rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.servers.kubernetes import FakeCluster
    from tests.unit.server.rig import Rig

ENVIRON = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
PACE = Pace(relist_s=30.0, tick_s=0.05, stall_s=0.3, again_s=0.05)
ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED"})


async def until(is_so: Callable[[], object], within_s: float = 20.0) -> None:
    """Wait until something has come true that nobody tells of."""
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110 - files and counters have no event
            await asyncio.sleep(0.02)


def records(home: Path) -> list[str]:
    """The jobs that a worker has on record."""
    return sorted(file.name for file in home.glob("*.json"))


def is_empty(folder: Path) -> bool:
    """Whether nothing lies in a folder."""
    return not any(folder.iterdir())


class Bench:
    """One stack and what tests do with it."""

    def __init__(self, r: Rig, fake: FakeCluster, tool: ContainerTool) -> None:
        self.r = r
        self.fake = fake
        self.tool = tool
        self.clock = SystemClock()

    async def start(self, tool: str, *, step: str = "job", more: str = "", **payload: Any) -> str:
        """Start a playbook of one step that runs a container."""
        body = f"\nworkflow:\n  - step: {step}\n{more}    tool: {tool}\n"
        return await self.r.start(body, **payload)

    async def status(self, run: str, within_s: float = 30.0) -> str:
        """How a run ended."""
        async with asyncio.timeout(within_s):
            while (found := await self.r.status(run)) not in ENDED:  # noqa: ASYNC110 - as a person looks
                await asyncio.sleep(0.02)
        return found

    async def rows(self, run: str, *names: str) -> list[dict[str, Any]]:
        """Events of these types."""
        page = await self.r.client.events(run, limit=1000)
        return [row for row in page.items if row["event_type"] in names]

    async def parked(
        self, run: str, count: int = 1, within_s: float = 30.0
    ) -> list[dict[str, Any]]:
        """What commands wait for, once so many of them do."""
        async with asyncio.timeout(within_s):
            while len(found := await self._requests(run)) < count:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)
        return found

    async def _requests(self, run: str) -> list[dict[str, Any]]:
        rows = await self.rows(run, "command.parked")
        return [row["meta"]["request"] for row in rows if "request" in row["meta"]]

    @asynccontextmanager
    async def watcher(self, pace: Pace = PACE) -> AsyncIterator[Watcher]:
        """A watcher of the namespace `noetl`."""
        cluster = Cluster.at(self.fake.url)
        messenger = Messenger(self.r.client, as_watcher(self.r.client), step_s=0.02)
        made = Watcher(cluster, "noetl", self.r.client, messenger, self.clock, pace)
        task = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await cluster.close()


@asynccontextmanager
async def bench(
    home: Path | None = None, redactor: Redactor | None = None, **site: Any
) -> AsyncIterator[Bench]:
    """A running stack; what the worker may do with containers is told by `site`."""
    async with rig(clock=SystemClock()) as r, kubernetes() as fake:

        async def cluster() -> Cluster:
            return Cluster.at(fake.url)

        about = {"cluster": cluster, "look_s": 0.05, "home": home, "environ": ENVIRON, **site}
        sandbox = Sandbox(level="rlimits")
        tool = ContainerTool(Site(**about), Processes(sandbox, ENVIRON), SystemClock())
        parts = WorkerParts(
            client=r.client, tools={"container": tool, "noop": NoopTool()}, clock=SystemClock(),
            ids=r.ids, worker_id="w-1", slots=2, redactor=redactor or Redactor(),
        )  # fmt: skip
        working = asyncio.create_task(create_worker(parts).run())
        try:
            yield Bench(r, fake, tool)
        finally:
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
            await tool.close()
