"""Records of several engines as one table, and that table in a page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.peers.engines import Engine

ROWS: Final = {
    "chain": ("chain of 40 steps", "chain"),
    "chain-calls": ("chain, each step a run of its own", "chain"),
    "fanout": ("fan-out and join", "fanout"),
    "fanout-calls": ("fan-out, each item a run of its own", "fanout"),
    "runs": ("two-step runs by 24 clients", "runs"),
    "latency": ("one two-step run", "latency"),
}
"""The workloads in words, and which of ours each is held against."""
_FULL: Final = {"items": 1_000, "executions": 500}
_FOUR_DIGITS: Final = 1_000
_THREE_DIGITS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What one engine gave."""

    engine: Engine
    records: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""
    """Why there is nothing."""
    is_failed: bool = False
    """Whether that is a fault, and not the machine's lack of something."""

    def of(self, name: str) -> dict[str, Any] | None:
        """Its record of a workload."""
        return next((one for one in self.records if one["name"] == name), None)


_MANY: Final = 10


def ratio(record: dict[str, Any], ours: dict[str, Any]) -> float | None:
    """How many times faster ours is; none when either result was wrong."""
    if not (record["correct"] and ours["correct"]) or not (record["p50"] and ours["p50"]):
        return None
    better = ours["p50"] / record["p50"]
    return better if record["better"] == "higher" else 1 / better


def is_right(columns: Sequence[Column]) -> bool:
    """Whether no engine failed and every result of each was right; a missing one is no fault."""
    results = [one["correct"] for column in columns for one in column.records]
    return all(results) and not any(column.is_failed for column in columns)


def cell(record: dict[str, Any] | None, ours: dict[str, Any] | None) -> str:
    """A figure, and how it stands to ours; a wrong result voids it."""
    if record is None:
        return "-"
    if not record["correct"]:
        return "WRONG RESULT"
    text = f"{number(record['p50'])} {record['unit']}"
    if record is ours:
        return text
    times = ratio(record, ours) if ours else None
    if times is None:
        return text
    shown = f"{times:,.0f}" if times >= _MANY else f"{times:.2g}"
    return f"{text} ({shown}x)"


def rows(columns: Sequence[Column]) -> list[list[str]]:
    """The head, a line for each workload, and the raw commits before each engine; ours first."""
    shown = [column for column in columns if column.records]
    lines = [["workload", *(column.engine.title for column in shown)]]
    for name, (words, against) in ROWS.items():
        ours = columns[0].of(against)
        found = [column.of(name) for column in shown]
        if any(found):
            lines.append([words, *(cell(one, ours) for one in found)])
    raw = [column.records[0]["raw"]["commits_serial"] for column in shown]
    lines.append(["raw commits before it", *(f"{number(one)} /s" for one in raw)])
    return lines


def notes(columns: Sequence[Column]) -> list[str]:
    """What a reader must know about each column, and why one is missing."""
    told = []
    for column in columns:
        title = column.engine.title
        if column.records:
            smaller = "".join(f"; only {one}" for one in _scaled(column))
            told.append(f"{title}: {column.engine.runs}; kept: {column.engine.kept}{smaller}.")
        else:
            told.append(f"{title}: not measured: {column.reason}")
    return told


def text(columns: Sequence[Column]) -> str:
    """For the terminal."""
    lines = rows(columns)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    drawn = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    return "\n".join([*drawn, "(2x: ours is twice as fast)", *notes(columns)])


def markdown(columns: Sequence[Column]) -> str:
    """For a page: what it was measured on, the table, the notes."""
    head, *body = rows(columns)
    lines = [head, ["---"] * len(head), *body]
    drawn = [f"| {' | '.join(line)} |" for line in lines]
    listed = [f"- {note}" for note in notes(columns)]
    return "\n".join([measured_on(columns[0].records[0]), "", *drawn, "", *listed])


def measured_on(record: dict[str, Any]) -> str:
    """When, on what and at which commit."""
    on = record["machine"]
    return (
        f"Measured on {record['at'][:10]} at commit `{record['commit']}` on a machine with "
        f"{on['cores']} cores ({on['cpu']}), {on['mem_gb']:g} GB and {on['disk'].split()[-1]}, "
        f"with a load of {on['load_before']:g} before it began; "
        f"Python {on['python']}, PostgreSQL {on['postgres']}, NATS {on['nats']}; "
        "medians, and in brackets how many times faster ours is."
    )


def number(value: float) -> str:
    """Three digits are enough."""
    if abs(value) >= _FOUR_DIGITS:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= _THREE_DIGITS else f"{value:.3g}"


def _scaled(column: Column) -> list[str]:
    """Workloads that were made smaller for an engine."""
    return [
        f"{one['params'][what]:,} {what}"
        for one in column.records
        for what, full in _FULL.items()
        if one["params"].get(what, full) < full
    ]
