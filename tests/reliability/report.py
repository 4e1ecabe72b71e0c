"""Verdicts as a part of the page on guarantees: `python -m tests.reliability.report [--write]`.

It takes `build/reliability/report.json`, which `make test-reliability` leaves.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.machine import commit
from bench.marks import placed
from noetl.clock import SystemClock

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "build" / "reliability" / "report.json"
PAGE = ROOT / "docs" / "explanation" / "delivery-guarantees.md"
HEAD = (
    "scenario",
    "faults",
    "accepted",
    "lost",
    "wrong",
    "stuck",
    "repeated calls",
    "recovery p99",
)


def markdown(verdicts, about):
    """A sentence on what was played, and a table."""
    seeds = ", ".join(sorted({str(one["seed"]) for one in verdicts}))
    lines = [HEAD, ("---",) * len(HEAD), *map(_row, verdicts)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"Played {about}, seed {seeds}.\n\n{table}\n"


def _row(one):
    if one["skipped"]:
        return (one["name"], *("-",) * 6, f"skipped: {one['skipped']}")
    counts = (len(one[name]) for name in ("lost", "wrong", "stuck"))
    recovery = f"{one['recovery_p99_s']:.1f} s" if one["recovery_s"] else "-"
    return (
        one["name"], str(len(one["schedule"])), f"{one['accepted']:,}", *map(str, counts),
        f"{one['repeats']} of {one['calls']:,}", recovery,
    )  # fmt: skip


def written(page, verdicts, about):
    """A page whose part between the marks is of these verdicts."""
    return placed(page, "reliability", markdown(verdicts, about).rstrip())


def main(words=None):
    """Print the part of the page, or write it."""
    arguments = argparse.ArgumentParser(prog="tests.reliability.report")
    arguments.add_argument("file", type=Path, nargs="?", default=REPORT)
    arguments.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    asked = arguments.parse_args(words)
    verdicts = json.loads(asked.file.read_text(encoding="utf-8"))
    about = f"{SystemClock().now():%Y-%m-%d} at commit {commit()}"
    if asked.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), verdicts, about), "utf-8")
    else:
        sys.stdout.write(markdown(verdicts, about))
    return 0


if __name__ == "__main__":
    sys.exit(main())
