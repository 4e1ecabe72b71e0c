"""Tells pools of commands that nobody has claimed, at once and again until somebody does."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.bus import subjects
from noetl.bus.base import BusGone, Letter
from noetl.edge.moments import from_now
from noetl.server.signals import Hint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.server.plane import Plane
    from noetl.server.signals import Stop

OLD_S: Final = 5.0
"""A command that waits longer may have been missed."""
AGAIN_S: Final = 30.0
"""One that is still there after another while is told again."""
MOST_AGAIN: Final = 64
"""Commands of a pool that a round tells of again: whoever wakes asks for all that it can hold."""
CHUNK: Final = 256
MOST_BYTES: Final = 4096
_encode: Final = msgspec.json.Encoder().encode


async def run(plane: Plane) -> None:
    """Publish what commits left unclaimed."""
    while True:
        await publish(plane)
        await plane.signals.hints.wait()
        plane.signals.hints.clear()


async def publish(plane: Plane) -> None:
    """Publish the hints that wait; a bus that is away loses them, claims and repeats do not."""
    waiting = plane.signals.unhinted
    try:
        while waiting:
            found = [waiting.popleft() for _ in range(min(CHUNK, len(waiting)))]
            await _tell(plane, found, "")
        for pool, stops in plane.signals.taken_stops().items():
            subject = subjects.control(pool)
            for start in range(0, len(stops), CHUNK):
                message = _word(stops[start : start + CHUNK])
                await plane.parts.bus.tell(subject, message)
    except BusGone:
        waiting.clear()


def _word(stops: Sequence[Stop]) -> bytes:
    """What is to stop; the next attempt of a lost one may run already, and must not."""
    return _encode(
        {
            "op": "cancel",
            "command_ids": [stop.command_id for stop in stops],
            "attempts": {stop.command_id: stop.attempt for stop in stops},
        }
    )


async def repeat(plane: Plane) -> int:
    """Hint again at commands that have been pending for a while; how many were told of."""
    clock = plane.parts.clock
    before, told = from_now(clock, -OLD_S), from_now(clock, AGAIN_S - OLD_S)
    rows = await plane.parts.store.commands.unhinted(before, told=told)
    seen = Counter[str]()
    hints = []
    for row in rows:
        pool = row.pool or ""
        seen[pool] += 1
        if seen[pool] <= MOST_AGAIN:
            hints.append(Hint(row.execution_id, pool, row.command_id, row.step, row.attempt))
    try:
        for start in range(0, len(hints), CHUNK):
            await _tell(plane, hints[start : start + CHUNK], before)
    except BusGone:
        return 0  # parked claims find them, and so does the next round
    return len(hints)


async def _tell(plane: Plane, hints: Sequence[Hint], round_: str) -> None:
    await plane.parts.bus.publish_many([_letter(plane, hint, round_) for hint in hints])
    for pool, count in Counter(hint.pool for hint in hints).items():
        plane.metrics.command_publish.inc("sweep" if round_ else "hint", pool, by=count)


def _letter(plane: Plane, hint: Hint, round_: str) -> Letter:
    message: dict[str, Any] = {
        "execution_id": hint.execution_id,
        "event_id": hint.command_id,
        "command_id": hint.command_id,
        "step": hint.step,
        "attempt": hint.attempt,
        "server_url": plane.parts.server_url,
        "execution_pool": hint.pool,
    }
    payload = _encode(message)
    entry = plane.cache.peek(hint.execution_id)
    if entry is not None and entry.state.trace is not None:
        traced = _encode(message | {"trace": entry.state.trace})
        payload = traced if len(traced) < MOST_BYTES else payload
    subject = subjects.commands(hint.pool, hint.execution_id)
    return Letter(subject, payload, f"{hint.command_id}.{hint.attempt}.{round_}")
