"""Records as a table: for the terminal, and as Markdown.

`python -m bench.report FILE` prints the page's part; `--write` puts it between the marks of
`docs/explanation/performance.md` instead.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench.limits import is_met, is_passed
from bench.marks import placed

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "performance.md"
HEAD = ("scenario", "median", "p99", "against its limits", "counted and compared", "verdict")
_WORDS = {
    "commits_per_": "commits",
    "round_trips_per_": "round trips",
    "rows_inserted_per_": "rows in",
    "rows_updated_per_": "rows up",
    "wal_bytes_per_": "WAL B",
}


def rows(records: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """One row for each record."""
    return [
        (
            one["name"] + _which(one),
            f"{_number(one['p50'])} {one['unit']}",
            _number(one["p99"]),
            "; ".join(map(_limit, one["limits"])) or "-",
            "; ".join([*_sizes(one), *_counted(one), *_ratios(one)]) or "-",
            verdict(one),
        )
        for one in records
    ]


def verdict(record: dict[str, Any]) -> str:
    """A record in a word or two."""
    if not record["correct"]:
        return "WRONG RESULT"
    if not is_passed(record):
        return "BEYOND THE FLOOR"
    if not record["limits"]:
        return "told"
    return "met" if is_met(record) else "target not met"


def table(records: list[dict[str, Any]]) -> str:
    """A line for each record, with its limits and what was counted below it."""
    lines = rows(records)
    widths = [max((len(line[column]) for line in lines), default=0) for column in range(3)]
    told = []
    for name, median, worst, limits, counted, word in lines:
        cells = (name, median, f"p99 {worst}")
        told.append("  ".join(map(str.ljust, cells, (*widths[:2], widths[2] + 4))) + f"  {word}")
        told += [f"    {more}" for more in (limits, counted) if more != "-"]
    return "\n".join([*told, *_raw(records)])


def markdown(records: list[dict[str, Any]]) -> str:
    """The same as a part of a page: what it was measured on, a table, the raw limits."""
    lines = [HEAD, tuple("---" for _ in HEAD), *rows(_worst(records))]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    raw = [f"- {line}." for line in _raw(records)]
    return "\n".join([*_measured(records), "", text, *[""] * bool(raw), *raw])


def written(page: str, records: list[dict[str, Any]]) -> str:
    """A page whose part between the marks is of these records."""
    return placed(page, "bench", markdown(records))


def main(words: list[str] | None = None) -> int:
    """Print the part of the page, or write it."""
    arguments = argparse.ArgumentParser(prog="bench.report")
    arguments.add_argument("file", type=Path, help="records, as `--json` wrote them")
    arguments.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    asked = arguments.parse_args(words)
    records = json.loads(asked.file.read_text(encoding="utf-8"))
    if asked.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), records), encoding="utf-8")
    else:
        sys.stdout.write(markdown(records) + "\n")
    return 0


def _worst(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of records with one name, such as the help text of each command, the slowest."""
    named: dict[str, list[dict[str, Any]]] = {}
    for one in records:
        named.setdefault(one["name"], []).append(one)
    return [max(same, key=lambda one: float(one["p50"])) for same in named.values()]


def _measured(records: list[dict[str, Any]]) -> list[str]:
    """The machine, the settings and the commit of all records."""
    facts: dict[str, Any] = {}
    for one in records:
        facts |= {name: value for name, value in one["machine"].items() if name != "load_before"}
    commits = sorted({one["commit"] for one in records})
    loads = [one["machine"]["load_before"] for one in records]
    days = sorted({one["at"][:10] for one in records})
    return [
        f"Measured {' to '.join(dict.fromkeys([days[0], days[-1]]))} at commit "
        f"{', '.join(commits)} on {facts['cores']} cores ({facts['cpu']}), {facts['mem_gb']:g} GB, "
        f"{facts['os']}, Python {facts['python']}"
        + "".join(
            f", {word} {facts[name]}"
            for name, word in (("postgres", "PostgreSQL"), ("nats", "NATS"))
            if name in facts
        )
        + (", fsync on" if facts.get("fsync") else "")
        + f"; load before each scenario {min(loads):g} to {max(loads):g}.",
    ]


def _which(record: dict[str, Any]) -> str:
    line = record["params"].get("line")
    return f" ({line})" if line else ""


def _sizes(record: dict[str, Any]) -> list[str]:
    """How much was measured: the numbers among what a scenario was given."""
    told = {
        name: value
        for name, value in record["params"].items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return [", ".join(f"{name} {_number(value)}" for name, value in told.items())] * bool(told)


def _limit(limit: dict[str, Any]) -> str:
    floor = (
        "" if limit["floor"] in {None, limit["target"]} else f", floor {_number(limit['floor'])}"
    )
    path, _, last = limit["of"].rpartition(".")
    name = f"{path} {last}" if path and last.startswith("p") else last
    mark = "" if limit["is_met"] else " NOT MET"
    value, sign, target = _number(limit["value"]), limit["is"], _number(limit["target"])
    return f"{name} {value} {sign} {target}{floor}{mark}"


def _counted(record: dict[str, Any]) -> list[str]:
    told = record.get("counted", {})
    found = [
        (word, value)
        for start, word in _WORDS.items()
        for name, value in told.items()
        if name.startswith(start)
    ]
    units = "".join(told.get("of", {}))
    return [f"per {units}: " + ", ".join(f"{_number(v)} {word}" for word, v in found)] * bool(found)


def _ratios(record: dict[str, Any]) -> list[str]:
    return [f"{name} {value:g}x" for name, value in record.get("ratios", {}).items()]


def _raw(records: list[dict[str, Any]]) -> list[str]:
    """The raw limits that each stack had."""
    stacks = {json.dumps(one["raw"]): one for one in reversed(records) if "raw" in one}
    return [
        f"raw limits of {one['name']}, per second: "
        + ", ".join(f"{name} {value:,.0f}" for name, value in one["raw"].items())
        for one in reversed(stacks.values())
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:g}"  # noqa: PLR2004 - four digits and more


if __name__ == "__main__":
    sys.exit(main())
