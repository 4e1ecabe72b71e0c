"""Shows traces on a terminal: `python -m noetl.telemetry.traces [--port N] [-- COMMAND ...]`.

With a command, its traces are shown when it has ended; else it listens until Ctrl-C.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Final

from noetl.telemetry.traces.collector import Collector
from noetl.telemetry.traces.tree import lines

PORT: Final = 4318
"""Where the protocol looks by default."""
QUIET_S: Final = 1.5
"""A trace of which nothing came for so long is shown; processes send once a second."""
_VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"


def main(words: list[str]) -> int:
    """Listen, and show what comes."""
    own, command = words, []
    if "--" in words:
        place = words.index("--")
        own, command = words[:place], words[place + 1 :]
    asking = argparse.ArgumentParser(prog="python -m noetl.telemetry.traces")
    asking.add_argument("--port", type=int, default=0 if command else PORT)
    with Collector(asking.parse_args(own).port) as collector:
        return _of_command(collector, command) if command else _until_told(collector)


def _of_command(collector: Collector, command: list[str]) -> int:
    done = subprocess.run(  # noqa: S603 - the command that the caller wrote
        ["/usr/bin/env", f"{_VARIABLE}={collector.url}", *command], check=False
    )
    _show(collector)
    return done.returncode


def _until_told(collector: Collector) -> int:
    _tell(f"{_VARIABLE}={collector.url}")
    try:
        while True:
            if collector.quiet(QUIET_S):
                _show(collector)
    except KeyboardInterrupt:
        _show(collector)
        return 0


def _show(collector: Collector) -> None:
    for line in lines(collector.taken()):
        _tell(line)


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
