"""Asks a cluster for the ends of jobs, where no watcher runs."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.tools.container.job import SECRETS_KEY
from noetl.tools.container.kubernetes import ApiRefused
from noetl.tools.container.states import deleted, ended, stalled
from noetl.tools.container.ticket import MOST_LOG_BYTES, End

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from noetl.clock import Clock
    from noetl.tools.container.job import Order
    from noetl.tools.container.kubernetes import Cluster
    from noetl.tools.container.ticket import Secrets, Ticket

LEAST_S: Final = 5.0
MOST_S: Final = 30.0
STALL_S: Final = 60.0

_log = logging.getLogger("noetl.worker")


async def secrets_of(cluster: Cluster, ticket: Ticket, again_s: float) -> Secrets:
    """What the Secret of a job says that nobody may see; a cluster that is away is asked again."""
    while True:
        try:
            kept = await cluster.values(ticket.namespace, ticket.name)
            return msgspec.json.decode(kept.get(SECRETS_KEY, b"[]"), type=tuple[str, ...])
        except (ApiRefused, OSError) as fault:
            if isinstance(fault, ApiRefused) and not fault.is_passing:
                about = {"job": ticket.name, "reason": str(fault)}
                _log.error("the Secret of a job cannot be read", extra=about)
                return None
        await asyncio.sleep(again_s)


async def log_of(cluster: Cluster, namespace: str, pods: list[dict[str, Any]]) -> bytes:
    """What the newest pod of a job printed; a log that cannot be had is none."""
    found = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""))
    for pod in reversed(found):
        try:
            log = await cluster.log(namespace, pod["metadata"]["name"], MOST_LOG_BYTES)
        except (ApiRefused, OSError):
            continue
        if log:
            return log
    return b""


class Polling:
    """Looks after one job at a time, less often the longer it runs."""

    name = "kubernetes"

    def __init__(
        self, cluster: Callable[[], Awaitable[Cluster]], clock: Clock, least_s: float = LEAST_S
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._least_s = least_s

    async def run(self, ticket: Ticket, order: Order | None) -> tuple[End, bytes]:
        """Wait for the end of a job that is there."""
        del order
        cluster = await self._cluster()
        delay_s, stalled_s = self._least_s, None
        while True:
            await asyncio.sleep(delay_s)
            delay_s = min(MOST_S, delay_s * 2)
            try:
                job = await cluster.job(ticket.namespace, ticket.name)
                pods = await cluster.pods_of(ticket.namespace, ticket.name)
            except (ApiRefused, OSError):
                continue
            if job is None or job["metadata"]["uid"] != ticket.uid:
                gone: dict[str, Any] = {"metadata": {}, "status": {}}
                return deleted(gone, pods), b""
            end = ended(job, pods)
            if end is None and (why := stalled(pods)) is not None:
                now = self._clock.monotonic()
                stalled_s = now if stalled_s is None else stalled_s
                if now - stalled_s >= STALL_S:
                    end = End(state="failed_image_pull", reason=why)
            elif end is None:
                stalled_s = None
            if end is not None:
                return end, await log_of(cluster, ticket.namespace, pods)

    async def secrets(self, ticket: Ticket) -> Secrets:
        """What the Secret of a job says that nobody may see."""
        return await secrets_of(await self._cluster(), ticket, self._least_s)

    async def stop(self, ticket: Ticket) -> None:
        """Delete a job that nobody waits for."""
        await (await self._cluster()).stop(ticket.namespace, ticket.name, ticket.uid)

    async def clear(self, ticket: Ticket) -> None:
        """Note that the server knows; one whose image cannot be had would try for ever."""
        cluster = await self._cluster()
        job = await cluster.job(ticket.namespace, ticket.name)
        if job is None or job["metadata"]["uid"] != ticket.uid:
            return
        await cluster.mark(ticket.namespace, ticket.name, "told")
        if ended(job, ()) is None:
            await cluster.delete(ticket.namespace, ticket.name, ticket.uid)
