"""Two runs side by side: what each step was given, came to, and how long it took."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from noetl.cli.text import duration
from noetl.engine.events import CommandIssued
from noetl.engine.rows import from_row
from noetl.local.steps import Run, Runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from noetl.api.client import Client

_PAGE: Final = 1000
_ASPECTS: Final = ("status", "input", "result")
_ABSENT: Final = "ABSENT"


@dataclass(slots=True, kw_only=True)
class Given:
    """What the commands of a step were given: the first of it, and a digest of all."""

    first: Any = None
    digest: Any = field(default_factory=sha256)
    commands: int = 0

    def take(self, bindings: Mapping[str, Any]) -> None:
        """One more command; what names the run itself is of no interest."""
        values = {name: value for name, value in bindings.items() if name != "execution"}
        if not self.commands:
            self.first = values
        self.commands += 1
        self.digest.update(json.dumps(values, sort_keys=True, default=str).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A run as its log tells it."""

    run: Run
    workload: dict[str, Any]
    given: dict[str, Given]


async def read_run(client: Client, execution_id: str) -> Read:
    """Fold the log of a run, page by page; nothing but steps is kept."""
    found = await client.execution(execution_id, with_state=False)
    runs, given = Runs(), dict[str, Given]()
    after, last = 0, 1
    while after < last:
        page = await client.events(execution_id, after=after, limit=_PAGE)
        if not page.items:
            break
        for row in page.items:
            recorded = from_row(row)
            runs.fold(recorded)
            if isinstance(recorded.event, CommandIssued):
                given.setdefault(recorded.event.step, Given()).take(recorded.event.bindings)
        after, last = page.items[-1]["seq"], page.last_seq
    return Read(run=runs.by_id[execution_id], workload=found.workload, given=given)


def compared(first: Read, second: Read) -> dict[str, Any]:
    """Both runs, and per step what differs; time differs always, and counts as no difference."""
    names = dict.fromkeys((*first.run.steps, *second.run.steps))
    steps = [_step(name, first, second) for name in names]
    heads = [_head(one) for one in (first, second)]
    differs = [key for key in ("status", "workload", "result") if heads[0][key] != heads[1][key]]
    is_same = not differs and not any(step["differs"] for step in steps)
    return {
        "first": heads[0],
        "second": heads[1],
        "differs": differs,
        "steps": steps,
        "is_same": is_same,
    }


def _head(one: Read) -> dict[str, Any]:
    run = one.run
    return {
        "execution_id": run.execution_id,
        "path": run.path,
        "version": run.version,
        "status": run.status,
        "duration_ms": round(run.duration_ms),
        "workload": one.workload,
        "result": run.result if run.reference is None else run.reference.ref,
        "error": run.error,
    }


def _step(name: str, first: Read, second: Read) -> dict[str, Any]:
    sides = [_side(name, one) for one in (first, second)]
    digests = [side.pop("digest") for side in sides]
    differs = [
        key
        for key in _ASPECTS
        if (digests[0] != digests[1] if key == "input" else sides[0][key] != sides[1][key])
    ]
    return {"step": name, "first": sides[0], "second": sides[1], "differs": differs}


def _side(name: str, one: Read) -> dict[str, Any]:
    step = one.run.steps.get(name)
    given = one.given.get(name, Given())
    if step is None:
        nothing = dict.fromkeys(("duration_ms", "attempts", "input", "result", "error"))
        return {"status": _ABSENT, **nothing, "digest": None}
    told = step.as_json()
    return {
        "status": told["status"],
        "duration_ms": told["duration_ms"],
        "attempts": told["attempts"],
        "input": given.first,
        "result": told["result"] if step.reference is None else step.reference.ref,
        "error": told["error"],
        "digest": given.digest.hexdigest(),
    }


def rows(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """The comparison as a table: a line per step, its difference last."""
    yield "STEP", "FIRST", "SECOND", "TIME", "DIFFERS"
    yield "(run)", *_cells(found)
    for step in found["steps"]:
        yield step["step"], *_cells(step)


def _cells(pair: dict[str, Any]) -> tuple[str, ...]:
    first, second = pair["first"], pair["second"]
    times = [one["duration_ms"] for one in (first, second)]
    shown = " / ".join("-" if ms is None else duration(ms) for ms in times)
    return first["status"], second["status"], shown, ", ".join(pair["differs"]) or "-"
