"""Runs benchmarks: `python -m bench NAME|quick|all [--json FILE] [--repeat N] [--compare FILE]`.

Records go to stdout as JSON, a table of them to stderr. A wrong result or a figure beyond its floor
fails; a target that is not met is only told. `NOETL_FAILPOINTS` reaches the processes of a stack,
so that a slow-down on purpose shows what `--compare` finds. `python -m bench profile NAME` tells
where the time of a scenario goes.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import sys
import traceback
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bench import profile, yardstick
from bench.compare import changes, steps_back
from bench.limits import is_passed
from bench.machine import commit, machine
from bench.report import table
from noetl import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

QUICK = ("parse", "render", "startup", "chain", "fanout", "runs", "latency")
LOAD = (
    "chain_http", "dispatch", "ingest", "sse", "gateway", "gateway_proxy", "sustained", "large",
    "footprint", "scale_out", "spool", "subscriptions", "ingress", "isolation",
)  # fmt: skip
SCALE = ("scale_log", "scale_loop", "scale_history")
TOOLS = ("tool_http", "tool_postgres", "tool_transfer", "sealed")
ALL = (*QUICK, *LOAD, *SCALE, *TOOLS, "engine", "python_step", "local_run", "template_engines")
LONG = frozenset({"footprint", "gateway", "ingress", "scale_history", "sse", "sustained"})
"""Scenarios that can measure at greater length."""
SIZED = frozenset({"chain", "fanout", "runs", "latency"})
"""Scenarios that can measure another size: steps, items, executions, samples."""
REPEAT = 5
QUICK_REPEAT = 3


def run(
    name: str, repeat: int, *, is_long: bool = False, size: int | None = None
) -> list[dict[str, Any]]:
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
    given: dict[str, Any] = {"is_long": True} if is_long and name in LONG else {}
    given |= {"size": size} if size is not None and name in SIZED else {}
    python_us = yardstick.unit_us()
    made = module.records(repeat, **given)
    python_us = (python_us + yardstick.unit_us()) / 2
    return [_whole(about, yardstick.beside(record, python_us)) for record in made]


def compared(
    before: list[dict[str, Any]],
    records: list[dict[str, Any]],
    again: Callable[[str], list[dict[str, Any]]],
) -> bool:
    """Tell what changed; whether nothing is worse, in two runs out of two.

    `again` runs the scenario of a figure that is worse once more.
    """
    found = changes(before, records)
    worse = sorted({change.scenario for change in found if change.is_worse})
    repeated = changes(before, [record for name in worse for record in again(name)])
    failed = steps_back(found, repeated)
    sys.stderr.writelines(f"{change}\n" for change in found)
    sys.stderr.writelines(f"again: {change}\n" for change in repeated)
    sys.stderr.writelines(f"worse in two runs out of two: {change.name}\n" for change in failed)
    return not failed


def names_of(asked: Iterable[str], known: Sequence[str] = ALL) -> list[str]:
    """The benchmarks that words of the command line stand for."""
    groups = {"all": known, "quick": QUICK}
    found = [name for word in asked for name in groups.get(word, (word.replace("-", "_"),))]
    unknown = [name for name in found if name not in known]
    if unknown:
        raise SystemExit(f"bench: no such benchmark: {', '.join(unknown)}; there are {_listed()}")
    return list(dict.fromkeys(found))


def main(words: list[str], known: Sequence[str] = ALL) -> int:
    """Run what was asked for, print the records, and fail when one is beyond its floor."""
    if words[:1] == ["profile"]:
        return profile.main(words[1:])
    arguments = argparse.ArgumentParser(prog="bench", epilog=f"benchmarks: {_listed()}")
    arguments.add_argument("names", nargs="+", metavar="NAME|quick|all")
    arguments.add_argument("--json", type=Path, help="also write the records to this file")
    arguments.add_argument("--n", type=int, help=f"another size: {', '.join(sorted(SIZED))}")
    arguments.add_argument("--repeat", type=int, help=f"{REPEAT}, and {QUICK_REPEAT} for quick")
    arguments.add_argument("--compare", type=Path, help="records of before; much worse fails")
    arguments.add_argument("--long", action="store_true", help="longer, where that tells more")
    asked = arguments.parse_args(words)
    repeat = asked.repeat or (QUICK_REPEAT if asked.names == ["quick"] else REPEAT)
    before = json.loads(asked.compare.read_text(encoding="utf-8")) if asked.compare else None
    measure = partial(run, repeat=repeat, is_long=asked.long, size=asked.n)
    records, failed = _all(names_of(asked.names, known), measure)
    text = json.dumps(records, indent=1)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")
    sys.stderr.write(table(records) + "\n")
    sys.stderr.writelines(f"{name}: FAILED, see above\n" for name in failed)
    is_good = all(map(is_passed, records)) and not failed
    if before is not None:
        is_good = compared(before, records, measure) and is_good
    return 0 if is_good else 1


def _all(
    names: Iterable[str], measure: Callable[[str], list[dict[str, Any]]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of all, and the names of those that broke and did not keep the others from it."""
    records: list[dict[str, Any]] = []
    failed = []
    for name in names:
        began = perf_counter()
        gc.collect()
        gc.freeze()  # what other scenarios left is none of this one's garbage
        try:
            records += measure(name)
        except Exception:  # noqa: BLE001 - told here, and by the exit status
            sys.stderr.write(traceback.format_exc())
            failed.append(name)
        sys.stderr.write(f"{name}: {perf_counter() - began:.0f} s\n")
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
    signal.signal(signal.SIGTERM, _end)  # a stack that was started is stopped
    sys.exit(main(sys.argv[1:]))
