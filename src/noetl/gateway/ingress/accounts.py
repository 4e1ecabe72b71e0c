"""The books of the ingress: what became of each delivery, told to the server a little later.

Events and rows of the log are gathered and sent together. What strangers cause is written down a
few times a minute, and counted; no sender waits for any of it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from noetl.api.events import MOST_EVENTS, Report
from noetl.api.http import NoAnswer
from noetl.api.ingress import KeepRejected
from noetl.api.problems import Refused
from noetl.api.subscriptions import PutDeliveries, PutDelivery
from noetl.clock import rfc3339
from noetl.dsl.subscription.verify import ApiKeyVerify
from noetl.gateway.ingress.envelope import HIDDEN
from noetl.intake.audit import NotTold

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from noetl.api.subscriptions import DeliveriesKept
    from noetl.clock import Clock
    from noetl.dsl.subscription.verify import Verify
    from noetl.gateway.ingress.answers import Answer
    from noetl.gateway.ingress.listeners import Known
    from noetl.gateway.ingress.pipeline import Head, Planned
    from noetl.gateway.metrics import GatewayMetrics
    from noetl.ids import Ids
    from noetl.intake.audit import Poster

    Keep = Callable[[str, PutDeliveries], Awaitable[DeliveriesKept]]

REJECTED: Final = "subscription.message.rejected"
WINDOW_S: Final = 60.0
MOST_TOLD: Final = 10
"""Events of one listener and reason in a minute; then they are counted."""
MOST_SHOWN: Final = 60
"""Rows of the log for rejections, the same."""
MOST_ROWS: Final = 10_000
MOST_REPORTS: Final = 10_000
MOST_KEPT_BODIES: Final = 128
"""Rejected bodies that wait to be told."""
MOST_BODY_BYTES: Final = 64 * 1024
AT_ONCE: Final = 500
GATHER_S: Final = 0.5
"""Fewer rows than `AT_ONCE` are told no more often than this; what comes alone is told at once."""
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
_EVENT: Final = "event"
_DELIVERY: Final = "delivery"
_SENSELESS: Final = frozenset({400, 404, 413, 422})
_SIGNATURES: Final = frozenset(
    {
        "x-hub-signature", "x-hub-signature-256", "x-shopify-hmac-sha256", "stripe-signature",
        "x-slack-signature", "webhook-signature", "svix-signature",
    }
)  # fmt: skip
_log: Final = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Case:
    """One request, as far as it has come."""

    listener: str
    began: float
    delivery_id: str = ""
    remote_ip: str = ""
    received_at: str = ""
    known: Known | None = field(default=None, repr=False)
    head: Head | None = field(default=None, repr=False)
    body: bytes | None = field(default=None, repr=False)
    """None as long as it was not read."""
    planned: Planned | None = None
    replay_of: str | None = None
    execution_id: str | None = None

    @property
    def label(self) -> str:
        """The listener as metrics name it."""
        return "unknown" if self.known is None else self.known.listener


@dataclass(slots=True)
class _Window:
    """A minute of one reason at one listener."""

    known: Known = field(repr=False)
    until: float
    told: int = 0
    shown: int = 0
    skipped: int = 0


class Accounts:
    """Keeps the books of one gateway."""

    def __init__(
        self, *, poster: Poster, keep: Keep, ids: Ids, clock: Clock, metrics: GatewayMetrics
    ) -> None:
        self._poster = poster
        self._keep = keep
        self._ids = ids
        self._clock = clock
        self._metrics = metrics
        self._windows: dict[tuple[str, str], _Window] = {}
        self._reports: deque[Report] = deque()
        self._rows: deque[tuple[str, PutDelivery]] = deque()
        self._bodies = 0
        self._told = -GATHER_S
        self._came = asyncio.Event()

    # ------------------------------------------------------------------ noting

    def number(self, case: Case) -> None:
        """Give a delivery its name and its time."""
        case.delivery_id = self._ids.new()
        case.received_at = rfc3339(self._clock.now())

    def rejected(self, case: Case, answer: Answer) -> None:
        """A delivery was turned away."""
        self._metrics.ingress_rejected.inc(case.label, answer.code)
        known = case.known
        if known is None:
            return
        window = self._window(known, answer.code)
        if window.shown < MOST_SHOWN:
            window.shown += 1
            if not case.delivery_id:
                self.number(case)
            self._add_row(known, self._row(case, answer, self._kept(case, known)))
        if window.told >= MOST_TOLD:
            window.skipped += 1
            return
        window.told += 1
        body = case.body
        self._add_report(
            known,
            {
                "reason": answer.code,
                "listener": known.listener,
                "remote_ip": case.remote_ip,
                "sha256": None if body is None else hashlib.sha256(body).hexdigest(),
                "bytes": None if body is None else len(body),
            },
        )

    def settled(self, case: Case, answer: Answer) -> None:
        """A verified delivery was dealt with, well or not."""
        label, metrics = case.label, self._metrics
        if answer.outcome == "accepted":
            metrics.ingress_dispatched.inc(label)
        elif answer.outcome == "duplicate":
            metrics.ingress_duplicate.inc(label)
        elif answer.outcome == "spooled":
            metrics.ingress_spooled.inc(label, answer.reason)
        elif answer.code:
            metrics.ingress_rejected.inc(label, answer.code)
        metrics.ingress_seconds.observe(self._clock.monotonic() - case.began, label)
        if case.known is not None:
            self._add_row(case.known, self._row(case, answer, None))

    # ------------------------------------------------------------------ telling

    async def run(self) -> None:
        """Tell what comes, until cancelled."""
        pause = 0.0
        while True:
            await self._until_due()
            if await self.flush():
                pause = 0.0
                continue
            pause = min(max(FIRST_PAUSE_S, pause * 2), LONGEST_PAUSE_S)
            await asyncio.sleep(pause)
            self._came.set()

    async def flush(self) -> bool:
        """Tell everything now; what nobody takes waits. Whether all was told."""
        now = self._clock.monotonic()
        self._sum_up(now)
        if self._reports or self._rows:
            self._told = now
        try:
            while self._reports:
                await self._post_some()
            while self._rows:
                await self._keep_some()
        except (NotTold, NoAnswer) as fault:
            _log.debug("the server was not told of deliveries", extra={"code": fault.code})
            return False
        return True

    async def _until_due(self) -> None:
        """Wait for something to tell; what follows soon after the last time is gathered."""
        ends = [one.until for one in self._windows.values()]
        wait_s = None if not ends else max(0.0, min(ends) - self._clock.monotonic())
        try:
            async with asyncio.timeout(wait_s):
                await self._came.wait()
        except TimeoutError:
            return
        self._came.clear()
        since_s = self._clock.monotonic() - self._told
        if len(self._rows) < AT_ONCE and since_s < GATHER_S:
            await asyncio.sleep(GATHER_S - since_s)

    async def _post_some(self) -> None:
        some = [self._reports.popleft() for _ in range(min(MOST_EVENTS, len(self._reports)))]
        try:
            self._lost(_EVENT, await self._poster.post(some))
        except BaseException:
            self._reports.extendleft(reversed(some))
            raise

    async def _keep_some(self) -> None:
        """Tell rows of the log: the first, and others of its subscription among the next."""
        subscription_id = self._rows[0][0]
        taken: list[PutDelivery] = []
        left: list[tuple[str, PutDelivery]] = []
        while self._rows and len(taken) < AT_ONCE and len(left) < AT_ONCE:
            of, row = self._rows.popleft()
            if of == subscription_id:
                taken.append(row)
            else:
                left.append((of, row))
        self._rows.extendleft(reversed(left))
        try:
            await self._keep(subscription_id, PutDeliveries(items=tuple(taken)))
        except Refused as fault:
            if fault.problem.status not in _SENSELESS:
                self._back(subscription_id, taken)
                raise NotTold(fault.message) from fault
            _log.warning("rows of the log of deliveries are refused", extra={"code": fault.code})
            self._lost(_DELIVERY, len(taken))
        except BaseException:
            self._back(subscription_id, taken)
            raise
        self._bodies -= sum(row.rejected is not None for row in taken)

    def _back(self, subscription_id: str, rows: list[PutDelivery]) -> None:
        self._rows.extendleft((subscription_id, row) for row in reversed(rows))

    # ------------------------------------------------------------------ windows

    def _window(self, known: Known, reason: str) -> _Window:
        key, now = (known.listener, reason), self._clock.monotonic()
        window = self._windows.get(key)
        if window is None or now >= window.until:
            if window is not None:
                self._summary(reason, window)
            window = self._windows[key] = _Window(known, now + WINDOW_S)
        return window

    def _sum_up(self, now: float) -> None:
        """Tell of the minutes that are over how many there were beside those told."""
        over = [key for key, window in self._windows.items() if now >= window.until]
        for key in over:
            self._summary(key[1], self._windows.pop(key))

    def _summary(self, reason: str, window: _Window) -> None:
        if not window.skipped:
            return
        known = window.known
        about = {"reason": reason, "listener": known.listener, "count": window.skipped}
        self._add_report(known, {**about, "window_secs": int(WINDOW_S)})

    # ------------------------------------------------------------------ events and rows

    def _add_report(self, known: Known, payload: dict[str, Any]) -> None:
        self._reports.append(
            Report(
                execution_id=known.subscription_id,
                event_id=self._ids.new(),
                event_type=REJECTED,
                created_at=rfc3339(self._clock.now()),
                payload=payload,
            )
        )
        if len(self._reports) > MOST_REPORTS:
            self._reports.popleft()
            self._lost(_EVENT, 1)
        self._came.set()

    def _add_row(self, known: Known, row: PutDelivery) -> None:
        self._rows.append((known.subscription_id, row))
        if row.rejected is not None:
            self._bodies += 1
        if len(self._rows) > MOST_ROWS:
            _, dropped = self._rows.popleft()
            self._bodies -= dropped.rejected is not None
            self._lost(_DELIVERY, 1)
        self._came.set()

    def _row(self, case: Case, answer: Answer, kept: KeepRejected | None) -> PutDelivery:
        planned = case.planned
        return PutDelivery(
            delivery_id=case.delivery_id,
            at=case.received_at,
            outcome=answer.outcome,
            reason=answer.reason or None,
            status=answer.status,
            message_id=None if planned is None else str(planned.message["id"]),
            execution_id=answer.execution_id,
            duration_ms=round((self._clock.monotonic() - case.began) * 1000, 3),
            bytes=None if case.body is None else len(case.body),
            directives=None if planned is None else _steered(planned),
            body_ref=answer.spool_ref,
            replay_of=case.replay_of,
            rejected=kept,
        )

    def _kept(self, case: Case, known: Known) -> KeepRejected | None:
        """The request of a rejected delivery, where its listener keeps such."""
        body, head = case.body, case.head
        if not known.ingress.keep_rejected or body is None or head is None:
            return None
        if len(body) > MOST_BODY_BYTES or self._bodies >= MOST_KEPT_BODIES:
            return None
        return KeepRejected(
            headers=tuple(_shown(head, known.ingress.verify)),
            body=base64.b64encode(body).decode("ascii"),
            query="" if isinstance(known.ingress.verify, ApiKeyVerify) else _text(head.query),
        )

    def _lost(self, kind: str, count: int) -> None:
        if count:
            self._metrics.ingress_unlogged.inc(kind, by=float(count))


def _steered(planned: Planned) -> dict[str, Any] | None:
    """What the headers of a delivery decided, and were refused."""
    plan = planned.plan
    if not plan.applied and not plan.refused:
        return None
    return {"applied": list(plan.applied), "refused": list(plan.refused)}


def _shown(head: Head, config: Verify | None) -> Iterator[tuple[str, str]]:
    """Headers, without those that are a credential as a whole; a signature proves, and is none."""
    hidden = set(HIDDEN - _SIGNATURES)
    if config is not None and config.is_token:
        hidden.add(config.signed_by)
    for name, value in head.headers:
        text = _text(name)
        if text.lower() not in hidden:
            yield text, _text(value)


def _text(raw: bytes) -> str:
    return raw.decode("latin-1")
