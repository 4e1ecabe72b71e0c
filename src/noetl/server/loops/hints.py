"""Tells pools of commands that nobody has claimed, at once and again until somebody does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.bus import subjects
from noetl.bus.base import BusGone
from noetl.server.moments import from_now
from noetl.server.signals import Hint, sleep_until

if TYPE_CHECKING:
    from noetl.server.plane import Plane

OLD_S: Final = 5.0
EVERY_S: Final = 30.0
_encode: Final = msgspec.json.Encoder().encode


async def run(plane: Plane) -> None:
    """Publish what commits left unclaimed; look for what was forgotten now and then."""
    clock = plane.parts.clock
    due = clock.monotonic() + EVERY_S
    while True:
        await publish(plane)
        if clock.monotonic() >= due:
            due = clock.monotonic() + EVERY_S
            await repeat(plane)
        await sleep_until(plane.signals.hints, due - clock.monotonic())


async def publish(plane: Plane) -> None:
    """Publish the hints that wait; a bus that is away loses them, claims and repeats do not."""
    waiting = plane.signals.unhinted
    try:
        while waiting:
            await _tell(plane, waiting.popleft(), "")
        for pool, commands in plane.signals.taken_stops().items():
            message = _encode({"op": "cancel", "command_ids": commands})
            await plane.parts.bus.tell(subjects.control(pool), message)
    except BusGone:
        waiting.clear()


async def repeat(plane: Plane) -> None:
    """Hint again at commands that have been pending for a while."""
    clock = plane.parts.clock
    before = from_now(clock, -OLD_S)
    for row in await plane.parts.store.commands.unhinted(before):
        hint = Hint(row.execution_id, row.pool or "", row.command_id, row.step, row.attempt)
        try:
            await _tell(plane, hint, before)
        except BusGone:
            return


async def _tell(plane: Plane, hint: Hint, round_: str) -> None:
    message = {
        "execution_id": hint.execution_id,
        "event_id": hint.command_id,
        "command_id": hint.command_id,
        "step": hint.step,
        "attempt": hint.attempt,
        "server_url": plane.parts.server_url,
        "execution_pool": hint.pool,
    }
    subject = subjects.commands(hint.pool, hint.execution_id)
    msg_id = f"{hint.command_id}.{hint.attempt}.{round_}"
    await plane.parts.bus.publish(subject, _encode(message), msg_id)
