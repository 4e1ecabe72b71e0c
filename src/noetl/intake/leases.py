"""Who drains: one process of several holds the lease, and nobody waits for one that is gone.

A lease that was not renewed for its time is free. The time is measured by whoever waits for it, so
that clocks which disagree do no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.intake.circuit_stores import Changed, StoreGone, lease_key

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.intake.circuit_stores import CircuitStore

LASTS_S: Final = 15.0
RENEW_S: Final = 5.0
_MARGIN_S: Final = 2.0
"""A holder stops this long before others may begin."""


class Lease:
    """The right to probe, drain and redrive one subscription."""

    def __init__(self, path: str, holder: str, *, store: CircuitStore, clock: Clock) -> None:
        self._key = lease_key(path)
        self._holder = holder
        self._store = store
        self._clock = clock
        self._revision: int | None = None
        self._until = 0.0
        self._seen: tuple[int, float] | None = None
        self._is_over = False

    @property
    def is_held(self) -> bool:
        """Whether this process may drain now."""
        return self._revision is not None and self._clock.monotonic() < self._until

    async def keep(self) -> bool:
        """Take the lease, or renew it; to be called every few seconds. Whether it is held."""
        if self._is_over:
            return False
        began = self._clock.monotonic()
        try:
            if self._revision is not None:
                await self._write(self._revision, began)
            else:
                await self._take(began)
        except Changed:
            self._revision = None
        except StoreGone:
            pass  # it is held until its time is over, and not longer
        return self.is_held

    async def release(self) -> None:
        """Let others begin at once; this one has had its turn."""
        self._is_over = True
        revision, self._revision = self._revision, None
        if revision is None:
            return
        try:
            await self._store.delete(self._key, revision)
        except (Changed, StoreGone):
            return  # it runs out by itself

    async def _take(self, now: float) -> None:
        found = await self._store.get(self._key)
        if found is None:
            await self._write(None, now)
            return
        if self._seen is None or self._seen[0] != found.revision:
            self._seen = (found.revision, now)
        if found.state.get("holder") == self._holder or now - self._seen[1] >= LASTS_S:
            await self._write(found.revision, now)

    async def _write(self, revision: int | None, now: float) -> None:
        state = {"holder": self._holder, "lasts_s": LASTS_S}
        self._revision = await self._store.put(self._key, state, revision, LASTS_S)
        self._until = now + LASTS_S - _MARGIN_S
