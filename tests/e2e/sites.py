"""Where acceptance tests run: a server and a worker in this process, or the full stack."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.executions import Control, Execute
from noetl.clock import SystemClock
from noetl.ids import Ids
from noetl.local.parts import Parts
from noetl.local.run import stack
from noetl.local.watch import Watch
from noetl.local.workshop import workshop
from tests.e2e.ending import Ending
from tests.e2e.staging import rows_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from noetl.api.executions import Execution
    from tests.servers.stack import FullStack

    Row = dict[str, Any]

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: t/{name}}}\n"
Take = Callable[[Client], Awaitable[None]]
"""Takes what it wants from the server of a site before that ends."""
TAKER = pytest.StashKey[Callable[[pytest.Item], Take]]()
"""Where a plug-in leaves the one who takes from every test: tests/replay records logs so."""
OTHER = {"local": "stack", "stack": "local"}
ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED"})


class Site:
    """A running stack: documents go in, runs come out."""

    def __init__(self, client: Client, *, folder: str = "t", pool: str = "shared") -> None:
        self.client = client
        self._folder = folder
        self._pool = pool
        self._started: list[str] = []

    async def register(self, name: str, body: str) -> str:
        """Keep a playbook under `t/<name>`; on a shared stack `t` is a folder of this site."""
        text = HEAD.format(name=name) + body
        own = text.replace("path: t/", f"path: {self._folder}/")
        return (await self.client.register(Register(content=own))).catalog_id

    async def start(self, body: str, name: str = "main", **payload: Any) -> str:
        """Start a run; its id."""
        wanted = Execute(
            catalog_id=await self.register(name, body), payload=payload, execution_pool=self._pool
        )
        execution_id = (await self.client.execute(wanted)).execution_id
        self._started.append(execution_id)
        return execution_id

    async def run(self, body: str, name: str = "main", **payload: Any) -> Execution:
        """Run to the end."""
        return await self.ended(await self.start(body, name, **payload))

    async def ended(self, execution_id: str) -> Execution:
        """A run as it is when it has ended."""
        await self.saw(execution_id, lambda row: row["event_type"] in ENDS)
        return await self.client.execution(execution_id)

    async def rows(self, execution_id: str) -> list[Row]:
        """The log of a run."""
        return await rows_of(self.client, execution_id)

    async def saw(self, execution_id: str, is_it: Callable[[Row], bool], times: int = 1) -> None:
        """Come back when something has happened in a run, so many times."""
        raise NotImplementedError

    async def children(self, parent: str, count: int) -> dict[str, str]:
        """The children of a run by their keys, as soon as there are so many."""
        raise NotImplementedError

    async def _children(self, parent: str) -> dict[str, str]:
        found = (await self.client.children(parent)).items
        logs = [await self.rows(item.execution_id) for item in found]
        return {rows[0]["meta"]["parent_key"]: rows[0]["execution_id"] for rows in logs}

    async def endings(self) -> list[Ending]:
        """How the runs of this site have ended, in the order of their start."""
        found = [await self.client.execution(execution_id) for execution_id in self._started]
        return [
            Ending(run.status, run.result, run.error, {"": await self.rows(run.execution_id)})
            for run in found
            if run.status in ENDED
        ]

    async def close(self) -> None:
        """Cancel what has not ended."""
        for execution_id in self._started:
            if (await self.client.status(execution_id)).status not in ENDED:
                await self.client.cancel(execution_id, Control(reason="the test is over"))


ENDS = frozenset({"playbook.completed", "playbook.failed", "playbook.cancelled"})


class LocalSite(Site):
    """Server and worker in this process."""

    def __init__(self, client: Client, watch: Seeing) -> None:
        super().__init__(client)
        self._watch = watch

    async def saw(self, execution_id: str, is_it: Callable[[Row], bool], times: int = 1) -> None:
        while True:
            self._watch.seen.clear()
            rows = await self.rows(execution_id)
            if sum(map(is_it, rows)) >= times:
                return
            await self._watch.seen.wait()

    async def children(self, parent: str, count: int) -> dict[str, str]:
        while True:
            self._watch.seen.clear()
            if len(found := await self._children(parent)) >= count:
                return found
            await self._watch.seen.wait()


class StackSite(Site):
    """Processes behind sockets."""

    async def saw(self, execution_id: str, is_it: Callable[[Row], bool], times: int = 1) -> None:
        async for told in self.client.stream(execution_id, fields="full"):
            if "event_type" in told["data"] and is_it(told["data"]):
                times -= 1
                if not times:
                    return
        raise AssertionError(f"it ended with {times} to come: {await self.rows(execution_id)}")

    async def children(self, parent: str, count: int) -> dict[str, str]:
        while len(found := await self._children(parent)) < count:
            pass  # an answer takes its time
        return found


class Seeing(Watch):
    """A watch that wakes whoever waits for the next commit."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = asyncio.Event()

    def commit(self, events: Any) -> None:
        super().commit(events)
        self.seen.set()


class Local:
    """Opens a site in this process."""

    name = "local"

    def __init__(self, folder: Path, take: Take | None = None) -> None:
        self._folder = folder
        self._take = take
        self.endings: list[Ending] = []

    @asynccontextmanager
    async def opened(self, *, slots: int = 8, unstaffed: str = "") -> AsyncIterator[Site]:
        """A site whose workers serve every pool but one."""
        clock = SystemClock()
        watch = Seeing()
        async with workshop(slots) as shop, shop.tools(self._folder, clock) as tools:
            parts = Parts(watch=watch, folder=self._folder, tools=tools, clock=clock,
                          ids=Ids(clock), slots=slots)  # fmt: skip
            async with stack(parts, "") as running:
                if unstaffed:
                    watch.on_pool = lambda pool: (
                        None if pool == unstaffed else running.crew.serve(pool)
                    )
                site = LocalSite(running.client, watch)
                yield site
                self.endings += await site.endings()
                if self._take is not None:
                    await self._take(running.client)


class Full:
    """Opens a site on the full stack."""

    name = "stack"

    def __init__(self, stack: FullStack) -> None:
        self._stack = stack
        self.endings: list[Ending] = []
        self._ids = Ids(SystemClock(), machine=1002)

    @asynccontextmanager
    async def opened(self, *, slots: int = 8, unstaffed: str = "") -> AsyncIterator[Site]:
        """A site whose worker has so many slots; nobody serves a pool that was not asked for."""
        assert unstaffed != "shared"
        pool = self._stack.serve("shared" if slots == 8 else f"slots-{slots}", slots)
        async with self._stack.client() as client:
            site = StackSite(client, folder=f"t{self._ids.new()}", pool=pool)
            try:
                yield site
                self.endings += await site.endings()
            finally:
                await site.close()


def compare(where: Local | Full, case: str, folder: Path) -> None:
    """Keep how the runs of a test ended; who comes second compares, in whichever process."""
    folder.mkdir(exist_ok=True)
    own = folder / f"{case}.{where.name}"
    unready = own.with_suffix(".unready")
    unready.write_bytes(msgspec.json.encode(where.endings))
    unready.rename(own)
    other = folder / f"{case}.{OTHER[where.name]}"
    if other.exists():
        theirs = [Ending(**told) for told in msgspec.json.decode(other.read_bytes())]
        pairs = zip(where.endings, theirs, strict=True)
        differences = [line for one, two in pairs for line in one.differences(two)]
        assert not differences, "\n".join(differences)
