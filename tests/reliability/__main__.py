"""Plays scenarios at length: `python -m tests.reliability [NAME ...] [--minutes N] [--seed N]`.

The seed comes first on the output; the same seed gives the same schedule. A table goes to stderr,
the whole report to `build/reliability/report.json`. What is left of a scenario that failed (logs of
all parts, data folders, the schedule) stays in `build/failures/`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import traceback

from tests.reliability.report import REPORT, ROOT
from tests.reliability.rig import Mould
from tests.reliability.scenario import NAMES, Plan, Verdict, passable, play

FAILURES = ROOT / "build" / "failures"


def main():
    """Play what was asked for; 1 when one of them failed."""
    arguments = argparse.ArgumentParser(prog="tests.reliability")
    arguments.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    arguments.add_argument("--minutes", type=float, default=10.0, help="of all scenarios together")
    arguments.add_argument("--seed", type=int)
    asked = arguments.parse_args()
    unknown = sorted(set(asked.names) - set(NAMES))
    if unknown:
        arguments.error(f"no such scenario: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    seed = random.SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    sys.stdout.write(f"seed {seed}\n")
    sys.stdout.flush()
    names = asked.names or list(NAMES)
    verdicts = asyncio.run(_all(names, seed, asked.minutes * 60 / len(names)))
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps([one.as_json() for one in verdicts], indent=1, default=str) + "\n")
    sys.stdout.write(f"report {REPORT.relative_to(ROOT)}\n")
    return 1 if any(one.faults for one in verdicts) else 0


async def _all(names, seed, seconds):
    verdicts = []
    folder = passable("noetl-mould-")
    try:
        mould = Mould(folder)
        await mould.make()
        for name in names:
            verdicts.append(await _one(name, seed, seconds, mould))
            sys.stderr.write(f"{_line(verdicts[-1])}\n")
    finally:
        shutil.rmtree(folder)
    return verdicts


async def _one(name, seed, seconds, mould):
    """A verdict, also of a scenario that broke."""
    folder = passable(f"noetl-{name}-")
    try:
        verdict = await play(name, Plan(seed=seed, seconds=seconds, folder=folder, mould=mould))
    except (Exception, asyncio.CancelledError):
        if asyncio.current_task().cancelling():  # a person stops us
            shutil.rmtree(folder)
            raise
        verdict = Verdict(name=name, seed=seed, wrong=[traceback.format_exc()])
    if verdict.faults:
        kept = FAILURES / f"{name}-{seed}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(
            folder, kept, symlinks=True, ignore=shutil.ignore_patterns("data", "*.sock")
        )
        (kept / "verdict.json").write_text(json.dumps(verdict.as_json(), indent=1, default=str))
    shutil.rmtree(folder)
    return verdict


def _line(one):
    if one.skipped:
        return f"{one.name}: skipped: {one.skipped}"
    told = (
        f"{one.name}: {'FAILED' if one.faults else 'ok'}, {len(one.schedule)} faults, "
        f"{one.accepted} accepted, {len(one.lost)} lost, {len(one.wrong)} wrong, "
        f"{len(one.stuck)} stuck, {one.repeats} of {one.calls} calls repeated, "
        f"recovery p99 {one.recovery_p99_s:.1f} s"
    )
    return "\n  ".join([told, *one.faults])


if __name__ == "__main__":
    sys.exit(main())
