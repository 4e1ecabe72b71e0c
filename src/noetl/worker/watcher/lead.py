"""One watcher works, the others wait: a Lease of Kubernetes says which.

Whether a lease has run out is judged by this machine's own clock: by how long the lease has not
changed, never by the time that another machine wrote into it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from noetl.clock import rfc3339
from noetl.tools.container.kubernetes import ApiRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.clock import Clock
    from noetl.tools.container.kubernetes import Cluster

NAME: Final = "noetl-watcher"
_MISSING, _TAKEN = 404, 409

_log = logging.getLogger("noetl.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How long a lease holds, and how often it is renewed."""

    lease_s: float = 15.0
    renew_s: float = 5.0


class Lead:
    """Holds the lease, or waits for it."""

    def __init__(
        self, cluster: Cluster, namespace: str, holder: str, clock: Clock, terms: Terms
    ) -> None:
        self.is_held = False
        self._cluster = cluster
        self._holder = holder
        self._namespace = namespace
        self._clock = clock
        self._terms = terms
        self._seen: tuple[str, float] = ("", 0.0)
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work while the lease is ours, until cancelled; then let another have it."""
        try:
            while True:
                if not await self._had():
                    await asyncio.sleep(self._terms.renew_s)
                    continue
                _log.info("the watcher leads", extra={"holder": self._holder})
                await self._led(work)
                _log.warning("the watcher leads no longer", extra={"holder": self._holder})
        finally:
            if self.is_held:
                await self._let_go()

    async def _led(self, work: Callable[[], Awaitable[None]]) -> None:
        """Work until the lease is lost; work that fails is a defect, and loud."""
        self.is_held = True
        working = asyncio.ensure_future(work())
        last = self._clock.monotonic()
        try:
            while True:
                await asyncio.wait((working,), timeout=self._terms.renew_s)
                if working.done():
                    working.result()
                    return
                if await self._had():
                    last = self._clock.monotonic()
                elif self._clock.monotonic() - last > self._terms.lease_s * 2 / 3:
                    return
        except asyncio.CancelledError:
            await _ended(working)
            raise
        finally:
            if not working.done():
                self.is_held = False
            await _ended(working)

    async def _had(self) -> bool:
        """Take the lease, or renew it; whether it is ours now."""
        try:
            return await self._taken()
        except (ApiRefused, OSError) as fault:
            if not (isinstance(fault, ApiRefused) and fault.http_status == _TAKEN):
                _log.warning("the lease cannot be had", extra={"reason": str(fault)})
            return False

    async def _taken(self) -> bool:
        now = rfc3339(self._clock.now())
        spec: dict[str, Any] = {
            "holderIdentity": self._holder, "renewTime": now,
            "leaseDurationSeconds": max(1, round(self._terms.lease_s)),
        }  # fmt: skip
        try:
            found = await self._cluster.call("GET", f"{self._path}/{NAME}")
        except ApiRefused as fault:
            if fault.http_status != _MISSING:
                raise
            about = {"name": NAME, "namespace": self._namespace}
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about}
            await self._cluster.call(
                "POST", self._path, {**body, "spec": {**spec, "acquireTime": now}}
            )
            return True
        held = found.get("spec") or {}
        if held.get("holderIdentity") != self._holder:
            if not self._is_over(found, held):
                return False
            changes = int(held.get("leaseTransitions") or 0) + 1
            spec |= {"acquireTime": now, "leaseTransitions": changes}
        body = {**found, "spec": {**held, **spec}}
        await self._cluster.call("PUT", f"{self._path}/{NAME}", body)
        return True

    def _is_over(self, lease: dict[str, Any], held: dict[str, Any]) -> bool:
        version, now = str(lease["metadata"].get("resourceVersion")), self._clock.monotonic()
        if not held.get("holderIdentity"):
            return True
        if self._seen[0] != version:
            self._seen = (version, now)
        lasts_s = float(held.get("leaseDurationSeconds") or self._terms.lease_s)
        return now - self._seen[1] > lasts_s

    async def _let_go(self) -> None:
        """Leave the lease to the next; whoever cannot be told finds out."""
        self.is_held = False
        try:
            found = await self._cluster.call("GET", f"{self._path}/{NAME}", within_s=2.0)
            if found["spec"].get("holderIdentity") == self._holder:
                body = {**found, "spec": {**found["spec"], "holderIdentity": ""}}
                await self._cluster.call("PUT", f"{self._path}/{NAME}", body, within_s=2.0)
        except (ApiRefused, OSError) as fault:
            _log.warning("the lease is left to run out", extra={"reason": str(fault)})


async def _ended(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
