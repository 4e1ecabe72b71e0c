"""The worker: its parts meet here."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from typing import TYPE_CHECKING

from noetl.api.runtime import WorkerEntry
from noetl.dsl.schema import plugin_schemas
from noetl.telemetry.failpoint import armed, failpoint
from noetl.worker.brakes import watch
from noetl.worker.consume import Applicant, Consumer
from noetl.worker.courier import Sender
from noetl.worker.execute import Desk, Executor
from noetl.worker.exits import FLUSH_S, Exit
from noetl.worker.heartbeat import Chart, Heart
from noetl.worker.held import ABANDON_S, Held, Kinds
from noetl.worker.hints import Ear, Listener, Servers
from noetl.worker.logs import Logs
from noetl.worker.objects import Objects
from noetl.worker.parts import WorkerParts
from noetl.worker.patience import patiently
from noetl.worker.playbooks import Playbooks
from noetl.worker.pulse import Pulse
from noetl.worker.report import Reporter
from noetl.worker.results import Results
from noetl.worker.secrets import Asking, Secrets
from noetl.worker.tasks import Bench

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping
    from typing import Any

    from noetl.api.commands import Beat, Command
    from noetl.api.events import Reported
    from noetl.bus.base import Bus
    from noetl.worker.held import Run
    from noetl.worker.secrets import Handed


__all__ = ["Worker", "WorkerParts", "create_worker"]

_log = logging.getLogger("noetl.worker")


def create_worker(parts: WorkerParts) -> Worker:
    """A worker that is ready to run."""
    return Worker(parts)


class Worker:
    """Claims, executes and reports until it is cancelled or drained."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        client, meters = parts.client, parts.meters
        kinds = Kinds(limits=parts.kind_limits, on_excess=self._too_many)
        self.held = Held(parts.slots, self._execute, kinds)
        self.reporter = Reporter(
            Sender(
                client=client,
                clock=parts.clock,
                ids=parts.ids,
                worker_id=parts.worker_id,
                pool=parts.pool,
                held=self.held,
                on_answer=self._answered,
                on_overflow=self._overflowed,
                outbox=parts.outbox,
                parcels=parts.parcels,
                meters=meters,
            )
        )
        self.consumer = Consumer(
            Applicant(
                client=client,
                worker_id=parts.worker_id,
                pool=parts.pool,
                held=self.held,
                reporter=self.reporter,
                meters=meters,
            )
        )
        self.servers = Servers(client, parts.server_url, parts.other)
        self.listener = None if parts.bus is None else Listener(self._ear(parts.bus))
        self.logs = Logs(client, parts.clock, parts.backlog)
        self.heart = Chart(self.held, parts.worker_id, interval_s=parts.heartbeat_s, meters=meters)
        self.secrets = Secrets(
            Asking(
                client=client,
                worker_id=parts.worker_id,
                redactor=parts.redactor,
                register=self.register,
                lifted=parts.lifted,
            )
        )
        if parts.has_key:
            self.secrets.make_key()
        self._executor = Executor(
            Desk(
                bench=Bench(
                    client=client,
                    tools=parts.tools,
                    redactor=parts.redactor,
                    objects=Objects(client),
                    blobs=parts.blobs,
                    stores=parts.stores,
                    scripts=parts.scripts,
                    secrets=self._handed,
                    pool=parts.pool,
                    worker_id=parts.worker_id,
                    ids=parts.ids,
                    ceiling_s=parts.ceiling_s,
                    default_s=parts.default_s,
                    most_runs=parts.most_runs,
                    tracer=parts.tracer,
                ),
                playbooks=Playbooks(client),
                results=Results(client, meters, parts.parcels, parts.inline_bytes),
                reporter=self.reporter,
                logs=self.logs,
                worker_id=parts.worker_id,
                may_start=self.heart.may_start,
                meters=meters,
            )
        )
        self._exit = Exit(client, parts.worker_id)
        self._draining = asyncio.Event()
        self._releases: set[asyncio.Task[None]] = set()
        self.is_registered = False

    @property
    def running(self) -> int:
        """How many commands run now."""
        return self.held.running

    @property
    def idle(self) -> bool:
        """Whether nothing runs and everything was reported."""
        return not len(self.held) and self.reporter.is_empty

    @property
    def owes(self) -> bool:
        """Whether something is to be done when a report was stored, and nothing runs."""
        return not len(self.held) and not self.reporter.afterwards.is_empty

    @property
    def is_ready(self) -> bool:
        """Whether the server lets this worker work."""
        return not self.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why this worker is not ready."""
        states = {
            "not_registered": not self.is_registered,
            "token_refused": self.consumer.is_denied or self.reporter.is_denied,
            "draining": self._draining.is_set(),
            "outbox_full": self.reporter.spill.is_disk_full,
            "no_claims": self.consumer.is_failing and not self._is_bound,
        }
        return tuple(name for name, holds in states.items() if holds)

    @property
    def _is_bound(self) -> bool:
        return self.listener is not None and self.listener.is_bound

    def drain(self) -> None:
        """Take no more work, finish what runs, then leave."""
        self.held.is_closed = True
        self._draining.set()

    async def run(self) -> None:
        """Register, then work; a cancelled worker kills its tools and reports nothing of them."""
        await self.register()
        loops, claims = self._loops()
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
            await _cancelled([*claims, *loops, *self._releases, drained])
            self.reporter.afterwards.end()
            await self.reporter.saved()
            await self.logs.saved()
            if not await self.held.emptied(ABANDON_S):
                _log.error("tools ignore their end", extra={"count": self.held.running})
        await self._exit.leave()

    async def register(self) -> None:
        """Make this worker known to its pool."""
        parts = self._parts
        body = WorkerEntry(
            name=parts.worker_id,
            labels={"pool_name": parts.pool},
            capacity=parts.slots,
            hostname=platform.node(),
            capabilities={
                "kinds": sorted(parts.tools),
                "plugins": plugin_schemas({k: tool.Config for k, tool in parts.tools.items()}),
                "extras": list(parts.extras),
                "sandbox": parts.sandbox,
            },
            runtime={
                "kind": "python",
                "version": platform.python_version(),
                "pid": os.getpid(),
            }
            | ({"worker_public_key": key} if (key := self.secrets.public) else {}),
        )
        joined = await patiently(lambda: parts.client.register_worker(body))
        self.heart.lease_s = joined.lease_seconds
        self.servers.learn(joined.servers)
        if joined.machine_id is not None:
            parts.on_machine(joined.machine_id)
        self.is_registered = True

    def _loops(self) -> tuple[list[asyncio.Task[None]], list[asyncio.Task[None]]]:
        """What runs while the worker lives, and what asks for work."""
        parts = self._parts
        heart: Heart | Pulse = Heart(parts.client, self.heart)
        if parts.heart == "thread":
            heart = Pulse(parts.line, self.heart)
        loops = [
            self._loop(self.reporter.run(), "report"),
            self._loop(self.logs.run(), "logs"),
            self._loop(heart.run(self.register, self._beaten), "heartbeat"),
        ]
        claims = [self._loop(self.consumer.run(), "claim")]
        if parts.brakes:
            loops.append(self._loop(watch(self.held, parts.brakes), "brakes"))
        if self.listener is not None:
            claims.append(self._loop(self.listener.follow(), "hints"))
            loops.append(self._loop(self.listener.obey(), "control"))
        return loops, claims

    def _ear(self, bus: Bus) -> Ear:
        return Ear(
            bus=bus,
            pool=self._parts.pool,
            worker_id=self._parts.worker_id,
            held=self.held,
            consumer=self.consumer,
            servers=self.servers,
            drain=self.drain,
            meters=self._parts.meters,
        )

    # ------------------------------------------------------------------ answers

    def _handed(self, command: Command) -> Handed:
        own, before = self.secrets.of(command), self._parts.secrets
        return own if before is None else before(own)

    async def _execute(self, run: Run) -> None:
        await self._executor.run(run, self.held)

    def _answered(self, answer: Reported, late: Mapping[str, int]) -> None:
        stopped = self.held.stop_ids(answer.cancelled, late)
        self._parts.meters.cancelled("report", stopped)
        self.consumer.counts.took("piggyback", len(answer.claimed))
        self.consumer.press(answer.pressure)
        self.held.take(answer.claimed)

    def _beaten(self, beat: Beat) -> None:
        self.consumer.press(beat.pressure)
        if beat.drain:
            self.drain()

    def _too_many(self, run: Run, reason: str) -> None:
        """More than this worker should have: others may be free."""
        task = self._loop(self._exit.give([run], reason), "release")
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    def _overflowed(self) -> None:
        """What runs now could not be reported: its leases bring it back."""
        running = [run for run in self.held if not run.is_stopped]
        if running:
            _log.error("the outbox overflows", extra={"cancelled": len(running)})
        for run in running:
            self.held.stop(run)

    # ------------------------------------------------------------------ the end

    async def _until_drained(self) -> None:
        await self._draining.wait()

    async def _wind_up(self) -> None:
        """Give back what has not begun, wait for the rest, hand over what there is to tell."""
        held = self.held
        await self._release(held.unstarted())
        if armed:
            await failpoint("worker.drain")
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
        given = list(runs)
        for run in given:
            self.held.stop(run)
        await self._exit.give(given, "drain")

    def _loop(self, coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(coro, name=f"{self._parts.worker_id}:{name}")


async def _cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    """End the tasks and wait for their end."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
