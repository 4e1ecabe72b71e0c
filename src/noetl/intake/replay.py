"""One message out of the spool: started under its own key, then forgotten, kept, or given up."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.blobs.spool.base import SpoolError
from noetl.intake.deliveries import replay_start
from noetl.intake.dispatch import Gathered
from noetl.sources.breaker import PROBE_LASTS_MS
from noetl.telemetry.failpoint import armed, failpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from noetl.blobs.spool.item import Item
    from noetl.blobs.spool.order import Entry
    from noetl.blobs.spool.spool import Spool
    from noetl.intake.dispatch import Start
    from noetl.intake.engine import Intake
    from noetl.intake.outcomes import RunOutcome, StartOutcome
    from noetl.intake.parts import Parts

_LASTS_S: Final = PROBE_LASTS_MS / 1000
_COPIES: Final = 2
"""A workload holds a body as it is and as what was read from it."""
_READS: Final = 16


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
        self.shared_max = intake.shared_max
        """How many starts share a request."""
        is_shared = intake.shared_max > 1
        self._gathered = Gathered(intake.dispatcher, intake.shared_max) if is_shared else None
        self._tally = Tally()
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def is_unauthorized(self) -> bool:
        """Whether the server does not know this process."""
        return self._intake.is_unauthorized

    def begin(self) -> Tally:
        """Count anew."""
        self._tally = Tally()
        return self._tally

    async def replay(
        self,
        entry: Entry,
        *,
        is_trial: bool = False,
        is_probe: bool = False,
        probed: tuple[str, ...] = (),
    ) -> bool | None:
        """Start one that was taken; whether its downstream is there, none when it told nothing.

        A probe waits for the end of its run. Whatever happens, the item is settled or given back;
        one that is no trial is forgotten while its lane goes on.
        """
        with suppress(SpoolError):  # it was given back, for the next pass
            async with self._held(entry) as held:
                item = await self._got(entry, held)
                if item is None:
                    await self._released(entry, probed)
                    return None
                outcome = await self._start(replay_start(self._parts.listener, item), entry.size)
                if not outcome.is_accepted:
                    await self._released(entry, probed)
                    await self._not_started(entry, item, outcome)
                    held.clear()
                    return None if outcome.kind == "refused" else False
                if not (is_trial or is_probe or self._waits):
                    held.clear()
                    self._end(entry, item, outcome)
                    return True
                run = await self._ended(outcome, is_probe=is_probe)
                is_up = await self._heard(entry, run, is_probe=is_probe)
                if run is not None and run.is_outage:
                    await self._failed(entry, item, is_counted=not is_probe)
                    held.clear()
                elif is_up or not is_probe:
                    await self._settled(entry, item, outcome, run)
                    held.clear()
                return is_up
        return False

    async def replay_together(self, entries: Sequence[Entry]) -> None:
        """Start several of one lane that were taken, in one request and in their order.

        They need not wait for one another: one that cannot be read, or is not started, is left.
        """
        async with self._held(*entries) as held:
            found: list[Item | None] = []
            for first in range(0, len(entries), _READS):
                some = entries[first : first + _READS]
                found += await asyncio.gather(*(self._readable(entry, held) for entry in some))
            read = zip(entries, found, strict=True)
            going = [(entry, item) for entry, item in read if item is not None]
            starts = [replay_start(self._parts.listener, item) for _, item in going]
            outcomes = await self._start_all(starts, sum(entry.size for entry, _ in going))
            held.difference_update(entry for entry, _ in going)  # each answers for itself
            for (entry, item), outcome in zip(going, outcomes, strict=True):
                self._end(entry, item, outcome)

    async def ended(self, most: int = 0) -> None:
        """Wait until no more than so many are still to be forgotten."""
        while len(self._ending) > most:
            first = asyncio.FIRST_COMPLETED
            done, self._ending = await asyncio.wait(self._ending, return_when=first)
            for task in done:
                task.result()

    async def stop(self) -> None:
        """Leave what is still to be forgotten: its key makes the next attempt a duplicate."""
        ending, self._ending = self._ending, set()
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)

    def _end(self, entry: Entry, item: Item, outcome: StartOutcome) -> None:
        """It was answered; where it has its run its lane goes on meanwhile."""
        if outcome.is_accepted:
            self._spool.release(entry)
        self._ending.add(asyncio.create_task(self._one_of(entry, item, outcome)))

    async def _readable(self, entry: Entry, held: set[Entry]) -> Item | None:
        with suppress(SpoolError):  # it is given back, for the next pass
            return await self._got(entry, held)
        return None

    async def _one_of(self, entry: Entry, item: Item, outcome: StartOutcome) -> None:
        is_settled = False
        try:
            if outcome.is_accepted:
                await self._settled(entry, item, outcome, None)
            else:
                await self._not_started(entry, item, outcome)
            is_settled = True
        except SpoolError:
            pass  # it is given back, for the next pass
        finally:
            if not is_settled:
                self._spool.give_back(entry)

    @asynccontextmanager
    async def _held(self, *entries: Entry) -> AsyncIterator[set[Entry]]:
        """Whatever is left in the set at the end is given back, whatever has happened."""
        held = set(entries)
        try:
            yield held
        finally:
            for entry in held:
                self._spool.give_back(entry)

    async def _got(self, entry: Entry, held: set[Entry]) -> Item | None:
        """What one says that was taken; none when it cannot be read, and then it is settled."""
        item = await self._spool.get(entry)
        if item is None:
            held.discard(entry)
            self._tally.dead_lettered += 1
        return item

    async def _settled(
        self, entry: Entry, item: Item, outcome: StartOutcome, run: RunOutcome | None
    ) -> None:
        """It has its run: it waits no more."""
        if armed:
            await failpoint("subscription.replay")
        await self._spool.done(entry)
        if armed:
            await failpoint("subscription.delete")
        self._done(item, outcome, run)

    async def _start(self, start: Start, size: int) -> StartOutcome:
        return (await self._start_all([start], size))[0]

    async def _start_all(self, starts: Sequence[Start], size: int) -> list[StartOutcome]:
        """One attempt; where messages share requests those of other lanes come along."""
        if not starts:
            return []
        if self._gathered is not None:
            return await self._gathered.start_all(starts, size * _COPIES)
        return await self._intake.dispatcher.dispatch(starts, tries=1)

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
