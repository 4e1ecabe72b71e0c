"""The engine alone on one core: what an event costs, and that it does not cost more later on.

A memory host folds and decides; tools give null at once. Times are of the processor, so that other
work on the machine counts less.
"""

from __future__ import annotations

import json
import resource
import time
from collections import deque
from typing import Any

from bench.sampling import record
from noetl.dsl.parse import read
from noetl.dsl.playbook import Playbook
from noetl.engine import events as ev
from noetl.engine.decide import decide
from noetl.engine.fold import fold
from noetl.engine.program import prepare
from noetl.engine.state import State

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: bench, path: bench/engine}\n"
ITERATIONS = 100_000
VISITS = 10_000
BRANCHES = 1_000
MOST_ARCS = 200
MOST_US = 50.0  # 20,000 events a second
MOST_RATIO = 1.3
MOST_MIB = 100.0
AT = "2026-01-01T00:00:00.000000Z"


class Host:
    """Folds, decides, and answers every command."""

    def __init__(self, body: str) -> None:
        self.state = State(program=prepare(read(HEAD + body, Playbook)))
        self.seq = 0
        self.waiting: deque[ev.CommandIssued] = deque()
        self.marks: list[tuple[int, float]] = []

    def append(self, event: Any) -> None:  # noqa: ANN401 - any event of the union
        """Record and fold an event."""
        before = str(self.seq) if self.seq else None
        self.seq += 1
        fold(
            self.state,
            ev.Recorded(
                execution_id="1",
                seq=self.seq,
                event_id=str(self.seq),
                prev_event_id=before,
                created_at=AT,
                event=event,
            ),
        )
        if type(event) is ev.CommandIssued:
            self.waiting.append(event)

    def settle(self) -> None:
        """Decide until nothing follows."""
        while decided := decide(self.state):
            for event in decided:  # type: ignore[union-attr] # nothing lies elsewhere here
                self.append(event)

    def run(self) -> Host:
        """From the start to the end, with the time after every command."""
        self.marks.append((self.seq, time.process_time()))
        self.append(
            ev.PlaybookStarted(
                execution_id="1", path="bench/engine", version=1, catalog_id="9", workload={}
            )
        )
        self.settle()
        while self.waiting:
            command = self.waiting.popleft()
            step, key = command.step, command.command_key
            self.append(ev.CommandClaimed(step=step, command_key=key, worker_id="w", attempt=1))
            self.append(ev.CommandStarted(step=step, command_key=key, attempt=1))
            self.append(ev.CallDone(step=step, command_key=key, attempt=1))
            self.settle()
            self.marks.append((self.seq, time.process_time()))
        assert self.state.terminal == "COMPLETED", self.state.failure
        return self

    def cost_us(self, start: float = 0.0, end: float = 1.0) -> float:
        """Microseconds for each event in a part of the run."""
        last = len(self.marks) - 1
        (first_seq, began), (last_seq, ended) = (
            self.marks[round(start * last)],
            self.marks[round(end * last)],
        )
        return (ended - began) / (last_seq - first_seq) * 1e6


def loop() -> str:
    spec = {"mode": "parallel", "max_in_flight": 100}
    return _body(
        {
            "step": "start",
            "loop": {"in": ITERATIONS, "iterator": "i", "spec": spec},
            "tool": {"kind": "python", "code": "result = 1"},
        }
    )


def cycle() -> str:
    counted = {"ctx.n": "{{ (ctx.n | default(0)) + 1 }}"}
    return _body(
        {
            "step": "start",
            "tool": {"kind": "python", "code": "result = 1"},
            "set": counted,
            "next": {"arcs": [{"step": "start", "when": f"{{{{ ctx.n < {VISITS} }}}}"}]},
        }
    )


def join() -> str:
    tool = {"kind": "python", "code": "result = 1"}
    steps: list[dict[str, Any]] = []
    for split in range(BRANCHES // MOST_ARCS):
        names = [f"b{split}_{number}" for number in range(MOST_ARCS)]
        steps.append(_split(f"split{split}", names))
        steps += [
            {"step": name, "tool": tool, "next": {"arcs": [{"step": "join"}]}} for name in names
        ]
    splits = [step["step"] for step in steps if step["step"].startswith("split")]
    return _body(_split("start", splits), *steps, {"step": "join", "tool": tool})


def _split(name: str, targets: list[str]) -> dict[str, Any]:
    arcs = [{"step": target} for target in targets]
    return {"step": name, "next": {"spec": {"mode": "inclusive"}, "arcs": arcs}}


def _body(*steps: dict[str, Any]) -> str:
    return f"workflow: {json.dumps(steps)}\n"


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def records(repeat: int) -> list[dict[str, Any]]:
    """The cost of an event in a long loop, a cycle and a join; growth in time and in memory."""
    before = _peak_mib()
    loops = [Host(loop()).run()]
    grown = _peak_mib() - before
    loops += [Host(loop()).run() for _ in range(min(repeat, 3) - 1)]
    shape = {"iterations": ITERATIONS}
    made = [
        record("engine-loop", [one.cost_us() for one in loops], unit="us/event", limit=MOST_US,
               params=shape),
        record("engine-loop-ratio", [one.cost_us(0.9) / one.cost_us(0, 0.1) for one in loops],
               unit="last tenth / first tenth", limit=MOST_RATIO, params=shape),
        record("engine-loop-memory", [grown], unit="MiB", limit=MOST_MIB, params=shape),
    ]  # fmt: skip
    cycles = [Host(cycle()).run() for _ in range(repeat)]
    shape = {"visits": VISITS}
    made += [
        record("engine-cycle", [one.cost_us() for one in cycles], unit="us/event", limit=MOST_US,
               params=shape),
        record("engine-cycle-ratio", [one.cost_us(0.9) / one.cost_us(0, 0.1) for one in cycles],
               unit="last tenth / first tenth", limit=MOST_RATIO, params=shape),
    ]  # fmt: skip
    joins = [Host(join()).run() for _ in range(repeat)]
    samples = [one.cost_us() for one in joins]
    shape = {"branches": BRANCHES}
    return [
        *made,
        record("engine-join", samples, unit="us/event", limit=MOST_US, params=shape),
    ]
