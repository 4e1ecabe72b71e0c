"""A world: servers, workers and clients on one memory; time and order belong to the seed.

A crash is that of `kill -9`: the tasks of the process end where they are, and nothing that they do
on the way out reaches store, bus or wire.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.events import Reports
from noetl.api.executions import Control, Execute, Finalize
from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import LoopClock
from noetl.engine import events as ev
from noetl.ids import Ids
from noetl.server.app import Server, create_server
from noetl.server.parts import ServerParts
from noetl.store.base import Listing
from noetl.store.memory.store import MemoryStore
from noetl.worker.app import Worker, WorkerParts, create_worker
from tests.simulation.backends import FlakyBlobs, FlakyBus, FlakyStore, Process
from tests.simulation.faults import Faults
from tests.simulation.tools import Ledger, tools
from tests.simulation.wire import Endpoint, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from noetl.engine.events import Recorded
    from tests.simulation.faults import Plan

START = datetime(2026, 1, 1, tzinfo=UTC)
STUCK_S = 900.0
"""Longer than anything in a playbook that passes: a world without a commit for so long is stuck."""
SETTLE_S = 70.0
LOOK_S = 2.0


@dataclass(kw_only=True)
class Script:
    """What happens in a world, besides its troubles."""

    seed: int
    playbooks: dict[str, str]
    runs: int = 1
    failing: float = 0.1
    inline_bytes: int = 64 * 1024
    is_tame: bool = True


@dataclass(eq=False)
class ServerProcess:
    """A server from its start to its crash."""

    process: Process
    server: Server
    endpoint: Endpoint
    task: asyncio.Task[None] | None = None


@dataclass(eq=False)
class WorkerProcess:
    """A worker from its start to its crash."""

    process: Process
    worker: Worker
    task: asyncio.Task[None]


@dataclass
class Hooks:
    """Where tests plant defects."""

    store: Callable[[MemoryStore], Any] = lambda store: store
    server: Callable[[Server], None] = lambda _server: None


@dataclass
class Witness:
    """What really happened, whatever the log says."""

    reports: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    """Reports by event id: who sent them, for which command and attempt."""
    accepted: list[str] = field(default_factory=list)
    """Runs whose start was answered with success."""
    crashes: int = 0


class World:
    """Everything of one seed."""

    def __init__(self, script: Script, plan: Plan, hooks: Hooks | None = None) -> None:
        self.script = script
        self.plan = plan
        self.hooks = hooks or Hooks()
        self.faults = Faults(script.seed, plan)
        self.chance = random.Random(f"world/{script.seed}")
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(self._unheard)
        self.clock = LoopClock(self.loop, START)
        self.store = MemoryStore(self._committed)
        self.backing = self.hooks.store(self.store)
        self.bus = MemoryBus()
        self.blobs = MemoryBlobs()
        self.ledger = Ledger(
            script.seed,
            self._place_of,
            script.failing,
            claims_fail=not script.is_tame,
            is_large=script.inline_bytes < 64 * 1024,
        )
        self.witness = Witness()
        self.servers: list[ServerProcess] = []
        self.workers: list[WorkerProcess] = []
        self.faulted: list[BaseException] = []
        self._machines = 0
        self._moved_at = 0.0
        self._places: dict[str, str] = {}
        self._started: dict[str, str] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._dying: list[Any] = []
        self._outside = Process("client", self.faults)
        self.client = Client(Wire(self._outside, self._endpoints))

    # ------------------------------------------------------------------ processes

    def start_server(self) -> None:
        """A new server on the same store."""
        self._machines += 1
        process = Process(f"server-{self._machines}", self.faults)
        parts = ServerParts(
            store=FlakyStore(self.backing, process),  # type: ignore[arg-type] - every part by name
            bus=FlakyBus(self.bus, process),
            blobs=FlakyBlobs(self.blobs, process),  # type: ignore[arg-type] - as above
            clock=self.clock,
            ids=Ids(self.clock, self._machines),
            lease_s=self.plan.lease_s,
            inline_bytes=self.script.inline_bytes,
            is_alone=self.plan.servers == 1,
        )
        server = create_server(parts)
        self.hooks.server(server)
        made = ServerProcess(process, server, Endpoint(process, server.asgi))
        process.on_crash = lambda: self.crash_server(made)
        made.task = self.loop.create_task(self._serve(made), name=process.name)
        self.servers.append(made)

    async def _serve(self, made: ServerProcess) -> None:
        try:
            async with made.server:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise
        except BaseException as defect:  # noqa: BLE001 - a server that dies by itself is a finding
            if not made.process.is_dead:
                self.faulted.append(defect)
                self.crash_server(made)

    def crash_server(self, made: ServerProcess) -> None:
        """kill -9, and a new one after a while."""
        if made.process.is_dead:
            return
        self.witness.crashes += 1
        made.process.is_dead = True
        self.servers.remove(made)
        made.endpoint.crash()
        if made.task is not None:
            made.task.cancel()
        self._dying.append(made)
        self.spawn(self._later(self.start_server))

    def start_worker(self) -> None:
        """A new worker."""
        self._machines += 1
        name = f"worker-{self._machines}"
        process = Process(name, self.faults)
        client = Client(Wire(process, self._endpoints, self._seen))
        worker = create_worker(
            WorkerParts(
                client=client,
                tools=tools(self.ledger, self.clock),
                clock=self.clock,
                ids=Ids(self.clock, self._machines),
                worker_id=name,
                slots=self.chance.choice([1, 2, 8]),
                bus=FlakyBus(self.bus, process),
            )
        )
        made = WorkerProcess(process, worker, self.loop.create_task(worker.run(), name=name))
        made.task.add_done_callback(lambda task: self._worker_ended(made, task))
        self.workers.append(made)

    def _worker_ended(self, made: WorkerProcess, task: asyncio.Task[None]) -> None:
        if task.cancelled() or made.process.is_dead:
            return
        self.faulted.append(task.exception() or RuntimeError("a worker ended by itself"))

    def crash_worker(self, made: WorkerProcess) -> None:
        """kill -9, and a new one after a while."""
        self.witness.crashes += 1
        made.process.is_dead = True
        self.workers.remove(made)
        made.task.cancel()
        self._dying.append(made)
        self.spawn(self._later(self.start_worker))

    async def _later(self, start: Callable[[], None]) -> None:
        await asyncio.sleep(self.faults.chance.choice([0.0, 0.3, 5.0]))
        start()

    def _unheard(self, _loop: object, context: dict[str, Any]) -> None:
        """An exception that nobody took is a finding, as long as anyone lives who could."""
        fault = context.get("exception")
        self.faulted.append(fault or RuntimeError(context["message"]))

    def _endpoints(self) -> list[Endpoint]:
        return [made.endpoint for made in self.servers]

    # ------------------------------------------------------------------ the story

    async def live(self) -> None:
        """From the first start to the last answer; what is left is for the oracle."""
        for _ in range(self.plan.servers):
            self.start_server()
        for _ in range(self.plan.workers):
            self.start_worker()
        troubles = [self.spawn(story) for story in self._troubles()]
        for number in range(self.script.runs):
            self.spawn(self._run(number))
        await asyncio.sleep(self.plan.chaos_s)
        self.faults.end()
        for task in troubles:
            task.cancel()
        for made in [*self.workers]:
            made.process.is_cut = False
        await self._all_ended()
        await asyncio.sleep(SETTLE_S)

    async def _all_ended(self) -> None:
        wanted = self.script.runs
        while self.loop.time() < max(self._moved_at, self.plan.chaos_s) + STUCK_S:
            rows = await self.store.executions.listed(Listing(limit=10_000))
            has_all = len(self._started) == wanted
            if has_all and all(row.completed_at is not None for row in rows):
                return
            await asyncio.sleep(LOOK_S)

    async def end(self) -> None:
        """Stop everything."""
        for task in list(self._tasks):
            task.cancel()
        ending: list[asyncio.Task[None]] = list(self._tasks)
        for worker in self.workers:
            worker.process.is_dead = True
            worker.task.cancel()
        for server in self.servers:
            if server.task is not None:
                server.task.cancel()
            server.endpoint.crash()
        processes = [*self.workers, *self.servers, *self._dying]
        ending += [made.task for made in processes if made.task is not None]
        await asyncio.gather(*ending, return_exceptions=True)

    def _troubles(self) -> list[Coroutine[Any, Any, None]]:
        plan = self.plan
        found = []
        if plan.server_crash_every_s:
            found.append(self._every(plan.server_crash_every_s, self._crash_some_server))
        if plan.worker_crash_every_s:
            found.append(self._every(plan.worker_crash_every_s, self._crash_some_worker))
        if plan.partition_every_s:
            found.append(self._every(plan.partition_every_s, self._cut_some_worker))
        return found

    async def _every(self, seconds: float, act: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(self.faults.chance.expovariate(1 / seconds))
            act()

    def _crash_some_server(self) -> None:
        if self.servers:
            self.crash_server(self.faults.chance.choice(self.servers))

    def _crash_some_worker(self) -> None:
        if self.workers:
            self.crash_worker(self.faults.chance.choice(self.workers))

    def _cut_some_worker(self) -> None:
        if self.workers:
            made = self.faults.chance.choice(self.workers)
            made.process.is_cut = True
            self.spawn(self._heal(made.process))

    async def _heal(self, process: Process) -> None:
        await asyncio.sleep(self.faults.chance.uniform(0.5, 2.5) * self.plan.lease_s)
        process.is_cut = False

    # ------------------------------------------------------------------ clients

    async def _run(self, number: int) -> None:
        """Register, start, and steer one run."""
        chance = random.Random(f"client/{self.script.seed}/{number}")
        for text in self.script.playbooks.values():
            await self.insist(lambda text=text: self.client.register(Register(content=text)))
        execution_id = str(7_000_000_000 + number)
        body = Execute(
            path="sim/top", execution_id=execution_id, payload={"on": chance.random() < 0.5}
        )
        started = await self.insist(lambda: self.client.execute(body))
        self.witness.accepted.append(started.execution_id)
        self._started[execution_id] = f"run{number}"
        if chance.random() < self.plan.pause:
            await asyncio.sleep(chance.random() * self.plan.chaos_s)
            await self.steer(lambda: self.client.pause(execution_id, Control()))
            await asyncio.sleep(chance.random() * 60)
            await self.steer(lambda: self.client.resume(execution_id, Control()))
        if chance.random() < self.plan.cancel:
            await asyncio.sleep(chance.random() ** 2 * self.plan.chaos_s)
            status = chance.choice(["cancel", "cancel", "COMPLETED", "FAILED", "CANCELLED"])
            if status == "cancel":
                await self.steer(lambda: self.client.cancel(execution_id, Control()))
            else:
                end = Finalize(status=status)
                await self.steer(lambda: self.client.finalize(execution_id, end))

    async def insist(self, call: Callable[[], Any]) -> Any:
        """Ask until there is an answer; a refusal that will not pass is raised."""
        while True:
            try:
                return await call()
            except NoAnswer:
                pass
            except Refused as refusal:
                if refusal.problem.status < 500 and refusal.code != "version_conflict":
                    raise
            await asyncio.sleep(0.5 + self.faults.chance.random())

    async def steer(self, call: Callable[[], Any]) -> None:
        """Ask until there is an answer, whatever it says."""
        try:
            await self.insist(call)
        except Refused:
            return

    def _committed(self, events: Sequence[Recorded]) -> None:
        self._moved_at = self.loop.time()
        for item in events:
            event = item.event
            if isinstance(event, ev.CommandParked) and event.callback_key is not None:
                self.spawn(self._answer(item.execution_id, event, event.callback_key))

    async def _answer(self, execution_id: str, event: ev.CommandParked, key: str) -> None:
        place = await self._place_of(execution_id)
        chance = random.Random(f"answer/{self.script.seed}/{place}/{event.command_key}")
        await asyncio.sleep(chance.choice([0.0, 1.0, 20.0]))
        body = msgspec.json.encode({"said": f"{place}/{event.command_key}"})
        await self.steer(lambda: self.client.answer(key, body))

    def spawn(self, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(coro)
        self._tasks[task] = None
        task.add_done_callback(self._spawned)
        return task

    def _spawned(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            self.faulted.append(task.exception())  # type: ignore[arg-type] - it is not none

    # ------------------------------------------------------------------ names

    async def _place_of(self, execution_id: str) -> str:
        """A run's place in its family: the same in every world of the seed."""
        found = self._places.get(execution_id)
        if found is None:
            row = await self.store.executions.get(execution_id)
            assert row is not None
            if row.parent_execution_id is None:
                found = f"run{int(execution_id) - 7_000_000_000}"
            else:
                found = await self._place_below(row.parent_execution_id, execution_id)
            self._places[execution_id] = found
        return found

    async def _place_below(self, parent_id: str, execution_id: str) -> str:
        """The place of a child: which request of the parent it is, however often it was tried.

        The key of a child counts attempts of its command, and lost workers are attempts too.
        """
        family = await self.store.executions.children(parent_id)
        keys = {row.execution_id: str(row.parent_key).partition("~")[0] for row in family}
        mine = keys[execution_id]
        number = [other for other, key in keys.items() if key == mine].index(execution_id)
        return f"{await self._place_of(parent_id)}>{mine}.{number}"

    async def places(self) -> dict[str, str]:
        """The place of every run, by its id."""
        rows = await self.store.executions.listed(Listing(limit=10_000))
        return {row.execution_id: await self._place_of(row.execution_id) for row in rows}

    def _seen(self, path: str, body: bytes) -> None:
        if path == "/api/events/batch":
            told = msgspec.json.decode(body, type=Reports)
            for report in told.events:
                sent = (told.worker_id, report.command_id, report.attempt)
                self.witness.reports[report.event_id] = sent
