"""How runs of messages ended, told to whoever waits for them."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.subscriptions import NOW, Outcome, OutcomeError
from noetl.api.subscriptions import Outcomes as Answer
from noetl.edge.errors import Unacceptable
from noetl.server.access.listening import READ
from noetl.server.signals import sleep_until

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.server.access.caller import Caller
    from noetl.server.signals import Signals
    from noetl.server.subscriptions.desk import SubscriptionDesk
    from noetl.store.subscriptions import OutcomeRow, Outcomes

MOST_WAIT_MS: Final = 20_000
MOST_OUTCOMES: Final = 500
SOON_S: Final = 0.02
_CURSOR: Final = re.compile(r"[0-9]{1,19}\.[0-9]{1,19}")


class Endings:
    """Waits for ends of runs: commits of this server wake it, those of others are found at last."""

    def __init__(
        self, desk: SubscriptionDesk, outcomes: Outcomes, signals: Signals, clock: Clock
    ) -> None:
        self._desk = desk
        self._outcomes = outcomes
        self._signals = signals
        self._clock = clock

    async def after(
        self, caller: Caller, subscription_id: str, cursor: str, wait_ms: int, limit: int
    ) -> Answer:
        """The ends behind a cursor; waits for the first one, if there is none."""
        row = await self._desk.found(caller, READ, subscription_id)
        if cursor == NOW:
            return Answer(outcomes=(), cursor=await self._outcomes.newest(row.subscription_id))
        if cursor and not _CURSOR.fullmatch(cursor):
            raise Unacceptable("the cursor is not one of this list", code="bad_cursor")
        until = self._clock.monotonic() + wait_ms / 1000
        waiter, is_woken = asyncio.Event(), False
        waiting = self._signals.ends.setdefault(row.subscription_id, set())
        waiting.add(waiter)
        try:
            while True:
                waiter.clear()
                found, cursor = await self._outcomes.after(row.subscription_id, cursor, limit)
                told = tuple(_told(one) for one in found if "message_id" in one.subscription)
                rest = until - self._clock.monotonic()
                if told or rest <= 0:
                    return Answer(outcomes=told, cursor=cursor)
                # An end may be seen by all a moment after its commit: not before older ones.
                is_woken = await sleep_until(waiter, min(rest, SOON_S) if is_woken else rest)
        finally:
            waiting.discard(waiter)
            if not waiting and self._signals.ends.get(row.subscription_id) is waiting:
                del self._signals.ends[row.subscription_id]


def _told(row: OutcomeRow) -> Outcome:
    error = None if row.error is None else msgspec.convert(row.error, OutcomeError)
    return Outcome(
        execution_id=row.execution_id,
        message_id=row.subscription.get("message_id"),
        status=row.status,
        downstream=row.subscription.get("downstream"),
        error=error,
    )
