"""Limits of tenants and accounts: how many runs may be under way, and how fast runs are asked for.

Nothing here waits for the store. Runs are counted there by a task beside, at most once a second,
and what this server begins and ends in between is added; other servers are seen at the next count.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from noetl.edge.errors import QuotaExceeded, RateLimited
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.server.access.caller import Caller
    from noetl.store.base import Store

RUNNING: Final = 100_000
"""Runs of a tenant that have not ended."""
RATE: Final = 200.0
"""Runs that an account may ask for in a second, for long."""
BURST: Final = 1_000.0
"""Runs that it may ask for at once, after a rest."""
SOON_S: Final = 1.0
LATER_S: Final = 5.0
"""How often a tenant is counted that is far from its limit."""
MOST_KEPT: Final = 10_000
_NEVER: Final = -float("inf")
_log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Tenant:
    """What is known of a tenant."""

    running: int = 0
    """As counted last, and what this server has begun and ended since."""
    asked_for: int = 0
    """Runs that this server is about to begin."""
    counted_at: float = _NEVER
    counting: asyncio.Task[None] | None = None
    most: int = RUNNING
    rate: float = RATE
    burst: float = BURST

    @property
    def is_full(self) -> bool:
        """Whether there is no room for one more."""
        return self.running + self.asked_for >= self.most


class Quotas:
    """Keeps tenants and accounts within their limits."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()
        self._accounts: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()
        """What is left of the burst of an account, and since when."""

    def begun(self, tenant_id: str) -> None:
        """A run was written that had not begun.

        A count that was under way may know of it too: the limit is kept, if anything, too early.
        """
        if (tenant := self._tenants.get(tenant_id)) is not None:
            tenant.running += 1

    def ended(self, tenant_id: str) -> None:
        """A run was written that has ended."""
        if (tenant := self._tenants.get(tenant_id)) is not None:
            tenant.running -= 1

    async def enter(self, tenant_id: str) -> None:
        """Begin a run, if there is room for one more; `leave` when it was written, or not.

        Only where there seems to be none, it is waited for a count that is under way.
        """
        tenant = self._tenant(tenant_id)
        if tenant.is_full and tenant.counting is not None:
            await asyncio.shield(tenant.counting)
        if tenant.is_full:
            raise QuotaExceeded(
                f"{tenant.most} runs of the tenant {tenant_id!r} are under way",
                hint="wait until some have ended",
            )
        tenant.asked_for += 1

    def leave(self, tenant_id: str) -> None:
        """A run was begun, or could not be."""
        if (tenant := self._tenants.get(tenant_id)) is not None:
            tenant.asked_for -= 1

    def pace(self, caller: Caller, count: int = 1) -> None:
        """Refuse an account that asks for more runs than it may in so short a time.

        A batch is let in as a whole when one run may begin, and what it is over is waited for
        afterwards; what did not begin is given back with a negative count.
        """
        if not caller.is_bound:
            return
        tenant = self._tenant(caller.tenant_id)
        key, now = (caller.tenant_id, caller.account), self._clock.monotonic()
        left, at = self._accounts.get(key, (tenant.burst, now))
        left = min(tenant.burst, left + (now - at) * tenant.rate)
        if left < 1 <= count:
            raise RateLimited(
                f"the account {caller.account!r} asks for more than {tenant.rate:g} runs a second",
                retry_after=(1 - left) / tenant.rate,
            )
        self._accounts[key] = (min(tenant.burst, left - count), now)
        self._accounts.move_to_end(key)
        if len(self._accounts) > MOST_KEPT:
            self._accounts.popitem(last=False)

    def _tenant(self, tenant_id: str) -> _Tenant:
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            tenant = self._tenants[tenant_id] = _Tenant()
            self._make_room()
        is_near = tenant.running + tenant.asked_for >= tenant.most / 2
        age = self._clock.monotonic() - tenant.counted_at
        if age >= (SOON_S if is_near else LATER_S) and tenant.counting is None:
            tenant.counting = asyncio.create_task(self._count(tenant_id, tenant), name="quota")
        return tenant

    def _make_room(self) -> None:
        """Forget the tenant that is known longest, unless it is about to begin something."""
        if len(self._tenants) > MOST_KEPT:
            name, oldest = next(iter(self._tenants.items()))
            if oldest.asked_for or oldest.counting is not None:
                self._tenants.move_to_end(name)
            else:
                del self._tenants[name]

    async def _count(self, tenant_id: str, tenant: _Tenant) -> None:
        try:
            known = await self._store.tenants.get(tenant_id)
            limits: dict[str, Any] = {} if known is None else known.limits
            tenant.most = int(limits.get("running_executions", RUNNING))
            tenant.rate = max(float(limits.get("execute_rate", RATE)), 0.001)
            tenant.burst = max(float(limits.get("execute_burst", BURST)), 1.0)
            tenant.running = await self._store.executions.running(tenant_id)
        except (NoetlError, TypeError, ValueError) as fault:  # the next look tries again
            _log.warning("the runs of a tenant were not counted", extra={"reason": str(fault)})
        finally:
            tenant.counted_at = self._clock.monotonic()
            tenant.counting = None
