"""Values that come from elsewhere, kept for a while and renewed in time, one renewal at a time.

Those who want the same value of one server share a flight; of several servers on one store, one
has the turn, and the others wait for what it keeps.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from noetl.clock import rfc3339
from noetl.edge.moments import from_now
from noetl.errors import NoetlError
from noetl.ids import random_key
from noetl.secrets.kek.base import RecordDamaged
from noetl.server.wallet.keychain.values import KEPT_S, RESOLVED, Value

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from noetl.clock import Clock
    from noetl.server.wallet.keychain.flights import Flights
    from noetl.server.wallet.keychain.values import Keychain, Spot
    from noetl.store.secrets import KeychainRow, Turns

EARLY_S: Final = 60.0
"""So long before its end a value counts as old: it is served while a new one is fetched."""
LEAST_S: Final = 5.0
TURN_S: Final = 20.0
"""How long one server may take to make a value, before another one tries."""
LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A value as tasks read it; never shown."""

    type: str
    fields: Mapping[str, Any] = field(repr=False)
    expires_in: float | None = None
    until: str | None = None
    """When it ends, of one that is kept elsewhere."""


Make: TypeAlias = "Callable[[Value | None], Awaitable[Made]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How a value is kept."""

    ttl_s: float | None = None
    renews: dict[str, Any] | None = None
    """By what it is renewed ahead of its end; none: it is not."""
    cache_type: str = RESOLVED


AS_IT_COMES: Final = Keeping()


class Kept:
    """Serves what is kept, and has made anew what is old."""

    def __init__(self, keychain: Keychain, flights: Flights, turns: Turns, clock: Clock) -> None:
        self._keychain = keychain
        self._flights = flights
        self._turns = turns
        self._clock = clock
        self._holder = random_key()
        self._reads: Counter[str] = Counter()
        self.was_read = asyncio.Event()
        """Set by the first read that nobody has counted yet."""

    async def get(
        self, tenant_id: str, spot: Spot, make: Make, keeping: Keeping = AS_IT_COMES
    ) -> Value:
        """The value of a place, made when there is none."""
        renew = partial(self.renewed, tenant_id, spot, make, keeping)
        self._reads[spot.cache_key] += 1
        self.was_read.set()
        row = await self._keychain.at(spot)
        value = await self._opened(tenant_id, row)
        if row is not None and value is not None:
            now = rfc3339(self._clock.now())
            if _is_fresh(row, now):
                return value
            if (value.until or "") > now:
                self._flights.soon(spot.cache_key, renew)
                return value
        return await self._flights.one(spot.cache_key, renew)

    async def renewed(
        self,
        tenant_id: str,
        spot: Spot,
        make: Make,
        keeping: Keeping = AS_IT_COMES,
        early_s: float = 0.0,
    ) -> Value:
        """The value of a place, made anew unless somebody else has just done so."""
        while True:
            async with self._turn(spot.cache_key) as is_ours:
                row = await self._keychain.at(spot)
                before = await self._opened(tenant_id, row)
                is_fresh = row is not None and _is_fresh(row, from_now(self._clock, early_s))
                if before is not None and is_fresh:
                    return before
                if is_ours:
                    return await self._made(tenant_id, spot, await make(before), keeping)
            await asyncio.sleep(LOOK_S)

    async def _made(self, tenant_id: str, spot: Spot, made: Made, keeping: Keeping) -> Value:
        fresh_s, life_s = _lives(made.expires_in, keeping.ttl_s)
        value = Value(type=made.type, data=dict(made.fields), until=from_now(self._clock, life_s))
        await self._keychain.keep(
            tenant_id,
            spot,
            value,
            from_now(self._clock, fresh_s),
            auto_renew=keeping.renews is not None,
            renew_config=keeping.renews,
            cache_type=keeping.cache_type,
        )
        return value

    @asynccontextmanager
    async def _turn(self, key: str) -> AsyncIterator[bool]:
        """Whether it is the turn of this server to make a value."""
        now, until = rfc3339(self._clock.now()), from_now(self._clock, TURN_S)
        is_ours = await self._turns.take(key, self._holder, now=now, until=until)
        try:
            yield is_ours
        finally:
            if is_ours:
                with suppress(NoetlError):  # it ends by itself
                    await self._turns.leave(key, self._holder)

    def taken_reads(self) -> Counter[str]:
        """How often values were read since this was last asked, by key."""
        taken, self._reads = self._reads, Counter()
        self.was_read.clear()
        return taken

    async def _opened(self, tenant_id: str, row: KeychainRow | None) -> Value | None:
        """What is in a row; one that cannot be opened any more is made anew."""
        if row is None:
            return None
        try:
            return await self._keychain.opened(tenant_id, row)
        except RecordDamaged:
            return None


def _is_fresh(row: KeychainRow, now: str) -> bool:
    return row.expires_at is None or row.expires_at > now


def _lives(expires_in: float | None, ttl_s: float | None) -> tuple[float, float]:
    """For how long a value is served without a doubt, and for how long at all."""
    fresh = KEPT_S if expires_in is None else max(LEAST_S, expires_in - EARLY_S)
    if ttl_s is not None:
        fresh = max(LEAST_S, min(fresh, ttl_s))
    return fresh, max(fresh, fresh + EARLY_S if expires_in is None else expires_in)


def refresh_token_of(before: Value | None) -> str | None:
    """What the last value gave to ask for the next one."""
    found = None if before is None else before.data.get("refresh_token")
    return found if isinstance(found, str) and found else None
