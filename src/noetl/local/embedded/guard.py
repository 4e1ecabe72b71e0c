"""Outlives a supervisor that was killed, to stop what it left behind: `python -m ... guard HOME`.

Its standard input is a pipe that only the supervisor holds; the pipe ends when the supervisor
does, however that happens.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Final

from noetl.local.embedded.identity import await_end
from noetl.local.embedded.record import read
from noetl.local.embedded.stopping import stop_parts

GONE_S: Final = 10.0


def main(record: Path) -> int:
    """Wait for the end of the supervisor; stop what it left."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    stack = read(record)
    # A process that is killed lets go of its pipes a moment before it is gone.
    if stack is None or await_end([stack.supervisor], GONE_S):
        return 0
    stop_parts(stack)
    record.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
