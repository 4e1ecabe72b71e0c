"""How runs end, as the server tells it: in an order that never changes, from where one left off."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from noetl.api.problems import Refused
from noetl.api.subscriptions import NOW
from noetl.errors import NoetlError
from noetl.intake.circuit_stores import Changed, StoreGone, lease_key
from noetl.intake.outcomes import RunOutcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.api.client import Client
    from noetl.intake.circuit_stores import CircuitStore

WAIT_MS: Final = 2_000
KEPT_S: Final = 5.0
"""How often the place is kept, for the next process."""
FIRST_AGAIN_S: Final = 0.2
LONGEST_AGAIN_S: Final = 10.0
_PLACE: Final = "cursor"
_BAD: Final = 422
_ENDED: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
_log: Final = logging.getLogger(__name__)


class Followed(Protocol):
    """A subscription whose runs end."""

    @property
    def subscription_id(self) -> str:
        """What its runs are children of."""

    @property
    def path(self) -> str:
        """Where it lies in the catalog."""


class ServerEndings:
    """Follows the outcomes of a subscription."""

    def __init__(
        self, client: Client, places: CircuitStore, turns: asyncio.Semaphore | None = None
    ) -> None:
        """`places` keeps where one left off; those who share `turns` ask no more at once."""
        self._client = client
        self._places = places
        self._turns = turns or asyncio.Semaphore()
        self._cursor: str | None = None
        self._place: _Place | None = None

    async def begin(self, listened: Followed) -> None:
        """Take the place from which endings are told; no run that is started later is missed."""
        self._place = place = _Place(self._places, listened.path)
        self._cursor = await place.read()
        if self._cursor is None:
            page = await self._client.outcomes(listened.subscription_id, NOW, wait_ms=0)
            self._cursor = page.cursor

    async def of(self, execution_id: str) -> RunOutcome | None:
        """How a run has ended; none while it goes on, or when nobody can say."""
        try:
            found = await self._client.status(execution_id)
        except NoetlError:
            return None
        if found.status not in _ENDED:
            return None
        error = found.error or {}
        return RunOutcome(
            execution_id=execution_id,
            status=found.status,
            error_kind=str(error.get("kind", "")),
            is_retryable=bool(error.get("retryable")),
        )

    async def follow(
        self, listened: Followed, told: Callable[[RunOutcome], Awaitable[None]]
    ) -> None:
        """Tell of every run that ends, until cancelled."""
        loop, again_s = asyncio.get_running_loop(), FIRST_AGAIN_S
        kept_at = loop.time()
        try:
            while True:
                try:
                    async with self._turns:
                        page = await self._client.outcomes(
                            listened.subscription_id, self._cursor or NOW, wait_ms=WAIT_MS
                        )
                except NoetlError as fault:
                    if isinstance(fault, Refused) and fault.problem.status == _BAD:
                        self._cursor = None  # nobody knows this place any more
                    _log.debug("outcomes are not told", extra={"code": fault.code})
                    await asyncio.sleep(again_s)
                    again_s = min(again_s * 2, LONGEST_AGAIN_S)
                    continue
                again_s = FIRST_AGAIN_S
                for outcome in page.outcomes:
                    await told(RunOutcome.of(outcome))
                self._cursor = page.cursor
                if loop.time() - kept_at >= KEPT_S:
                    kept_at = loop.time()
                    await self._keep()
        finally:
            await self._keep()

    async def _keep(self) -> None:
        if self._place is not None and self._cursor is not None:
            await self._place.write(self._cursor)


def place_key(path: str) -> str:
    """The key of a place: behind that of the lease, where no circuit and no other lease lies."""
    return f"{lease_key(path)}.{_PLACE}"


class _Place:
    """Where the last one left off."""

    def __init__(self, store: CircuitStore, path: str) -> None:
        self._store = store
        self._key = place_key(path)
        self._revision: int | None = None

    async def read(self) -> str | None:
        """The cursor; none when there is none, or nobody can say."""
        try:
            found = await self._store.get(self._key)
        except StoreGone:
            return None
        self._revision = None if found is None else found.revision
        cursor = None if found is None else found.state.get("cursor")
        return cursor if isinstance(cursor, str) else None

    async def write(self, cursor: str) -> None:
        """Keep it; of several processes the last one counts."""
        try:
            self._revision = await self._store.put(self._key, {"cursor": cursor}, self._revision)
        except Changed:
            await self.read()
        except StoreGone:
            return
