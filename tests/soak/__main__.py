"""A soak of any length: `python -m tests.soak [--hours H] [--seed S] [--rate N]`.

Eight ninths of the time are work at a steady rate with a kill every five minutes (at least two),
the last ninth is rest. The seed comes first on the output; the table of slopes goes there, too, the
whole report to `build/soak/report.json`. Ends with 1 when something is out of its bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
from pathlib import Path

from tests.reliability.rig import Mould, stacked
from tests.reliability.scenario import passable
from tests.soak.run import RATE, Soak

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "build" / "soak" / "report.json"
LEAST_S = 60.0
MOST_TOLD = 20


def main():
    """Soak; 0 when all kept to its bounds."""
    arguments = argparse.ArgumentParser(prog="tests.soak")
    arguments.add_argument("--hours", type=float, default=8.0, help="work and rest together")
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("--rate", type=float, default=RATE, help="runs begun in a second")
    asked = arguments.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    _say(f"seed {seed}")
    soak = Soak(seed=seed, seconds=max(LEAST_S, asked.hours * 3600), rate=asked.rate)
    asyncio.run(_run(soak))
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(soak.report, indent=1, default=str) + "\n")
    _say(_table(soak.rows))
    _say(f"{soak.report['rate']}; idle {soak.report['idle_percent']}")
    for fault in soak.faults[:MOST_TOLD]:
        _say(f"out of bounds: {fault}")
    if len(soak.faults) > MOST_TOLD:
        _say(f"and {len(soak.faults) - MOST_TOLD} more")
    _say(f"report {REPORT.relative_to(ROOT)}")
    return 1 if soak.faults else 0


async def _run(soak):
    folder, mould = passable("noetl-soak-"), None
    try:
        (folder / "mould").mkdir(mode=0o711)
        (folder / "stack").mkdir(mode=0o711)
        mould = Mould(folder / "mould")
        await mould.make()
        async with stacked(folder / "stack", mould) as stack:
            await soak.run(stack, _say)
    finally:
        shutil.rmtree(folder)


def _table(rows):
    names = list(rows[0])
    cells = [names, *([str(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(names))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in cells)


def _say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
