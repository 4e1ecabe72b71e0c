"""`python -m tests.replay --record` adds logs that are missing; then every log is replayed."""

from __future__ import annotations

import argparse
import sys

from tests.replay.logs import digest, load, names
from tests.replay.record import record
from tests.replay.replay import Differs, replay


def main() -> int:
    """Record or replay."""
    arguments = argparse.ArgumentParser(prog="tests.replay")
    arguments.add_argument("--record", action="store_true")
    arguments.add_argument("--logs", type=int, default=60, help="how many there shall be")
    asked = arguments.parse_args()
    if asked.record:
        sys.stdout.writelines(f"recorded {name}\n" for name in record(asked.logs))
    differing = 0
    for name in names():
        log = load(name)
        try:
            state, decided = replay(log)
            verdict = "same" if digest(state) == log.final else "ANOTHER STATE"
        except Differs as difference:
            decided, verdict = 0, f"DIFFERS {difference}"
        differing += verdict != "same"
        sys.stdout.write(f"{name}: {len(log.rows)} rows, {decided} decided, {verdict}\n")
    sys.stdout.write(f"{len(names())} logs, {differing} of them differ\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
