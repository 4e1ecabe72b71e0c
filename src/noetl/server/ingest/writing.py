"""What a batch of turns writes, and the commit that writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.edge.moments import seconds_between
from noetl.engine.snapshot import dump
from noetl.server.signals import EVENTS
from noetl.store.base import Outgoing
from noetl.store.views import Past, change
from noetl.telemetry.failpoint import armed, failpoint

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.server.ingest.handout import Batch
    from noetl.server.ingest.noted import Notes
    from noetl.server.ingest.posts import Work
    from noetl.server.ingest.tracing import Spans
    from noetl.server.ingest.turn import Turn
    from noetl.server.metrics import ServerMetrics
    from noetl.server.signals import Signals
    from noetl.store.base import Change, Commit, Executions

SNAPSHOT_EVERY: Final = 1_000
BYTES_PER_EVENT: Final = 8


class Writer:
    """Makes changes of turns, and commits them."""

    def __init__(  # noqa: PLR0913 - the parts it is made from
        self,
        executions: Executions,
        clock: Clock,
        ids: Ids,
        *,
        signals: Signals,
        notes: Notes,
        publishes: bool = False,
        spans: Spans | None = None,
    ) -> None:
        self._executions = executions
        self._clock = clock
        self._ids = ids
        self._signals = signals
        self._notes = notes
        self._publishes = publishes
        self.spans = spans

    @property
    def metrics(self) -> ServerMetrics:
        """Where commits are counted."""
        return self._notes.metrics

    async def write(self, changes: dict[str, Change], commit: Commit) -> frozenset[str]:
        """Commit what a batch changes; who lost a race meanwhile."""
        if not changes:
            return frozenset()
        done = self._signals.taken_done()
        began = self._clock.monotonic()
        try:
            if armed:
                await failpoint("server.append.before_commit")
            lost = await commit(list(changes.values()), done)
            if armed:
                await failpoint("server.append.after_commit")
        except BaseException:
            self._signals.delivered(done)
            raise
        for execution_id, made in changes.items():
            if execution_id not in lost:
                self._signals.claimed.committed(made.commands)
        if lost:
            self.metrics.ingest_conflicts.inc(by=len(lost))
        took = self._clock.monotonic() - began
        self.metrics.commit_duration.observe(took)
        self.metrics.event_ingest_phase.observe(took, "commit")
        return lost

    def begin(self, works: list[Work]) -> float:
        """Note how long requests had to wait for this commit; when it begins."""
        now = self._clock.monotonic()
        for work in works:
            self.metrics.event_ingest_phase.observe(now - work.at, "queue")
        return now

    def filled(self, began: float) -> None:
        """Note how long it took to judge and decide."""
        self.metrics.event_ingest_phase.observe(self._clock.monotonic() - began, "fill")

    def answered(self, since: float) -> None:
        """Note how long a request took."""
        self.metrics.event_ingest_duration.observe(self._clock.monotonic() - since)

    def dispatched(self, batch: Batch) -> None:
        """Note how long the commands that were handed out had waited."""
        for pool, since in batch.waits:
            waited = 0.0 if since == batch.now else seconds_between(since, batch.now)
            self.metrics.command_dispatch.observe(max(0.0, waited), pool)

    def tell(self, won: list[Change]) -> None:
        """Count a commit, and wake whoever it concerns."""
        self._signals.committed(won)
        self._notes.commit(won)

    async def is_stale(self, execution_id: str, turn: Turn) -> bool:
        """Whether nothing was done only because another server has written meanwhile.

        What is written is checked by the commit itself; what was refused must be looked up.
        """
        if turn.recorded or not turn.expected_seq:
            return False
        row = await self._executions.get(execution_id)
        return row is not None and row.last_seq != turn.expected_seq

    def change(self, turn: Turn) -> Change:
        """All that a turn writes."""
        entry = turn.entry
        made = change(
            turn.expected_seq,
            entry.state,
            turn.recorded,
            self._ids.new,
            Past(row=entry.row, closed=turn.closed, spares_children=turn.spares_children),
        )
        snapshot = None
        # A large state is dumped less often, so that the cost per event stays the same.
        passed = entry.state.seq - entry.snapshot_seq
        if passed >= SNAPSHOT_EVERY and passed * BYTES_PER_EVENT >= entry.snapshot_bytes:
            snapshot = dump(entry.state)
            entry.snapshot_seq, entry.snapshot_bytes = entry.state.seq, len(snapshot)
            entry.later_bytes = 0
        outgoing = made.outgoing
        if self._publishes:
            outgoing = (*outgoing, self._publication(made))
        elif snapshot is None and turn.dedup is None and turn.replay is None:
            return made
        return msgspec.structs.replace(
            made,
            snapshot=snapshot,
            dedup=turn.dedup,
            dedup_digest=turn.dedup_digest,
            replay=turn.replay,
            outgoing=outgoing,
        )

    def _publication(self, made: Change) -> Outgoing:
        """The one message that stands for all events of a commit."""
        first, last, row = made.events[0].seq, made.events[-1].seq, made.execution
        return Outgoing(
            outgoing_id=self._ids.new(),
            execution_id=made.execution_id,
            kind=EVENTS,
            payload={
                "first_seq": first,
                "last_seq": last,
                "tenant_id": row.tenant_id,
                "organization_id": row.organization_id,
            }
            | ({} if row.request_id is None else {"request_id": row.request_id}),
        )
