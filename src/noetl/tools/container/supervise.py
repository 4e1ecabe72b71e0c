"""Watches over jobs that this worker runs itself, outside the slots of its commands.

Each job has a record on the disk until the server has been told of its end, so a worker that is
started again knows which jobs it left behind. Whether somebody still waits for a job is asked with
a beat: the server answers which commands have ended, and their jobs are stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, get_args

import msgspec

from noetl.api.callbacks import ContainerState
from noetl.api.commands import Heartbeat, Held
from noetl.tools.container.report import Messenger, as_worker
from noetl.tools.container.ticket import Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from noetl.api.client import Client
    from noetl.telemetry.redact import Redactor
    from noetl.tools.container.job import Order
    from noetl.tools.container.ticket import End, Secrets

MOST: Final = 16
LOOK_S: Final = 5.0
STOP_S: Final = 15.0
RUNTIMES: Final = ("kubernetes", "podman", "process")
STATES: Final = ("created", *get_args(ContainerState), "cancelled")
"""What is counted: jobs that were begun, and what became of those watched over from here."""
_ASKING: Final = "container-supervisor"

_log = logging.getLogger("noetl.worker")


class Runtime(Protocol):
    """Where jobs run that are watched over from here."""

    name: str

    async def run(self, ticket: Ticket, order: Order | None) -> tuple[End, bytes]:
        """Start a job, or find the one of an order that is gone; how it ended, and its log."""

    async def secrets(self, ticket: Ticket) -> Secrets:
        """What a job was given that nobody may see, by what its order left."""

    async def stop(self, ticket: Ticket) -> None:
        """End a job that nobody waits for."""

    async def clear(self, ticket: Ticket) -> None:
        """Remove what is left of a job whose end was told."""


@dataclass(slots=True)
class _Watched:
    ticket: Ticket
    runtime: Runtime
    client: Client
    task: asyncio.Task[None] | None = None
    is_over: bool = False
    """Its end is known, and is being told."""


async def wanted(client: Client, tickets: Iterable[Ticket]) -> frozenset[str]:
    """The commands of these jobs that nobody waits for any more."""
    held = tuple(Held(command_id=one.command_id, attempt=0) for one in tickets)
    if not held:
        return frozenset()
    beat = await client.heartbeat(Heartbeat(worker_id=_ASKING, commands=held))
    return frozenset(beat.cancel)


class Supervisor:
    """The jobs of one worker."""

    def __init__(
        self,
        home: Path | None = None,
        *,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        look_s: float = LOOK_S,
    ) -> None:
        self.tally: Counter[tuple[str, str]] = Counter()
        """Jobs by runtime and what became of them."""
        self._home = home
        self._around = around
        self._look_s = look_s
        self._room = asyncio.Semaphore(MOST)
        self._jobs: dict[str, _Watched] = {}
        self._looking: asyncio.Task[None] | None = None

    def __contains__(self, name: str) -> bool:
        """Whether a job of that name is watched over."""
        return name in self._jobs

    def __len__(self) -> int:
        """How many jobs are watched over."""
        return len(self._jobs)

    def ticket(self, name: str) -> Ticket:
        """The job of that name."""
        return self._jobs[name].ticket

    async def take(
        self,
        runtime: Runtime,
        order: Order,
        client: Client,
        redactor: Redactor | None = None,
        *,
        is_limited: bool = True,
    ) -> None:
        """Run a job from now on; waits while there are too many."""
        if is_limited:
            await self._room.acquire()
        self._record(order.ticket)
        self.tally[runtime.name, "created"] += 1
        self._begin(runtime, order.ticket, order, (client, redactor), is_limited=is_limited)

    async def adopt(
        self, runtimes: Mapping[str, Runtime], client: Client, redactor: Redactor | None = None
    ) -> int:
        """Go on with what an earlier process of this worker left; how many jobs there were."""
        found = self._records()
        for ticket in found:
            runtime = runtimes.get(ticket.runtime)
            if runtime is not None and ticket.name not in self._jobs:
                self._begin(runtime, ticket, None, (client, redactor), is_limited=False)
        return len(found)

    async def stop(self, name: str) -> None:
        """End a job that nobody waits for; its end is not told."""
        found = self._jobs.pop(name, None)
        if found is None:
            return
        if found.task is not None:
            found.task.cancel()
            await asyncio.gather(found.task, return_exceptions=True)
        with self._around():
            await found.runtime.stop(found.ticket)
            await found.runtime.clear(found.ticket)
        self.tally[found.runtime.name, "cancelled"] += 1
        self._forget(found.ticket)

    async def close(self) -> None:
        """Watch no longer; the records stay for the next process of this worker."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        if self._looking is not None:
            tasks.append(self._looking)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._jobs.clear()

    # ------------------------------------------------------------------ one job

    def _begin(
        self,
        runtime: Runtime,
        ticket: Ticket,
        order: Order | None,
        telling: tuple[Client, Redactor | None],
        *,
        is_limited: bool,
    ) -> None:
        client, redactor = telling
        watched = _Watched(ticket, runtime, client)
        self._jobs[ticket.name] = watched
        messenger = Messenger(client, as_worker(client), redactor=redactor)
        watched.task = asyncio.create_task(
            self._watched(watched, order, messenger), name=f"container:{ticket.name}"
        )
        if is_limited:
            watched.task.add_done_callback(lambda _: self._room.release())
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="container:look")

    async def _watched(self, job: _Watched, order: Order | None, messenger: Messenger) -> None:
        try:
            with self._around():
                found = await job.runtime.secrets(job.ticket) if order is None else order.secrets
                end, log = await job.runtime.run(job.ticket, order)
                job.is_over = True
                await messenger.tell(job.ticket, end, log, found)
                await job.runtime.clear(job.ticket)
            self.tally[job.runtime.name, end.state] += 1
            self._forget(job.ticket)
        except Exception:  # noqa: BLE001 - the border: nobody awaits this task
            _log.exception("a job is watched no longer", extra={"job": job.ticket.name})
        finally:
            if self._jobs.get(job.ticket.name) is job:
                del self._jobs[job.ticket.name]

    async def _look(self) -> None:
        """Stop jobs whose commands have ended, while there are jobs."""
        while self._jobs:
            await asyncio.sleep(self._look_s)
            jobs = [job for job in self._jobs.values() if not job.is_over]
            by_client: dict[int, list[_Watched]] = {}
            for job in jobs:
                by_client.setdefault(id(job.client), []).append(job)
            for group in by_client.values():
                await self._looked(group)

    async def _looked(self, jobs: list[_Watched]) -> None:
        try:
            over = await wanted(jobs[0].client, [job.ticket for job in jobs])
            for job in jobs:
                if job.ticket.command_id in over and not job.is_over:
                    async with asyncio.timeout(STOP_S):
                        await self.stop(job.ticket.name)
        except Exception as fault:  # noqa: BLE001 - the border: the next look asks again
            _log.warning("jobs cannot be looked after", extra={"reason": str(fault)})

    # ------------------------------------------------------------------ records

    def _record(self, ticket: Ticket) -> None:
        if self._home is None:
            return
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._home / f".{ticket.name}.draft"
        draft.write_bytes(msgspec.json.encode(ticket))
        draft.rename(self._home / f"{ticket.name}.json")

    def _forget(self, ticket: Ticket) -> None:
        if self._home is not None:
            (self._home / f"{ticket.name}.json").unlink(missing_ok=True)

    def _records(self) -> list[Ticket]:
        found = []
        for file in sorted(self._home.glob("*.json")) if self._home is not None else ():
            try:
                found.append(msgspec.json.decode(file.read_bytes(), type=Ticket))
            except msgspec.DecodeError:
                _log.error("a record of a job is damaged", extra={"file": file.name})
                file.unlink()
        return found
