"""Loads that are processes of their own: what they cost is not part of what they measure."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).resolve().parents[1]


async def played(module: str, plan: dict[str, Any], most_s: float) -> dict[str, Any]:
    """What the clients of a load saw: a module that reads its plan and tells what came of it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, cwd=_ROOT,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(most_s):
            told, _ = await process.communicate(json.dumps(plan).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"{module} has failed, see above")
    seen: dict[str, Any] = json.loads(told)
    return seen
