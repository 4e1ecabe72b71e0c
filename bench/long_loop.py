"""One long loop on server, memory store and worker: time per event in each tenth, memory.

A program of its own, so that its memory is its own: `python -m bench.long_loop ITERATIONS`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from noetl.api.catalog import Register
from noetl.api.executions import Execute
from noetl.clock import SystemClock
from noetl.dsl.tasks import Python
from noetl.dsl.views import Outcome
from noetl.ids import Ids
from noetl.local.parts import Parts
from noetl.local.run import stack
from noetl.local.watch import Watch
from noetl.tools.base import Traits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.engine.events import Recorded
    from noetl.tools.base import ToolContext

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: long, path: bench/long}\n"


class Nothing:
    """A tool that is done at once, so that the rest is measured."""

    kind: ClassVar[str] = "python"
    Config: ClassVar[type[Python]] = Python
    traits: ClassVar[Traits] = Traits(side_effects=False)

    async def run(self, config: Python, ctx: ToolContext) -> Outcome:
        """Return a small value."""
        del config, ctx
        return Outcome(data=1)

    async def cancel(self, ctx: ToolContext) -> None:
        """Nothing to stop."""


def _peak_mib() -> float:
    """The peak of this program alone; `ru_maxrss` would begin with that of its parent."""
    told = Path("/proc/self/status").read_text().split("VmHWM:")[1]
    return int(told.split()[0]) / 1024


async def _measure(iterations: int) -> dict[str, Any]:
    marks: list[tuple[int, float]] = []
    seen = 0

    class Counting(Watch):
        def commit(self, recorded: Sequence[Recorded]) -> None:
            nonlocal seen
            super().commit(recorded)
            seen += len(recorded)
            marks.append((seen, time.perf_counter()))

    clock = SystemClock()
    watch = Counting()
    parts = Parts(watch=watch, folder=Path(), tools={"python": Nothing()}, clock=clock,
                  ids=Ids(clock), slots=64)  # fmt: skip
    loop = f"{{in: {iterations}, iterator: i, spec: {{mode: parallel, max_in_flight: 64}}}}"
    text = (
        HEAD + f"workflow:\n  - {{step: start, loop: {loop}, tool: {{kind: python, code: '1'}}}}\n"
    )
    before = _peak_mib()
    began = time.perf_counter()
    async with stack(parts, text) as running:
        entry = await running.client.register(Register(content=text))
        await running.client.execute(Execute(catalog_id=entry.catalog_id))
        await watch.ended.wait()
    taken = time.perf_counter() - began
    root = watch.runs.root
    assert root is not None
    assert root.status == "COMPLETED"
    return _told(marks, taken, _peak_mib() - before)


def _told(marks: list[tuple[int, float]], taken: float, mib: float) -> dict[str, Any]:
    total = marks[-1][0]
    edges = [next(at for at in marks if at[0] >= total * part / 10) for part in range(1, 10)]
    edges = [marks[0], *edges, marks[-1]]
    tenths = [(b[1] - a[1]) / (b[0] - a[0]) * 1e6 for a, b in itertools.pairwise(edges)]
    return {
        "seconds": round(taken, 2),
        "events": total,
        "us_per_event": [round(one, 1) for one in tenths],
        "ratio": round(tenths[-1] / tenths[0], 3),
        "mib": round(mib, 1),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(_measure(int(sys.argv[1])))) + "\n")
