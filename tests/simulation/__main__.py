"""Many seeds: `python -m tests.simulation --seeds 1000 --seed 1`; a failure tells its seed."""

from __future__ import annotations

import argparse
import logging
import random
import sys

from tests.simulation.seeds import FAILURES, command, judge

MOST_FINDINGS = 10


def main() -> int:
    """Judge the seeds one after the other."""
    arguments = argparse.ArgumentParser(prog="tests.simulation")
    arguments.add_argument("--seeds", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=None)
    asked = arguments.parse_args()
    first = random.SystemRandom().randrange(10**9) if asked.seed is None else asked.seed
    say = sys.stdout.write
    logging.getLogger("noetl").setLevel(logging.CRITICAL)  # what workers complain of is made here
    say(f"seed {first}\n")
    found, virtual, cpu, events, compared, crashes, faults, repeats = 0, 0.0, 0.0, 0, 0, 0, 0, 0
    for seed in range(first, first + asked.seeds):
        verdict = judge(seed)
        virtual += verdict.virtual_s
        cpu += verdict.cpu_s
        events += verdict.events
        compared += verdict.compared
        crashes += verdict.crashes
        faults += verdict.faults
        repeats += verdict.repeats
        if verdict.error:
            found += 1
            say(f"\nseed {seed} fails: {verdict.error}\n  {command(seed)}\n")
            say(f"  logs: {FAILURES / f'simulation-{seed}'}\n")
            if found == MOST_FINDINGS:
                break
    ratio = virtual / cpu if cpu else 0.0
    say(
        f"{asked.seeds} seeds from {first}: {found} findings, {asked.seeds / cpu:.1f} seeds/s, "
        f"{ratio:,.0f} x real time, {events} events, {compared} runs compared, {faults} faults, "
        f"{crashes} crashes, {repeats} repeated calls\n"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
