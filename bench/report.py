"""Records as a table: for the terminal, and as Markdown (`python -m bench.report FILE`)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bench.limits import is_met, is_passed

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
            "; ".join([*_counted(one), *_ratios(one)]) or "-",
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
    """The same as a table of a page."""
    lines = [HEAD, tuple("---" for _ in HEAD), *rows(records)]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([text, "", *_raw(records)])


def _which(record: dict[str, Any]) -> str:
    line = record["params"].get("line")
    return f" ({line})" if line else ""


def _limit(limit: dict[str, Any]) -> str:
    floor = "" if limit["floor"] in {None, limit["target"]} else f", floor {limit['floor']:g}"
    name = limit["of"].rpartition(".")[2]
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
    sys.stdout.write(markdown(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))) + "\n")
