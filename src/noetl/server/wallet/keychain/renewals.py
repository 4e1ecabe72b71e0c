"""Values that are renewed ahead of their end, and the count of how often they were read."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from noetl.clock import rfc3339
from noetl.edge.errors import UnknownExecution
from noetl.edge.moments import from_now
from noetl.errors import NoetlError
from noetl.server.wallet.keychain.posted import renewal_of
from noetl.server.wallet.keychain.resolution import spot_at
from noetl.server.wallet.keychain.values import POSTED

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.server.wallet.keychain.flights import Flights
    from noetl.server.wallet.keychain.kept import Kept
    from noetl.server.wallet.keychain.resolution import Resolution
    from noetl.server.wallet.runs import Runs
    from noetl.store.base import Store
    from noetl.store.secrets import KeychainRow

EVERY_S: Final = 10.0
AHEAD_S: Final = 20.0
COUNT_S: Final = 1.0
UNREAD: Final = timedelta(days=1)
"""A value for all runs that nobody has read for so long is renewed no more."""
_log: Final = logging.getLogger(__name__)


class Renewals:
    """Looks after kept values in the background."""

    def __init__(  # noqa: PLR0913 - the parts it is made from
        self,
        store: Store,
        runs: Runs,
        resolution: Resolution,
        kept: Kept,
        *,
        flights: Flights,
        clock: Clock,
    ) -> None:
        self._store = store
        self._runs = runs
        self._resolution = resolution
        self._kept = kept
        self._flights = flights
        self._clock = clock

    async def run(self) -> None:
        """Own the renewals that are under way, and write down reads, until the server stops."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flights.run(), name="renewals under way")
            while True:
                await self._kept.was_read.wait()
                await asyncio.sleep(COUNT_S)
                await self.count()

    async def count(self) -> None:
        """Write down how often values were read."""
        reads = self._kept.taken_reads()
        if reads:
            await self._store.keychain.touch(reads, rfc3339(self._clock.now()))

    async def look(self) -> None:
        """Renew what is to be renewed and ends soon; what nobody needs any more is let go."""
        before = from_now(self._clock, AHEAD_S)
        for row in await self._store.keychain.expiring(before, renews=True):
            try:
                await self._renew(row)
            except NoetlError as fault:  # the next look tries again, as long as there is hope
                about = {"key": row.cache_key, "code": fault.code, "reason": fault.message}
                _log.warning("a secret was not renewed", extra=about)
                if not fault.retryable and self._is_over(row):
                    await self._store.keychain.delete(row.cache_key)

    async def _renew(self, row: KeychainRow) -> None:
        if row.cache_type == POSTED:
            await self._renew_put(row)
            return
        run_id = str((row.renew_config or {}).get("execution_id") or row.execution_id or "")
        if not run_id or not await self._is_needed(row, run_id):
            await self._store.keychain.delete(row.cache_key)
            return
        run = await self._runs.get(run_id)
        if row.keychain_name not in run.named.keychain:
            await self._store.keychain.delete(row.cache_key)
            return
        await self._flights.one(
            row.cache_key,
            lambda: self._resolution.renew(run, row.keychain_name, spot_at(row), AHEAD_S),
        )

    async def _renew_put(self, row: KeychainRow) -> None:
        """Renew a value that somebody put; one that cannot be renewed stays until it ends."""
        document = await self._store.catalog.get(row.catalog_id)
        is_wanted = renewal_of(row) is not None and await self._is_needed(row, row.execution_id)
        if document is None or not is_wanted:
            if self._is_over(row):
                await self._store.keychain.delete(row.cache_key)
            return
        run = None if row.execution_id is None else await self._runs.get(row.execution_id)
        await self._flights.one(
            row.cache_key,
            lambda: self._resolution.renew_put(document.tenant_id, run, row, AHEAD_S),
        )

    async def _is_needed(self, row: KeychainRow, run_id: str | None) -> bool:
        """Whether a run goes on that a value is for; of one for all runs, whether it is read."""
        try:
            owner = None if run_id is None else await self._runs.row(row.execution_id or run_id)
        except UnknownExecution:
            return False
        if owner is not None and row.execution_id is not None:
            return owner.completed_at is None
        last = row.accessed_at or row.created_at
        return last > rfc3339(self._clock.now() - UNREAD)

    def _is_over(self, row: KeychainRow) -> bool:
        return row.expires_at is not None and row.expires_at <= rfc3339(self._clock.now())
