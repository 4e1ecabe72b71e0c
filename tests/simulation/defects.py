"""Defects that are planted on purpose: a simulation that finds none of them finds nothing."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from noetl.server.fleet.reports import Intake
from tests.simulation.backends import PARTS
from tests.simulation.world import Hooks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.api.events import Report, Reported, Reports
    from noetl.server.app import Server
    from noetl.store.base import Change, Outgoing
    from noetl.store.memory.store import MemoryStore


class Over:
    """A part of a store with some methods replaced."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _Store:
    """All parts of a store, some of them replaced."""

    def __init__(self, store: MemoryStore, **parts: Any) -> None:
        for part in PARTS:
            setattr(self, part, parts.get(part, getattr(store, part)))
        self.roles = store.roles


def over(store: MemoryStore, **parts: Any) -> Any:
    """A store with some parts replaced."""
    return _Store(store, **parts)


# ---------------------------------------------------------------------------- the fence


class Trusting(Intake):
    """Takes every report as one of the current attempt, whoever sends it: it skips the fence."""

    async def report(self, body: Reports, *more: Any) -> Reported:
        """Rewrite who speaks before anyone looks."""
        worker_id = body.worker_id
        events = []
        for report in body.events:
            row = await self._commands.get(report.command_id)
            if row is not None and row.status == "CLAIMED":
                worker_id = row.worker_id or worker_id
                events.append(self._trusted(report, row.attempt))
            else:
                events.append(report)
        return await super().report(
            msgspec.structs.replace(body, worker_id=worker_id, events=tuple(events)), *more
        )

    @staticmethod
    def _trusted(report: Report, attempt: int) -> Report:
        return msgspec.structs.replace(report, attempt=attempt)


def no_fence(server: Server) -> None:
    """Let a server trust its workers."""
    server.plane.intake.__class__ = Trusting


# ---------------------------------------------------------------------------- the store


class DoubleLog(Over):
    """Applies a commit a second time when it lost a race, as if nobody had written before."""

    async def commit(
        self, changes: Sequence[Change], delivered: Sequence[str] = ()
    ) -> frozenset[str]:
        lost = await self.inner.commit(changes, delivered)
        for change in changes:
            if change.execution_id in lost and change.expected_seq:
                await self._again(change)
        return frozenset()

    async def _again(self, change: Change) -> None:
        log = await self.inner.read(change.execution_id, 0, 1_000_000)
        last = log[-1]
        seq, before, events = last.seq, last.event_id, []
        for item in change.events:
            if any(item.event_id == other.event_id for other in log):
                continue
            seq += 1
            events.append(msgspec.structs.replace(item, seq=seq, prev_event_id=before))
            before = item.event_id
        if events:
            row = msgspec.structs.replace(change.execution, last_seq=seq, last_event_id=before)
            await self.inner.commit(
                [
                    msgspec.structs.replace(
                        change, expected_seq=last.seq, events=tuple(events), execution=row
                    )
                ]
            )


class BlindLog(Over):
    """Says that every commit was written, also those that lost a race."""

    async def commit(
        self, changes: Sequence[Change], delivered: Sequence[str] = ()
    ) -> frozenset[str]:
        await self.inner.commit(changes, delivered)
        return frozenset()


def is_forgotten(item: Outgoing) -> bool:
    """Every fifth message, whoever looks."""
    return crc32(item.outgoing_id.encode()) % 5 == 0


class LossyLog(Over):
    """Forgets some of what a commit has to say to other runs."""

    async def commit(
        self, changes: Sequence[Change], delivered: Sequence[str] = ()
    ) -> frozenset[str]:
        kept = []
        for change in changes:
            told = tuple(item for item in change.outgoing if not is_forgotten(item))
            kept.append(msgspec.structs.replace(change, outgoing=told))
        done: frozenset[str] = await self.inner.commit(kept, delivered)
        return done


class LossyQueue(deque[Any]):
    """Forgets the same ones in the memory of the server."""

    def append(self, item: Outgoing) -> None:
        if not is_forgotten(item):
            super().append(item)


def forgets(server: Server) -> None:
    """Let a server forget messages."""
    server.plane.signals.undelivered = LossyQueue()


class LongLeases(Over):
    """Never finds a lease that has ended."""

    async def expired(self, _now: str, limit: int = 1000) -> list[Any]:
        del limit
        return []


DEFECTS: dict[str, Hooks] = {
    "a server skips the fence": Hooks(server=no_fence),
    "a commit that lost is applied anyway": Hooks(
        store=lambda store: over(store, log=DoubleLog(store.log))
    ),
    "a commit that lost is told to be written": Hooks(
        store=lambda store: over(store, log=BlindLog(store.log))
    ),
    "messages to other runs get lost": Hooks(
        store=lambda store: over(store, log=LossyLog(store.log)), server=forgets
    ),
    "leases never end": Hooks(store=lambda store: over(store, commands=LongLeases(store.commands))),
}
