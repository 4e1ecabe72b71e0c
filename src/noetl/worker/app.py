"""The worker: its parts meet here."""

from __future__ import annotations

import asyncio
import logging
import platform
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from noetl.api.commands import Held as HeldCommand
from noetl.api.commands import Release
from noetl.api.runtime import Left, WorkerEntry
from noetl.telemetry.redact import Redactor
from noetl.worker.consume import Consumer
from noetl.worker.execute import Desk, Executor
from noetl.worker.heartbeat import Heart
from noetl.worker.held import ABANDON_S, Held
from noetl.worker.logs import Logs
from noetl.worker.objects import Objects
from noetl.worker.patience import patiently
from noetl.worker.playbooks import Playbooks
from noetl.worker.report import Reporter, Sender
from noetl.worker.results import Results
from noetl.worker.tasks import CEILING_S, Bench

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping
    from typing import Any

    from noetl.api.client import Client
    from noetl.api.commands import Beat
    from noetl.api.events import Reported
    from noetl.blobs.base import Blobs
    from noetl.bus.base import Bus
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.tools.base import Tool
    from noetl.worker.held import Run
    from noetl.worker.tasks import Keychain, Secrets

DRAIN_S: Final = 25.0
FLUSH_S: Final = 5.0

_log = logging.getLogger("noetl.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What a worker is made of."""

    client: Client
    tools: Mapping[str, Tool]
    clock: Clock
    ids: Ids
    worker_id: str
    pool: str = "shared"
    slots: int = 16
    bus: Bus | None = None
    blobs: Blobs | None = None
    """Where tools read and leave large bytes; they refuse such work without it."""
    redactor: Redactor = field(default_factory=Redactor)
    keychain: Keychain | None = None
    """Resolves the keychain entries that a task names, just before it runs."""
    secrets: Secrets | None = None
    """Gives a tool the fields of a credential by its name."""
    drain_s: float = DRAIN_S
    ceiling_s: float = CEILING_S
    sandbox: str = ""


def create_worker(parts: WorkerParts) -> Worker:
    """A worker that is ready to run."""
    return Worker(parts)


class Worker:
    """Claims, executes and reports until it is cancelled or drained."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        client = parts.client
        self.held = Held(parts.slots, self._execute)
        self.reporter = Reporter(
            Sender(
                client=client,
                clock=parts.clock,
                ids=parts.ids,
                worker_id=parts.worker_id,
                pool=parts.pool,
                held=self.held,
                on_answer=self._answered,
            )
        )
        self.consumer = Consumer(
            client, self.held, self.reporter, worker_id=parts.worker_id, pool=parts.pool
        )
        self.logs = Logs(client, parts.clock)
        self.heart = Heart(client, self.held, parts.worker_id)
        self._executor = Executor(
            Desk(
                bench=Bench(
                    client=client,
                    tools=parts.tools,
                    clock=parts.clock,
                    redactor=parts.redactor,
                    objects=Objects(client),
                    blobs=parts.blobs,
                    keychain=parts.keychain,
                    secrets=parts.secrets,
                    ceiling_s=parts.ceiling_s,
                ),
                playbooks=Playbooks(client),
                results=Results(client),
                reporter=self.reporter,
                logs=self.logs,
                worker_id=parts.worker_id,
                may_start=self.heart.may_start,
            )
        )
        self._draining = asyncio.Event()

    @property
    def running(self) -> int:
        """How many commands run now."""
        return self.held.running

    @property
    def idle(self) -> bool:
        """Whether nothing runs and everything was reported."""
        return not len(self.held) and self.reporter.is_empty

    @property
    def is_ready(self) -> bool:
        """Whether the server lets this worker work."""
        denied = self.consumer.is_denied or self.reporter.is_denied
        return not denied and not self._draining.is_set()

    def drain(self) -> None:
        """Take no more work, finish what runs, then leave."""
        self.held.is_closed = True
        self._draining.set()

    async def run(self) -> None:
        """Register, then work; a cancelled worker kills its tools and reports nothing of them."""
        await self.register()
        loops = [
            self._loop(self.reporter.run(), "report"),
            self._loop(self.logs.run(), "logs"),
            self._loop(self.heart.run(self.register, self._beaten), "heartbeat"),
        ]
        claims = [self._loop(self.consumer.run(), "claim")]
        if self._parts.bus is not None:
            claims.append(self._loop(self.consumer.follow(self._parts.bus), "hints"))
            loops.append(self._loop(self.consumer.obey(self._parts.bus), "control"))
        drained = self._loop(self._until_drained(), "drain")
        try:
            done, _ = await asyncio.wait(
                (*loops, *claims, drained), return_when=asyncio.FIRST_COMPLETED
            )
            for task in done - {drained}:
                task.result()  # a loop that ends is a defect: be loud
            await _cancelled(claims)
            await self._wind_up()
        finally:
            self.held.is_closed = True
            for run in list(self.held):
                self.held.stop(run)
            await _cancelled([*claims, *loops, drained])
            if not await self.held.emptied(ABANDON_S):
                _log.error("tools ignore their end", extra={"count": self.held.running})
        await self._leave()

    async def register(self) -> None:
        """Make this worker known to its pool."""
        parts = self._parts
        body = WorkerEntry(
            name=parts.worker_id,
            labels={"pool_name": parts.pool},
            capacity=parts.slots,
            hostname=platform.node(),
            capabilities={"kinds": sorted(parts.tools), "sandbox": parts.sandbox},
            runtime={"kind": "python", "version": platform.python_version()},
        )
        joined = await patiently(lambda: parts.client.register_worker(body))
        self.heart.lease_s = joined.lease_seconds

    # ------------------------------------------------------------------ answers

    async def _execute(self, run: Run) -> None:
        await self._executor.run(run, self.held)

    def _answered(self, answer: Reported, late: Mapping[str, int]) -> None:
        self.held.stop_ids(answer.cancelled, late)
        self.consumer.counts.took("piggyback", len(answer.claimed))
        self.consumer.press(answer.pressure)
        self.held.take(answer.claimed)

    def _beaten(self, beat: Beat) -> None:
        self.consumer.press(beat.pressure)
        if beat.drain:
            self.drain()

    # ------------------------------------------------------------------ the end

    async def _until_drained(self) -> None:
        await self._draining.wait()

    async def _wind_up(self) -> None:
        """Give back what has not begun, wait for the rest, hand over what there is to tell."""
        held = self.held
        await self._release(held.unstarted())
        if not await held.emptied(self._parts.drain_s):
            _log.warning("commands outlast the drain", extra={"count": held.running})
        await self._release([run for run in held if not run.is_stopped])
        try:
            async with asyncio.timeout(FLUSH_S):
                await self.reporter.flushed()
                await self.logs.flushed()
        except TimeoutError:
            _log.error("the worker leaves with reports unsent")

    async def _release(self, runs: Iterable[Run]) -> None:
        """Stop these commands and let other workers have them at once."""
        given = []
        for run in runs:
            self.held.stop(run)
            command = run.command
            given.append(
                HeldCommand(
                    command_id=command.command_id,
                    attempt=command.attempt,
                    checkpoint=run.checkpoint() if run.checkpoint else None,
                )
            )
        if not given:
            return
        body = Release(worker_id=self._parts.worker_id, commands=tuple(given))
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._parts.client.release(body)
        except Exception as fault:  # noqa: BLE001 - the border: the leases run out and bring them back
            _log.warning("commands could not be given back", extra={"reason": str(fault)})

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._parts.client.leave(Left(name=self._parts.worker_id))
        except Exception as fault:  # noqa: BLE001 - the border: the server forgets us by itself
            _log.warning("the worker could not take leave", extra={"reason": str(fault)})

    def _loop(self, coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(coro, name=f"{self._parts.worker_id}:{name}")


async def _cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    """End the tasks and wait for their end."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
