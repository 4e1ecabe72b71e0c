"""The workers of a local run: one for every pool that has work."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from noetl.worker.app import create_worker

if TYPE_CHECKING:
    from noetl.worker.app import Worker, WorkerParts


@dataclass(frozen=True, slots=True)
class _Hired:
    worker: Worker
    task: asyncio.Task[None]


class Crew:
    """Hires a worker when a pool is named for the first time."""

    def __init__(self, group: asyncio.TaskGroup, parts: WorkerParts) -> None:
        self._group = group
        self._parts = parts
        self._hired: dict[str, _Hired] = {}
        self._count = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let idle workers hand over what they still have to tell; end the others at once."""
        for hired in self._hired.values():
            if hired.worker.idle or hired.worker.owes:
                hired.worker.drain()
            else:
                hired.task.cancel()
        await asyncio.gather(
            *(hired.task for hired in self._hired.values()), return_exceptions=True
        )

    def serve(self, pool: str) -> None:
        """See to it that somebody works for a pool."""
        if pool in self._hired:
            return
        self._count += 1
        name = f"{self._parts.worker_id}-{pool}-{self._count}"
        worker = create_worker(replace(self._parts, worker_id=name, pool=pool))
        self._hired[pool] = _Hired(worker, self._group.create_task(worker.run(), name=name))

    def crash(self) -> None:
        """Lose every worker as if its machine had died, and hire others."""
        lost, self._hired = self._hired, {}
        for pool, hired in lost.items():
            hired.task.cancel()
            self.serve(pool)
