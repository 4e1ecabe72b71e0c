"""Python steps: overhead of a warm child, start of a cold one, rate of a fan-out."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from bench.sampling import record
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.interpreter.pool import Interpreters
from noetl.tools.interpreter.sandbox import Sandbox
from noetl.tools.python import PythonTool

CONFIG = {"kind": "python", "code": "result = n + 1"}
CALLS = 200
FAN = 1_000
SLOTS = os.cpu_count() or 2


async def _call(tool: PythonTool, n: int, domain: str = "bench") -> Any:  # noqa: ANN401 - an outcome
    ctx = ToolContext(
        execution_id="1", step="s", command_id="c", idempotency_key="k", domain=domain,
        deadline=asyncio.get_running_loop().time() + 60, input={"n": n},
    )  # fmt: skip
    return await run_tool(tool, CONFIG, ctx)


def _pool(sandbox: Sandbox) -> Interpreters:
    return Interpreters(sandbox, {"PATH": os.defpath}, slots=SLOTS, spares=0)


async def _warm(sandbox: Sandbox) -> float:
    pool = _pool(sandbox)
    tool = PythonTool(pool)
    assert (await _call(tool, 1)).data == 2  # noqa: PLR2004 - 1 + 1
    before = time.perf_counter()
    for n in range(CALLS):
        await _call(tool, n)
    taken = (time.perf_counter() - before) / CALLS
    await pool.close()
    return taken


async def _cold(sandbox: Sandbox) -> float:
    pool = _pool(sandbox)
    before = time.perf_counter()
    assert (await _call(PythonTool(pool), 1)).data == 2  # noqa: PLR2004 - 1 + 1
    taken = time.perf_counter() - before
    await pool.close()
    return taken


async def _fan_out(sandbox: Sandbox) -> float:
    pool = _pool(sandbox)
    tool = PythonTool(pool)
    await asyncio.gather(*(_call(tool, n) for n in range(SLOTS)))
    before = time.perf_counter()
    done = await asyncio.gather(*(_call(tool, n) for n in range(FAN)))
    taken = time.perf_counter() - before
    await pool.close()
    assert [outcome.data for outcome in done] == [n + 1 for n in range(FAN)]
    return FAN / taken


def records(repeat: int) -> list[dict[str, Any]]:
    """Microseconds of overhead, milliseconds of a cold start, commands per second."""
    sandbox = Sandbox.detect()
    params = {"sandbox_level": sandbox.level, "slots": SLOTS}
    warm = [asyncio.run(_warm(sandbox)) * 1e6 for _ in range(repeat)]
    cold = [asyncio.run(_cold(sandbox)) * 1e3 for _ in range(repeat)]
    rate = [asyncio.run(_fan_out(sandbox)) for _ in range(repeat)]
    return [
        record("python-warm", warm, unit="us", limit=1_000.0, params=params | {"calls": CALLS}),
        record("python-cold", cold, unit="ms", limit=50.0, params=params),
        record("python-fan-out", rate, unit="commands/s", params=params | {"commands": FAN}),
    ]
