"""Looks after requests of which nothing is heard: one gateway at a time does it for all of them.

What is still to be told is known by names alone (`record.open_key`). A deadline that has passed
ends its request; of one that is silent the server is asked; an end that somebody noted and did not
live to tell is told. When the names are lost as well, the server tells who waits for runs.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from noetl.api.gateway import Failure
from noetl.api.problems import Refused
from noetl.bus.base import BusGone
from noetl.bus.keys import KeyChanged
from noetl.errors import NoetlError
from noetl.gateway.errors import UNAVAILABLE
from noetl.gateway.requests import record as rec
from noetl.gateway.requests.ends import AWAY
from noetl.gateway.requests.rebuilding import is_ended
from noetl.ids import random_key

if TYPE_CHECKING:
    from noetl.gateway.requests.feeding import Feeding
    from noetl.gateway.requests.parts import Parts
    from noetl.gateway.requests.record import Record

EVERY_S: Final = 5.0
LEASE_S: Final = 10.0
SILENT_S: Final = 30.0
TOGETHER: Final = 32
"""Requests that are looked at at the same time."""
_log: Final = logging.getLogger(__name__)
_NEVER_BEGUN: Final = Failure(code=UNAVAILABLE, message="the run was not started")


class Lease:
    """The right to sweep; whoever has it and does not renew it loses it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._name = random_key().encode()
        self._revision = 0

    async def held(self) -> bool:
        """Take or renew it; whether it is ours."""
        keys, name = self._parts.records.keys, self._name
        try:
            if self._revision:
                self._revision = await keys.update(rec.SWEEPER, name, self._revision, LEASE_S)
            else:
                self._revision = await keys.create(rec.SWEEPER, name, LEASE_S)
        except KeyChanged:
            entry = await keys.get(rec.SWEEPER)
            is_ours = entry is not None and entry.value == name  # an answer was lost
            self._revision = entry.revision if entry is not None and is_ours else 0
            return is_ours
        return True

    async def release(self) -> None:
        """Let another gateway sweep at once."""
        revision, self._revision = self._revision, 0
        if revision:
            try:
                await self._parts.records.keys.delete(rec.SWEEPER, revision)
            except (KeyChanged, BusGone):
                return


class Sweeping:
    """Sweeps."""

    def __init__(self, parts: Parts, feeding: Feeding) -> None:
        self._parts = parts
        self._feeding = feeding
        self._lease = Lease(parts)
        self._look_at: dict[str, float] = {}
        """When an open request is looked at next; one that is new here, at the next sweep."""
        self._room = asyncio.Semaphore(TOGETHER)

    async def run(self) -> None:
        """Sweep for ever, when it is our turn."""
        try:
            while True:
                try:
                    if await self._lease.held():
                        await self.restore()
                        await self.sweep()
                    else:
                        self._look_at.clear()
                except BusGone:
                    _log.warning("requests are not swept: the bus is away")
                await asyncio.sleep(EVERY_S)
        finally:
            await self._lease.release()

    async def restore(self) -> None:
        """Know again what all wait for, when the bucket was lost with everything in it."""
        parts = self._parts
        if await parts.records.is_whole():
            return
        try:
            async with aclosing(parts.rebuilds.of_all()) as found:
                async for some in found:
                    await asyncio.gather(
                        *(parts.records.restore(each, is_told=False) for each in some)
                    )
                    if not await self._lease.held():
                        return
        except (Refused, *AWAY) as fault:  # the next sweep does it; deadlines do not wait for that
            _log.warning("lost requests are not rebuilt yet", extra={"reason": fault.code})
            return
        await parts.records.note_whole()

    async def sweep(self) -> int:
        """Look after every request that needs it; how many those were."""
        parts = self._parts
        wall, now = parts.clock.now().timestamp(), parts.clock.monotonic()
        opened = await parts.records.opened()
        known, due = self._look_at, []
        self._look_at = {}
        for deadline, request_id in opened:
            look_at = self._look_at[request_id] = known.get(request_id, now + EVERY_S / 2)
            if deadline <= wall or (request_id in known and look_at <= now):
                due.append((deadline, request_id))
        await asyncio.gather(*(self._looked(*each) for each in due))
        return len(due)

    async def _looked(self, deadline: float, request_id: str) -> None:
        async with self._room:
            try:
                async with asyncio.timeout(LEASE_S):
                    await self._settle(deadline, request_id)
            except BusGone:
                raise
            except (NoetlError, TimeoutError) as fault:  # the next sweep does it
                code = fault.code if isinstance(fault, NoetlError) else "timeout"
                _log.warning(
                    "a request is not settled yet", extra={"request_id": request_id, "reason": code}
                )

    async def _settle(self, deadline: float, request_id: str) -> None:
        parts = self._parts
        kept = await parts.records.find(request_id)
        if kept is None:
            await self._lost(deadline, request_id)
            return
        record = kept.record
        if rec.opened(rec.open_key(record)) != (deadline, request_id):
            # Of a start that was left behind, and done again under another deadline.
            await parts.records.forget_open(deadline, request_id)
        elif record.state == "rejected":
            await parts.records.close(record)
        elif not record.is_open:
            await parts.ends.tell(record)
        elif rec.moment(record.deadline) <= parts.clock.now():
            await self._expired(record)
        else:
            await self._asked(record)

    async def _expired(self, record: Record) -> None:
        """End a request whose deadline has passed, unless its run had ended by then."""
        try:
            row = await self._parts.rebuilds.last_row(record.execution_id)
        except (Refused, *AWAY):
            row = None  # the deadline counts, whoever is away
        if row is not None and rec.moment(row["created_at"]) <= rec.moment(record.deadline):
            await self._feeding.heard(record, row)
        else:
            await self._parts.ends.expire(record)

    async def _asked(self, record: Record) -> None:
        """Ask for the run of a request, when it has been silent for long enough."""
        parts = self._parts
        age_s = (parts.clock.now() - rec.moment(record.changed_at)).total_seconds()
        silent_s = min(age_s, self._feeding.silence_s(record.request_id))
        wait_s = SILENT_S - silent_s
        if wait_s > 0:
            self._look_at[record.request_id] = parts.clock.monotonic() + wait_s
            return
        self._look_at[record.request_id] = parts.clock.monotonic() + SILENT_S
        status = await parts.rebuilds.status(record.execution_id)
        now = parts.records.now()
        if status is None:
            if record.state == "accepted":
                await parts.records.change(
                    record.request_id, lambda each: rec.rejected(each, _NEVER_BEGUN, now)
                )
                await parts.records.close(record)
            return
        if is_ended(status):
            row = await parts.rebuilds.last_row(record.execution_id)
            if row is not None:
                await self._feeding.heard(record, row)
        elif record.state == "accepted":
            await parts.records.change(record.request_id, lambda each: rec.running(each, now))

    async def _lost(self, deadline: float, request_id: str) -> None:
        """Make a record anew that is gone while its name is still there."""
        parts = self._parts
        try:
            record = await parts.rebuilds.of_request(request_id, is_heard=True)
        except Refused as refusal:
            _log.warning("a lost request cannot be rebuilt", extra={"code": refusal.code})
            return
        if record is None:
            await parts.records.forget_open(deadline, request_id)
            return
        record = await parts.records.restore(record)
        if record.is_open:
            await self._asked(record)
        else:
            await parts.ends.tell(record)
