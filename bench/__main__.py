"""Runs benchmarks: `python -m bench NAME|quick|all [--json FILE] [--repeat N] [--compare FILE]`.

Records go to stdout as JSON, a table of them to stderr. A wrong result or a figure beyond its floor
fails; a target that is not met is only told.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import traceback
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.compare import changes
from bench.limits import is_passed
from bench.machine import commit, machine
from bench.report import table
from noetl import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

QUICK = ("parse", "render", "startup", "chain", "fanout", "runs", "latency")
MORE = ("chain_http", "dispatch", "ingest", "footprint", "scale_log", "scale_loop", "scale_history")
ALL = (*QUICK, *MORE, "engine", "python_step", "local_run", "template_engines")
LONG = frozenset({"footprint", "scale_loop", "scale_history"})
"""Scenarios that can measure at greater length."""
REPEAT = 5
QUICK_REPEAT = 3


def run(name: str, repeat: int, *, is_long: bool = False) -> list[dict[str, Any]]:
    """The records of one benchmark."""
    sys.stderr.write(f"{name} ..\n")
    about = {
        "scenario": name,
        "version": __version__,
        "commit": commit(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),  # noqa: TID251 - a record of a real run
        "machine": machine(),
    }
    module = import_module(f"bench.{name}")
    longer = {"is_long": True} if is_long and name in LONG else {}
    return [_whole(about, record) for record in module.records(repeat, **longer)]


def compared(before: list[dict[str, Any]], records: list[dict[str, Any]], repeat: int) -> bool:
    """Tell what changed; whether nothing is worse, in two runs out of two."""
    found = changes(before, records)
    worse = {change.scenario for change in found if change.is_worse}
    again = [record for name in sorted(worse) for record in run(name, repeat)]
    twice = {change.name for change in changes(before, again) if change.is_worse}
    failed = [change for change in found if change.is_worse and change.name in twice]
    sys.stderr.writelines(f"{change}\n" for change in found)
    sys.stderr.writelines(f"worse in two runs out of two: {change.name}\n" for change in failed)
    return not failed


def names_of(asked: Iterable[str]) -> list[str]:
    """The benchmarks that words of the command line stand for."""
    groups = {"all": ALL, "quick": QUICK}
    found = [name for word in asked for name in groups.get(word, (word.replace("-", "_"),))]
    unknown = [name for name in found if name not in ALL]
    if unknown:
        raise SystemExit(f"bench: no such benchmark: {', '.join(unknown)}; there are {_listed()}")
    return list(dict.fromkeys(found))


def main() -> int:
    """Run what was asked for, print the records, and fail when one is beyond its floor."""
    arguments = argparse.ArgumentParser(prog="bench", epilog=f"benchmarks: {_listed()}")
    arguments.add_argument("names", nargs="+", metavar="NAME|quick|all")
    arguments.add_argument("--json", type=Path, help="also write the records to this file")
    arguments.add_argument("--repeat", type=int, help=f"{REPEAT}, and {QUICK_REPEAT} for quick")
    arguments.add_argument("--compare", type=Path, help="records of before; much worse fails")
    arguments.add_argument("--long", action="store_true", help="longer, where that tells more")
    asked = arguments.parse_args()
    signal.signal(signal.SIGTERM, _end)  # a stack that was started is stopped
    repeat = asked.repeat or (QUICK_REPEAT if asked.names == ["quick"] else REPEAT)
    records, failed = _all(names_of(asked.names), repeat, is_long=asked.long)
    text = json.dumps(records, indent=1)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")
    sys.stderr.write(table(records) + "\n")
    sys.stderr.writelines(f"{name}: FAILED, see above\n" for name in failed)
    is_good = all(map(is_passed, records)) and not failed
    if asked.compare:
        before = json.loads(asked.compare.read_text(encoding="utf-8"))
        is_good = compared(before, records, repeat) and is_good
    return 0 if is_good else 1


def _all(
    names: Iterable[str], repeat: int, *, is_long: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of all, and the names of those that broke and did not keep the others from it."""
    records: list[dict[str, Any]] = []
    failed = []
    for name in names:
        try:
            records += run(name, repeat, is_long=is_long)
        except Exception:  # noqa: BLE001 - told here, and by the exit status
            sys.stderr.write(traceback.format_exc())
            failed.append(name)
    return records, failed


def _whole(about: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """A record with what it was measured on."""
    on = record.pop("on", {})
    return about | record | {"machine": about["machine"] | on}


def _listed() -> str:
    return ", ".join(name.replace("_", "-") for name in ALL)


def _end(number: int, frame: object) -> None:
    del frame
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
