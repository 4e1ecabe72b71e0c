"""Measures ours beside its peers: `python -m bench.peers [NAME ...] [--repeat N] [--json FILE]`.

Records go to stdout as JSON, one table of all engines to stderr, and with `--write PAGE` also into
a page. A peer that this machine cannot install is told in the table; a wrong result fails.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

import uvloop

from bench.marks import placed
from bench.peers.engines import PEERS, named
from bench.peers.measure import compared
from bench.peers.table import is_right, markdown, text

REPEAT = 3


def main() -> int:
    """Measure what was asked for and tell it."""
    listed = ", ".join(peer.name for peer in PEERS)
    arguments = argparse.ArgumentParser(prog="bench.peers", epilog=f"peers: {listed}")
    arguments.add_argument("names", nargs="*", metavar="NAME", help="all of them without a name")
    arguments.add_argument("--repeat", type=int, default=REPEAT)
    arguments.add_argument("--json", type=Path, help="also write the records to this file")
    arguments.add_argument("--write", type=Path, help="put the table between the marks of a page")
    asked = arguments.parse_args()
    peers = named(asked.names)
    page = asked.write.read_text(encoding="utf-8") if asked.write else ""
    signal.signal(signal.SIGTERM, _end)  # what was started is stopped
    columns = uvloop.run(compared(peers, asked.repeat))
    records = json.dumps([one for column in columns for one in column.records], indent=1)
    sys.stdout.write(records + "\n")
    sys.stdout.flush()
    if asked.json:
        asked.json.write_text(records + "\n", encoding="utf-8")
    sys.stderr.write(text(columns) + "\n")
    is_good = is_right(columns)
    if asked.write and is_good:
        asked.write.write_text(placed(page, "compared", markdown(columns)), encoding="utf-8")
    return 0 if is_good else 1


def _end(signal_number: int, frame: object) -> None:
    del frame
    raise SystemExit(128 + signal_number)


if __name__ == "__main__":
    sys.exit(main())
