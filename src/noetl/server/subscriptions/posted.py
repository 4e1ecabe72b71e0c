"""Events that runtimes and gateways report of subscriptions: stored once, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from noetl.api.events import Receipt
from noetl.edge.errors import Forbidden
from noetl.engine.events import OF_SUBSCRIPTIONS
from noetl.engine.subscriptions import POSTED
from noetl.server.subscriptions.errors import UnknownSubscription
from noetl.server.subscriptions.logs import Entry, Told
from noetl.server.subscriptions.telling import must_tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.api.events import Report
    from noetl.server.access.caller import Caller
    from noetl.server.subscriptions.documents import Specs
    from noetl.server.subscriptions.logs import SubscriptionLogs

MOST_FACTS: Final = 16 * 1024
"""Bytes of the facts of one event: a log is no place for messages."""
_encode: Final = msgspec.json.Encoder().encode


class Posts:
    """Takes reports about subscriptions."""

    def __init__(self, logs: SubscriptionLogs, specs: Specs) -> None:
        self._logs = logs
        self._specs = specs

    async def report(
        self, caller: Caller, subscription_id: str, reports: Sequence[Report]
    ) -> list[Receipt]:
        """Store what was not stored; a receipt for each, in their order."""
        receipts: list[Receipt | None] = [None] * len(reports)
        refusal = await self._refusal(caller, subscription_id)
        told: dict[int, Told] = {}
        for place, report in enumerate(reports):
            made = refusal or _told(report)
            if isinstance(made, str):
                receipts[place] = _receipt(report, "rejected", code=made)
            else:
                told[place] = made
        if told:
            await self._logs.append(subscription_id, lambda _row: Entry(list(told.values())))
        for place, one in told.items():
            word: Literal["stored", "duplicate"] = "stored" if one.is_new else "duplicate"
            receipts[place] = _receipt(reports[place], word, seq=one.seq)
        return [receipt for receipt in receipts if receipt is not None]

    async def _refusal(self, caller: Caller, subscription_id: str) -> str | None:
        row = await self._logs.named(subscription_id)
        if row is None:
            return UnknownSubscription.code
        try:
            await must_tell(caller, row, self._specs)
        except Forbidden:
            return Forbidden.code
        return None


def _told(report: Report) -> Told | str:
    """The event of a report, or why it is none."""
    if report.event_type not in POSTED:
        known = report.event_type in OF_SUBSCRIPTIONS
        return "forbidden_event" if known else "unknown_event_type"
    facts: Any = report.payload
    if not isinstance(facts, dict) or len(_encode(facts)) > MOST_FACTS:
        return "bad_value"
    event = OF_SUBSCRIPTIONS[report.event_type](facts=facts)
    return Told(event, str(report.event_id), report.created_at)


def _receipt(
    report: Report,
    outcome: Literal["stored", "duplicate", "rejected"],
    *,
    seq: int | None = None,
    code: str | None = None,
) -> Receipt:
    return Receipt(event_id=str(report.event_id), outcome=outcome, seq=seq, code=code)
