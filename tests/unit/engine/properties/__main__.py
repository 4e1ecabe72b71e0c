"""The properties over many cases: `python -m tests.unit.engine.properties --cases 100000 --seed 1`.

Case `n` of a run with seed `s` has the seed `s + n`; a failure prints it, and `--cases 1 --seed
THAT --only NAME` replays it. `--digest` prints a hash of every log and state instead, for comparing
two processes.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import traceback

from noetl.engine.snapshot import dump
from tests.unit.engine.properties.cases import CHECKS, wild_run

MOST_FINDINGS = 10


def digest(seed: int) -> str:
    """A hash of all that was decided, and of the state at the end."""
    host = wild_run(seed).to_the_end().host
    return hashlib.sha256(b"".join([*host.written, dump(host.state)])).hexdigest()


def main() -> int:
    """Check every property over its share of the cases."""
    arguments = argparse.ArgumentParser(prog="tests.unit.engine.properties")
    arguments.add_argument("--cases", type=int, default=10_000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--only", choices=sorted(CHECKS))
    arguments.add_argument("--digest", action="store_true")
    asked = arguments.parse_args()
    seeds = range(asked.seed, asked.seed + asked.cases)
    if asked.digest:
        sys.stdout.writelines(f"{digest(seed)}\n" for seed in seeds)
        return 0
    names = [asked.only] if asked.only else list(CHECKS)
    found = 0
    for number, seed in enumerate(seeds):
        name = names[number % len(names)]
        try:
            CHECKS[name](seed)
        except Exception:  # noqa: BLE001 - any exception is what we look for
            found += 1
            sys.stdout.write(f"{name} fails with --seed {seed}\n{traceback.format_exc()}\n")
            if found == MOST_FINDINGS:
                break
    sys.stdout.write(f"{asked.cases} cases from seed {asked.seed}: {found} findings\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
