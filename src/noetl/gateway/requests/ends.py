"""The one way in which requests end: noted once, told to whom it concerns, then put aside."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from noetl.api.executions import Control
from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.gateway import frames
from noetl.gateway.errors import UpstreamTimeout, UpstreamUnavailable
from noetl.gateway.requests import record as rec
from noetl.gateway.requests.outcomes import of_deadline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.gateway.metrics import GatewayMetrics
    from noetl.gateway.requests.outcomes import Outcome
    from noetl.gateway.requests.rebuilding import Rebuilds
    from noetl.gateway.requests.record import Record
    from noetl.gateway.requests.records import Records
    from noetl.gateway.upstream import Upstream

_log: Final = logging.getLogger(__name__)
AWAY: Final = (NoAnswer, UpstreamTimeout, UpstreamUnavailable)
"""The server cannot be asked now."""
_FAULT: Final = 500
_BY: Final = "deadline of the request"


class Outlet(Protocol):
    """Who tells clients."""

    async def send(
        self, client_id: str, frame: bytes, msg_id: str, owner: tuple[str, str] | None = None
    ) -> bool:
        """Keep a message for a client of an owner; whether it is connected somewhere."""

    async def clients_of(self, *, session_id: str = "", user_id: str = "") -> list[str]:
        """The clients of a session, or of somebody."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What an attempt to end a request came to."""

    record: Record
    is_first: bool
    """False: it had ended before."""
    is_live: bool = False
    """A client that is connected was told."""


class Ends:
    """Ends requests and tells of it."""

    def __init__(
        self,
        records: Records,
        rebuilds: Rebuilds,
        outlet: Outlet,
        upstream: Upstream,
        metrics: GatewayMetrics,
    ) -> None:
        self._records = records
        self._rebuilds = rebuilds
        self._outlet = outlet
        self._upstream = upstream
        self._metrics = metrics
        self._waiting: dict[str, set[asyncio.Event]] = {}

    async def finish(self, record: Record, outcome: Outcome) -> Ended:
        """End a request; only the first end counts, one that comes after a deadline is noted."""
        now = self._records.now()

        def step(current: Record) -> Record | None:
            return rec.finished(current, outcome, now) or rec.ended_late(current, outcome, now)

        found = await self._records.change(record.request_id, step)
        if found is None:  # the bucket was lost
            known = await self._rebuilds.of_request(record.request_id, is_heard=True)
            if known is not None:
                await self._records.restore(known)
                found = await self._records.change(record.request_id, step)
        if found is None:
            return Ended(record, is_first=False)
        current, is_changed = found
        if not is_changed or current.late_result is not None:
            return Ended(current, is_first=False)
        self._noted(current)
        return Ended(current, is_first=True, is_live=await self.tell(current))

    async def expire(self, record: Record) -> bool:
        """End a request whose deadline has passed; whether it was still open."""
        ended = await self.finish(record, of_deadline(record.execution_id))
        return ended.is_first

    async def tell(self, record: Record) -> bool:
        """Tell the end to whom it concerns, and put the request aside; safe to repeat.

        Until that is done the request stays open, and whoever sweeps does it again.
        """
        frame = frames.result(rec.document_of(record))
        is_live = await self.send(record, frame, f"result/{record.state}")
        if record.state == "timeout" and record.on_timeout == "cancel":
            await self._cancelled(record)
        await self._records.close(record)
        return is_live

    async def state(self, record: Record, row: Mapping[str, Any]) -> None:
        """Tell that a step has ended, or that the run is in another state."""
        if record.delivery != "none":
            frame = frames.state(row, record.request_id)
            await self.send(record, frame, f"state/{row['seq']}")

    async def send(self, record: Record, frame: bytes, about: str) -> bool:
        """Keep a message for every client that a request is told to; whether one is connected."""
        targets = await self._targets(record)
        name, owner = f"{record.request_id}/{about}", record.owner
        sent = await asyncio.gather(*(self._outlet.send(to, frame, name, owner) for to in targets))
        return any(sent)

    async def _targets(self, record: Record) -> list[str]:
        own = [record.client_id] if record.client_id else []
        if record.delivery == "client":
            return own
        if record.delivery == "session":
            others = await self._outlet.clients_of(session_id=record.session_id)
        elif record.delivery == "user":
            others = await self._outlet.clients_of(user_id=record.user_id)
        else:
            return []
        return list(dict.fromkeys([*own, *others]))

    async def _cancelled(self, record: Record) -> None:
        """End a run whose request was given up; one that has ended by itself is fine."""
        client = self._upstream.service(record.execution_id)
        try:
            await client.cancel(record.execution_id, Control(reason=_BY))
        except Refused as refusal:
            if refusal.problem.status >= _FAULT:
                raise
            _log.info(
                "the run of a request that was given up is not cancelled",
                extra={"execution_id": record.execution_id, "code": refusal.code},
            )

    def _noted(self, record: Record) -> None:
        begun, ended = rec.moment(record.created_at), rec.moment(record.changed_at)
        self._metrics.request_seconds.observe(max(0.0, (ended - begun).total_seconds()))
        if record.state == "timeout":
            self._metrics.request_timeout.inc()
        for event in self._waiting.get(record.request_id, ()):
            event.set()

    async def wait(self, request_id: str, seconds: float) -> None:
        """Come back when a request ends here, or after a while."""
        event = asyncio.Event()
        self._waiting.setdefault(request_id, set()).add(event)
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return
        finally:
            waiting = self._waiting[request_id]
            waiting.discard(event)
            if not waiting:
                del self._waiting[request_id]
