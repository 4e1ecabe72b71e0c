"""Where the time of a scenario goes: `python -m bench profile chain|fanout|runs`.

Told for each unit of work: processor time of every process of the stack, from the kernel; commits,
rows and bytes of the log of the database; requests by route and how long the server took for them;
the server's own timers of folding, deciding and committing; every SQL statement, in one more round
that is timed by the database; bytes that each process read and wrote (those that PostgreSQL has
from sockets are not among them).
When `py-spy` is there, the stacks of every Python process are written to `build/profile/` as well,
one collapsed line for each stack: a flame graph is made of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench import playbooks, runs
from bench.counters import per
from bench.processes import cpu_us, moved_bytes, trees
from bench.scenario import on_stack
from bench.statements import looked_at
from bench.timers import Timers, between
from noetl.server.access.quota import RATE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bench.stack import Stack

    Work = Callable[[Stack], Awaitable[None]]

FOLDER: Final = Path(__file__).resolve().parents[1] / "build" / "profile"
SECONDS: Final = 10.0
STEPS: Final = 40
ITEMS: Final = 1_000
IN_FLIGHT: Final = 100
PYTHON: Final = ("server", "worker-shared", "worker-system")
SAMPLES: Final = 200
"""Of `py-spy`, a second."""
MOST_STATEMENTS: Final = 12
WIDTH: Final = 50
MISSING: Final = "py-spy is not here, so there are no stacks: `pip install py-spy` (as root)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A scenario to look into: its playbook, one round of it, and how many units that is."""

    unit: str
    units: int
    text: str
    work: Work


async def _chain(stack: Stack) -> None:
    await stack.run("bench/profile")


async def _runs(stack: Stack) -> None:
    _, taken = await runs.burst(stack, runs.RUNS, "bench/profile")
    await asyncio.sleep(max(0.0, runs.RUNS / RATE - taken))  # the next begins with a whole burst


SUBJECTS: Final = {
    "chain": Subject(
        unit="step", units=STEPS, text=playbooks.chain("bench/profile", STEPS), work=_chain
    ),
    "fanout": Subject(
        unit="item", units=ITEMS, work=_chain,
        text=playbooks.fan_out("bench/profile", ITEMS, IN_FLIGHT),
    ),
    "runs": Subject(
        unit="run", units=runs.RUNS, text=playbooks.chain("bench/profile", runs.STEPS), work=_runs
    ),
}  # fmt: skip


def main(words: list[str]) -> int:
    """Look into what was asked for, and tell it as a table; `--json` gives the same as a file."""
    arguments = argparse.ArgumentParser(prog="bench profile")
    arguments.add_argument("names", nargs="+", choices=sorted(SUBJECTS), metavar="NAME")
    arguments.add_argument("--seconds", type=float, default=SECONDS, help="of work (10)")
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    asked = arguments.parse_args(words)
    found = [
        on_stack(lambda stack, name=name: _of(stack, name, asked.seconds))[0]
        for name in asked.names
    ]
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write("\n\n".join(map(told, found)) + "\n")
    return 0


async def _of(stack: Stack, name: str, seconds: float) -> list[dict[str, Any]]:
    subject = SUBJECTS[name]
    await stack.register(subject.text)
    for _ in range(2):
        await subject.work(stack)
    counts, timers = await stack.counters.read(), await Timers.read(stack)
    async with _stacks(stack, name) as files:
        parts = trees(stack.pids)
        before = _spent(parts)
        rounds, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            await subject.work(stack)
            rounds += 1
        wall = time.perf_counter() - began
        after = _spent(trees(stack.pids))
    units = rounds * subject.units
    own = await Timers.read(stack)
    cost = per(subject.unit, counts, await stack.counters.read(), units)
    spent = {one: [b - a for a, b in zip(before[one], after[one], strict=True)] for one in after}
    return [
        {
            "name": name,
            "unit": subject.unit,
            "units": units,
            "wall_us": round(wall / units * 1e6, 1),
            "cpu_us": {one: round(all_of[0] / units, 1) for one, all_of in spent.items()},
            "bytes_in": {one: round(all_of[1] / units) for one, all_of in spent.items()},
            "bytes_out": {one: round(all_of[2] / units) for one, all_of in spent.items()},
            "counted": cost,
            "timers": between(timers, own, units),
            "statements": await _statements(stack, subject),
            "raw": stack.raw.as_json(),
            "stacks": files,
        }
    ]


async def _statements(stack: Stack, subject: Subject) -> dict[str, dict[str, float]]:
    """What each SQL statement costs, in a round of its own."""
    found = await looked_at(stack, lambda: subject.work(stack))
    return {
        text: {
            "often": round(one.often / subject.units, 4),
            "us": round(one.us / max(1, one.often), 1),
        }
        for text, one in found.items()
    }


def _spent(parts: dict[str, list[int]]) -> dict[str, tuple[int, int, int]]:
    """Processor microseconds, bytes in and bytes out; children of workers stand apart."""
    groups: dict[str, list[int]] = {}
    for name, pids in parts.items():
        first, *others = sorted(pids) or [0]
        groups[name] = [first, *others] if name == "postgres" else [first]
        if others and name != "postgres":
            groups[f"{name} children"] = others
    return {
        name: (sum(map(cpu_us, pids)), *map(sum, zip(*map(moved_bytes, pids), strict=True)))
        for name, pids in groups.items()
    }


@asynccontextmanager
async def _stacks(stack: Stack, name: str) -> AsyncIterator[list[str]]:
    """Stacks of the Python processes while the block works; the files that hold them."""
    program = Path(sys.executable).with_name("py-spy")
    spy = str(program) if program.exists() else shutil.which("py-spy")
    if spy is None:
        sys.stderr.write(MISSING + "\n")
        yield []
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    files = {part: FOLDER / f"{name}-{part}.txt" for part in PYTHON}
    spies = [
        await asyncio.create_subprocess_exec(
            spy, "record", "--format=raw", f"--rate={SAMPLES}", "--duration=unlimited",
            "--nonblocking", f"--output={file}", f"--pid={stack.pids[part]}",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )
        for part, file in files.items()
    ]  # fmt: skip
    found: list[str] = []
    try:
        yield found
    finally:
        for process in spies:
            if process.returncode is None:
                process.send_signal(2)  # it writes what it has seen
        await asyncio.gather(*(process.wait() for process in spies))
        found += [str(file) for file in files.values() if file.exists()]


def told(found: dict[str, Any]) -> str:
    """The figures of one scenario as lines."""
    unit, cost = found["unit"], found["counted"]
    lines = [
        f"{found['name']}: {found['wall_us']:,.1f} us for each {unit}, {found['units']} of them",
        f"  {'process':24}{'cpu us':>10}{'bytes in':>12}{'bytes out':>12}",
    ]
    for name, value in found["cpu_us"].items():
        moved = f"{found['bytes_in'][name]:>12,}{found['bytes_out'][name]:>12,}"
        lines.append(f"  {name:24}{value:>10,.1f}{moved}")
    lines.append(f"  {'all':24}{sum(found['cpu_us'].values()):>10,.1f}")
    ending = f"_per_{unit}"
    lines += [f"  counted for each {unit}:"]
    lines += [
        f"    {name.removesuffix(ending).replace('_', ' '):22}{value:>12,.3f}"
        for name, value in cost.items()
        if name.endswith(ending)
    ]
    lines += [f"  requests for each {unit}:"]
    lines += [
        f"    {path:34}{count / found['units']:>8.3f}" for path, count in cost["requests"].items()
    ]
    lines += [f"  timers of the server: how often for each {unit}, and us each:"]
    lines += [
        f"    {name:52}{one['often']:>8.3f}{one['us']:>12,.1f}"
        for name, one in found["timers"].items()
    ]
    lines += [f"  SQL statements: how often for each {unit}, and us each:"]
    lines += [
        f"    {text[:WIDTH]:{WIDTH + 2}}{one['often']:>8.3f}{one['us']:>12,.1f}"
        for text, one in list(found["statements"].items())[:MOST_STATEMENTS]
    ]
    lines += [f"  stacks: {file}" for file in found["stacks"]]
    return "\n".join(lines)
