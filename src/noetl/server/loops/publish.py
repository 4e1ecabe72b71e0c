"""Publishes the events of commits: a message per execution and moment, in the order of `seq`.

The committing server publishes at once. What it fails to publish stays in the outbox of the store
and falls due for the server that leads; a message that was published twice has the same id twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.bus.base import BusGone, TooLarge
from noetl.edge.moments import from_now
from noetl.server.operations.letters import is_told, letter_of
from noetl.server.signals import EVENTS
from noetl.telemetry.failpoint import armed, failpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noetl.engine.events import Recorded
    from noetl.server.plane import Plane
    from noetl.store.base import Outgoing

CHUNK: Final = 256
"""Messages that are under way at the same time."""
COMPANY_S: Final = 0.02
"""How long the events of a commit wait for those of the next."""
MOST_TOGETHER: Final = 256
"""Events of one message that several commits make."""
DUE_S: Final = 10.0
"""What is older was left behind by the server that committed it."""
MOST_SWEPT: Final = 1000
EVERY_S: Final = 1.0


async def run(plane: Plane) -> None:
    """Publish what our own commits left, a moment after the first of them.

    Readers of the bus look on; the worker that waits for a commit does not wait for them, and the
    commits of a run that follow each other within that moment are one message.
    """
    while True:
        await drain(plane)
        await plane.signals.publish.wait()
        await asyncio.sleep(COMPANY_S)
        plane.signals.publish.clear()


async def drain(plane: Plane) -> int:
    """Publish what waits here; what a bus that is away does not take is left to `sweep`."""
    waiting = plane.signals.unpublished
    count = 0
    while waiting:
        batch = [waiting.popleft() for _ in range(min(CHUNK, len(waiting)))]
        try:
            count += await _publish(plane, merged(batch))
        except BusGone:
            waiting.clear()
            return count
        plane.signals.delivered([outgoing.outgoing_id for outgoing, _ in batch])
    return count


def merged(
    batch: Iterable[tuple[Outgoing, Sequence[Recorded]]],
) -> list[tuple[Outgoing, Sequence[Recorded]]]:
    """Commits of one run that follow each other, as one; runs in the order of their first."""
    found: dict[str, list[tuple[Outgoing, Sequence[Recorded]]]] = {}
    for outgoing, events in batch:
        of_run = found.setdefault(outgoing.execution_id, [])
        if of_run:
            before, earlier = of_run[-1]
            follows = before.payload["last_seq"] + 1 == outgoing.payload["first_seq"]
            if follows and len(earlier) + len(events) <= MOST_TOGETHER:
                payload = before.payload | {"last_seq": outgoing.payload["last_seq"]}
                joined = msgspec.structs.replace(before, payload=payload)
                of_run[-1] = (joined, (*earlier, *events))
                continue
        of_run.append((outgoing, events))
    return [item for of_run in found.values() for item in of_run]


async def sweep(plane: Plane) -> int:
    """Publish what other servers, or this one, have left behind; how many messages there were."""
    if not plane.parts.publishes:
        return 0
    store = plane.parts.store
    before = from_now(plane.parts.clock, -DUE_S)
    left = await store.outbox.waiting(MOST_SWEPT, before=before, kinds=(EVENTS,))
    count = 0
    for start in range(0, len(left), CHUNK):
        batch = [(each, await _read(plane, each)) for each in left[start : start + CHUNK]]
        try:
            count += await _publish(plane, batch)
        except BusGone:
            return count
        await store.outbox.delivered([outgoing.outgoing_id for outgoing, _ in batch])
    return count


async def _read(plane: Plane, outgoing: Outgoing) -> Sequence[Recorded]:
    first, last = outgoing.payload["first_seq"], outgoing.payload["last_seq"]
    return await plane.parts.store.log.read(outgoing.execution_id, first - 1, last - first + 1)


async def _publish(plane: Plane, batch: Iterable[tuple[Outgoing, Sequence[Recorded]]]) -> int:
    """Publish in order; how many messages were new to the bus."""
    if armed:
        await failpoint("server.publish")
    told = [(outgoing, events) for outgoing, events in batch if any(map(is_told, events))]
    metrics, spans = plane.metrics, plane.spans
    began = 0.0 if spans is None else spans.tracer.monotonic()
    try:
        new = await _send(plane, told)
        if armed:
            await failpoint("server.published")
    except BusGone:
        metrics.outbox_failed.inc(by=len(told))
        raise
    metrics.outbox_published.inc("ok", by=new)
    metrics.outbox_published.inc("duplicate", by=len(told) - new)
    if spans is not None:
        spans.published(told, began)
    return new


async def _send(plane: Plane, told: Sequence[tuple[Outgoing, Sequence[Recorded]]]) -> int:
    bus, runs = plane.parts.bus, plane.parts.store.executions
    try:
        return await bus.publish_many([await letter_of(runs, *each) for each in told])
    except TooLarge:  # a broker that takes less than the usual: say only where to look
        return await bus.publish_many([await letter_of(runs, *each, most=0) for each in told])
