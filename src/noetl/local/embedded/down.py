"""`noetl down`: ends the stack of a folder, whether its supervisor still lives or not."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from noetl.errors import NoetlError
from noetl.local.embedded import record
from noetl.local.embedded.identity import await_end
from noetl.local.embedded.stopping import GRACE_S, stop_parts

if TYPE_CHECKING:
    from noetl.local.embedded.home import Home

# Five stages at most, each with its grace and a last word.
PATIENCE_S: Final = 4 * GRACE_S


class StillRunning(NoetlError):
    """A stack that did not end."""

    code = "stack_failed"


def down(home: Home) -> list[str]:
    """Stop a stack and wait until all of it is gone; the names of what ran."""
    stack = record.read(home.record)
    if stack is None:
        return []
    running = [part.name for part in stack.parts if part.identity.is_alive]
    supervisor = stack.supervisor
    if supervisor.is_alive:
        supervisor.send(signal.SIGTERM)
        if await_end([supervisor], PATIENCE_S):
            supervisor.send(signal.SIGKILL)
            await_end([supervisor], GRACE_S)
    last = record.read(home.record) or stack
    stop_parts(last)
    left = await_end([part.identity for part in (*stack.parts, *last.parts)], GRACE_S)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise StillRunning(f"These processes do not end: {pids}.", hint="look at them with `ps`")
    home.record.unlink(missing_ok=True)
    return running
