"""`noetl run`, as a person starts it: a chain, a fan-out, the start of the process, a long loop."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.sampling import record

NOETL = Path(sys.executable).parent / "noetl"
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: bench, path: bench/local}\n"
STEPS = 40
ITEMS = 1_000
LONG = 100_000
CHAIN_MS = 100.0
ITEM_US = 1e6 / 1_500
FIRST_STEP_MS = 600.0
HELLO_MS = 1_000.0
MOST_RATIO = 1.3
MOST_MIB = 100.0


def _chain() -> str:
    steps = []
    for number in range(STEPS):
        arc = f", next: {{arcs: [{{step: s{number + 1}}}]}}" if number < STEPS - 1 else ""
        steps.append(f"  - {{step: s{number}, tool: {{kind: python, code: 'result = 1'}}{arc}}}")
    return HEAD + "workflow:\n" + "\n".join(steps) + "\n"


def _fan_out(items: int, most: int, tool: str) -> str:
    spec = f"{{mode: parallel, max_in_flight: {most}}}"
    loop = f"{{in: {items}, iterator: i, spec: {spec}}}"
    return HEAD + f"workflow:\n  - {{step: start, loop: {loop}, tool: {tool}}}\n"


def _run(folder: Path, text: str) -> tuple[dict[str, Any], list[dict[str, Any]], float]:
    """What a run told, its events, and when its process was started."""
    (folder / "playbook.yaml").write_text(text)
    events = folder / "events.jsonl"
    events.unlink(missing_ok=True)
    before = time.time()  # noqa: TID251 - compared with the times in the events
    command = [NOETL, "run", "playbook.yaml", "-o", "json", "-q", "--events", events.name]
    done = subprocess.run(command, capture_output=True, check=True, cwd=folder)
    told = json.loads(done.stdout)
    assert told["status"] == "COMPLETED", told
    rows = [json.loads(line) for line in events.read_text().splitlines()]
    return told, rows, before


def _at(row: dict[str, Any]) -> float:
    return datetime.fromisoformat(row["created_at"]).timestamp()


def _of(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["event_type"] == name]


def _chain_ms(folder: Path) -> float:
    """From the first finished step to the end, for all of them: the child is warm by then."""
    _, rows, _ = _run(folder, _chain())
    exits = _of(rows, "step.exit")
    assert len(exits) == STEPS
    return (_at(rows[-1]) - _at(exits[0])) * 1000 * STEPS / (STEPS - 1)


def _item_us(folder: Path) -> float:
    text = _fan_out(ITEMS, 100, "{kind: python, input: {i: '{{ i }}'}, code: 'result = i'}")
    told, rows, _ = _run(folder, text)
    assert told["result"] == list(range(ITEMS))
    done = _of(rows, "call.done")
    return (_at(rows[-1]) - _at(done[0])) / (ITEMS - 1) * 1e6


def _hello_ms(folder: Path) -> tuple[float, float]:
    """From the start of the process to the first step, and to its end."""
    text = HEAD + "workflow:\n  - {step: start, tool: {kind: python, code: 'result = 1'}}\n"
    before = time.perf_counter()
    _, rows, began = _run(folder, text)
    taken = time.perf_counter() - before
    return (_at(_of(rows, "step.enter")[0]) - began) * 1000, taken * 1000


def _long_loop() -> list[dict[str, Any]]:
    """A loop of 100,000 through server, store and worker; measured inside one process."""
    command = [sys.executable, "-m", "bench.long_loop", str(LONG)]
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    params = {"iterations": LONG} | told
    return [
        record(
            "run-long-loop-ratio", [told["ratio"]], unit="ratio", limit=MOST_RATIO, params=params
        ),
        record("run-long-loop-memory", [told["mib"]], unit="MiB", limit=MOST_MIB, params=params),
    ]


def records(repeat: int) -> list[dict[str, Any]]:
    """A chain and the start in milliseconds, an item in microseconds, the shape of a long loop."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chain = [_chain_ms(folder) for _ in range(repeat)]
        item = [_item_us(folder) for _ in range(repeat)]
        hello = [_hello_ms(folder) for _ in range(repeat)]
    first, whole = zip(*hello, strict=True)
    return [
        record("run-chain", chain, unit="ms", limit=CHAIN_MS, params={"steps": STEPS}),
        record("run-fan-out", item, unit="us/item", limit=ITEM_US, params={"items": ITEMS}),
        record("run-first-step", list(first), unit="ms", limit=FIRST_STEP_MS),
        record("run-hello", list(whole), unit="ms", limit=HELLO_MS),
        *_long_loop(),
    ]
