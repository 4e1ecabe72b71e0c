"""Stops the processes of a record: for `noetl down`, the repair of the next `up`, and the guard."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from noetl.local.embedded.identity import await_end

if TYPE_CHECKING:
    from noetl.local.embedded.record import Part, Stack

GRACE_S: Final = 30.0
_KILL_S: Final = 10.0


def stop_parts(stack: Stack, grace_s: float = GRACE_S) -> list[Part]:
    """Stop what still runs, stage by stage from the top; what did run is returned."""
    running = [part for part in stack.parts if part.pid and part.identity.is_alive]
    for stage in sorted({part.stage for part in running}, reverse=True):
        group = [part for part in running if part.stage == stage]
        for part in group:
            part.identity.send(signal.Signals[part.stop_signal])
        left = set(await_end([part.identity for part in group], grace_s))
        for part in group:
            if part.identity in left:
                part.identity.send(signal.Signals[part.kill_signal])
        for stubborn in await_end(left, _KILL_S):
            stubborn.send(signal.SIGKILL)
        await_end(left, _KILL_S)
    return running
