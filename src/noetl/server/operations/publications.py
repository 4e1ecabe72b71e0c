"""Events that others publish for the server: taken, told of, given back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.internal import OutboxClaimed, OutboxMarked, OutboxPending, OutboxRow
from noetl.clock import rfc3339
from noetl.edge.errors import Unacceptable
from noetl.edge.moments import from_now
from noetl.errors import NoetlError
from noetl.ids import parse
from noetl.server.operations.letters import is_told, letter_of
from noetl.store.waits import MOST_ERROR

if TYPE_CHECKING:
    from noetl.api.internal import OutboxFailed, OutboxPublished
    from noetl.server.metrics import ServerMetrics
    from noetl.server.parts import ServerParts
    from noetl.store.base import Taken

GRACE_S: Final = 10.0
"""How long the committing server has a message for itself, when it publishes by itself."""
MOST_CLAIMED: Final = 1_000
MOST_DELAY_S: Final = 3_600


class EmptyList(NoetlError):
    """A list that has to name something."""

    code = "bad_query"
    status = 400


class Publications:
    """The outbox, for whoever publishes."""

    def __init__(self, parts: ServerParts, metrics: ServerMetrics) -> None:
        self._store = parts.store
        self._clock = parts.clock
        self._metrics = metrics
        self._grace_s = 0.0 if parts.publisher == "playbook" else GRACE_S

    async def claim(self, limit: int) -> OutboxClaimed:
        """Take messages that nobody else publishes meanwhile."""
        if not 1 <= limit <= MOST_CLAIMED:
            raise Unacceptable(f"`limit` is not in 1..{MOST_CLAIMED}")
        now, before = self._moments()
        rows, empty = [], []
        for taken in await self._store.outbox.take(limit, now, committed_before=before):
            row = await self._row(taken)
            if row is None:
                empty.append(taken.outgoing.outgoing_id)
            else:
                rows.append(row)
        if empty:  # nothing of them is for others, or their run is no longer kept
            await self._store.outbox.published(empty, now)
        return OutboxClaimed(rows=tuple(rows), claimed=len(rows))

    async def _row(self, taken: Taken) -> OutboxRow | None:
        outgoing = taken.outgoing
        first, last = outgoing.payload["first_seq"], outgoing.payload["last_seq"]
        events = await self._store.log.read(outgoing.execution_id, first - 1, last - first + 1)
        if not any(map(is_told, events)):
            return None
        letter = await letter_of(self._store.executions, outgoing, events)
        return OutboxRow(
            outbox_id=outgoing.outgoing_id,
            event_id=letter.msg_id,
            execution_id=outgoing.execution_id,
            subject=letter.subject,
            payload=msgspec.Raw(letter.payload),
            attempts=taken.attempts,
        )

    async def published(self, body: OutboxPublished) -> OutboxMarked:
        """Note what was published."""
        ids = [parse(name) for name in body.outbox_ids]
        if not ids:
            raise EmptyList("`outbox_ids` names nothing")
        if len(ids) > MOST_CLAIMED:
            raise Unacceptable(f"`outbox_ids` names more than {MOST_CLAIMED}")
        marked = await self._store.outbox.published(ids, rfc3339(self._clock.now()))
        self._metrics.outbox_published.inc("ok", by=marked)
        return OutboxMarked(marked=marked)

    async def failed(self, body: OutboxFailed) -> OutboxMarked:
        """Note what could not be published; it is tried again later."""
        if not 1 <= body.max_delay_seconds <= MOST_DELAY_S:
            raise Unacceptable(f"`max_delay_seconds` is not in 1..{MOST_DELAY_S}")
        delay = await self._store.outbox.failed(
            parse(body.outbox_id),
            body.error[:MOST_ERROR],
            rfc3339(self._clock.now()),
            most_delay_s=body.max_delay_seconds,
        )
        if delay is not None:
            self._metrics.outbox_failed.inc()
        return OutboxMarked(marked=int(delay is not None), available_at_in=delay)

    async def pending(self) -> OutboxPending:
        """How many messages could be taken now."""
        now, before = self._moments()
        backlog = await self._store.outbox.backlog(now, committed_before=before)
        return OutboxPending(pending=backlog.due)

    def _moments(self) -> tuple[str, str]:
        return rfc3339(self._clock.now()), from_now(self._clock, -self._grace_s)
