"""One message out of the spool: started under its own key, then forgotten, kept, or given up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.blobs.spool.base import SpoolError
from noetl.intake.deliveries import replay_start
from noetl.intake.dispatch import Gathered
from noetl.sources.breaker import PROBE_LASTS_MS
from noetl.telemetry.failpoint import armed, failpoint

if TYPE_CHECKING:
    from noetl.blobs.spool.item import Item
    from noetl.blobs.spool.order import Entry
    from noetl.blobs.spool.spool import Spool
    from noetl.intake.dispatch import Start
    from noetl.intake.engine import Intake, Parts
    from noetl.intake.outcomes import RunOutcome, StartOutcome

_LASTS_S: Final = PROBE_LASTS_MS / 1000


@dataclass(slots=True)
class Tally:
    """What a pass has come to so far."""

    replayed: int = 0
    deduped: int = 0
    dead_lettered: int = 0


class Replays:
    """Starts what waited."""

    def __init__(self, parts: Parts, intake: Intake) -> None:
        if parts.spool is None:
            raise ValueError("there is no spool to replay")
        self._spool: Spool = parts.spool
        self._parts = parts
        self._intake = intake
        self._breakers = parts.breakers
        spec = parts.listener.spec
        self._most_attempts = spec.spool.drain.max_replay_attempts if spec.spool else 5
        self._waits = spec.dispatch.ack_after == "completed"
        is_batch = intake.batch_max > 1
        self._gathered = Gathered(intake.dispatcher, intake.batch_max) if is_batch else None
        self._tally = Tally()

    @property
    def is_unauthorized(self) -> bool:
        """Whether the server does not know this process."""
        return self._intake.is_unauthorized

    def begin(self) -> Tally:
        """Count anew."""
        self._tally = Tally()
        return self._tally

    async def replay(
        self, entry: Entry, *, is_probe: bool = False, probed: tuple[str, ...] = ()
    ) -> bool | None:
        """Start one that was taken; whether its downstream is there, none when it told nothing.

        A probe waits for the end of its run. Whatever happens, the item is settled or given back.
        """
        is_settled = False
        try:
            item = await self._spool.get(entry)
            if item is None:
                is_settled = True
                self._tally.dead_lettered += 1
                await self._released(entry, probed)
                return None
            outcome = await self._start(replay_start(self._parts.listener, item))
            if not outcome.is_accepted:
                await self._released(entry, probed)
                await self._not_started(entry, item, outcome)
                is_settled = True
                return None if outcome.kind == "refused" else False
            run = await self._ended(outcome, is_probe=is_probe)
            is_up = await self._heard(entry, run, is_probe=is_probe)
            if run is not None and run.is_outage:
                await self._failed(entry, item, is_counted=not is_probe)
                is_settled = True
            elif is_up or not is_probe:
                if armed:
                    await failpoint("subscription.replay")
                await self._spool.done(entry)
                if armed:
                    await failpoint("subscription.delete")
                is_settled = True
                self._done(item, outcome, run)
        except SpoolError:
            return False
        else:
            return is_up
        finally:
            if not is_settled:
                self._spool.give_back(entry)

    async def _start(self, start: Start) -> StartOutcome:
        """One attempt; where messages share requests those of other lanes come along."""
        if self._gathered is not None:
            return await self._gathered.start(start)
        return (await self._intake.dispatcher.dispatch([start], tries=1))[0]

    async def _ended(self, outcome: StartOutcome, *, is_probe: bool) -> RunOutcome | None:
        runs = self._parts.runs
        if runs is None or not (is_probe or self._waits):
            return None
        lasts = _LASTS_S if is_probe else None
        is_old = outcome.kind == "duplicate"
        return await runs.ended(outcome.execution_id or "", lasts, is_old=is_old)

    async def _heard(self, entry: Entry, run: RunOutcome | None, *, is_probe: bool) -> bool:
        """What a run tells about its downstream; a probe that ends in time always tells."""
        if not is_probe:
            return run is None or not run.is_outage
        is_up = self._parts.runs is None or (run is not None and not run.is_outage)
        if is_up:
            await self._breakers.succeeded(entry.downstream)
        else:
            reason = run.error_kind if run is not None else "probe_timeout"
            await self._breakers.failed(entry.downstream, reason)
        return is_up

    async def _released(self, entry: Entry, probed: tuple[str, ...]) -> None:
        """It told nothing about its downstream."""
        if entry.downstream in probed:
            await self._breakers.released(entry.downstream)

    async def _not_started(self, entry: Entry, item: Item, outcome: StartOutcome) -> None:
        if outcome.kind == "refused":
            await self._dead(entry, item, "dispatch_rejected")
        elif outcome.kind == "unavailable" and outcome.is_entry:
            await self._failed(entry, item, is_counted=True, is_new_run=False)
        else:
            if outcome.kind == "misconfigured":
                self._intake.unauthorized(outcome)
            self._spool.give_back(entry)

    async def _failed(
        self, entry: Entry, item: Item, *, is_counted: bool, is_new_run: bool = True
    ) -> None:
        """One more attempt came to nothing; after so many it is given up."""
        if is_counted and item.attempts + 1 >= self._most_attempts:
            await self._dead(entry, item.attempted(), "replay_failed")
            return
        await self._spool.attempted(entry, item, is_new_run=is_new_run, is_counted=is_counted)

    async def _dead(self, entry: Entry, item: Item, reason: str) -> None:
        await self._spool.dead(entry, reason, item)
        self._tally.dead_lettered += 1

    def _done(self, item: Item, outcome: StartOutcome, run: RunOutcome | None) -> None:
        if outcome.kind == "duplicate":
            self._tally.deduped += 1
        else:
            self._tally.replayed += 1
            self._parts.metrics.replayed.inc(self._parts.listener.path)
        if run is not None and not run.is_completed:
            about = {"message_id": item.message_id, "execution_id": run.execution_id}
            self._parts.tell("subscription.message.failed", {**about, "status": run.status})
