"""Outlives a supervisor that was killed, to stop what it left behind: `python -m ... guard HOME`.

Its standard input is a pipe that only the supervisor holds; the pipe ends when the supervisor
does, however that happens.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from noetl.local.embedded.record import read
from noetl.local.embedded.stopping import stop_parts


def main(record: Path) -> int:
    """Wait for the end of the supervisor; stop what it left."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    stack = read(record)
    if stack is None or stack.supervisor.is_alive:
        return 0
    stop_parts(stack)
    record.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
