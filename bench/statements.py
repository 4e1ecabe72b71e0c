"""What each SQL statement of a stack costs, from the log of its database.

The embedded PostgreSQL has no `pg_stat_statements`, but it tells the duration of every statement
when it is asked to. Writing that costs time itself, so this is a look of its own.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.stack import Stack

SETTINGS: Final = {"log_min_duration_statement": "0", "log_parameter_max_length": "0"}
WAIT_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.05
_MARK: Final = "select 'the end of what is looked at'"
_LINE: Final = re.compile(
    r"\[(\d+)\] LOG:  duration: ([\d.]+) ms  (parse|bind|execute|statement)[^:\n]*: "
    r"(.*(?:\n\t.*)*)"
)


@dataclass(slots=True)
class Cost:
    """How often a statement was executed, and the microseconds of all its parts."""

    often: int = 0
    us: float = 0.0


async def looked_at(stack: Stack, work: Callable[[], Awaitable[None]]) -> dict[str, Cost]:
    """The statements of the stack while it works, by their texts."""
    log = Path(stack.part("postgres")["log"])
    own = await stack.connection.fetchval("select pg_backend_pid()")
    await _ask(stack, is_wanted=True)
    start = len(_text(log))
    try:
        await work()
        await stack.connection.execute(_MARK)
        text = await _written(log, start)
    finally:
        await _ask(stack, is_wanted=False)
    return costs_of(text, {own})


def costs_of(text: str, left_out: set[int]) -> dict[str, Cost]:
    """What a part of the log says, without the sessions that are left out; the dearest first."""
    found: dict[str, Cost] = {}
    for session, ms, what, statement in _LINE.findall(text):
        if int(session) not in left_out:
            cost = found.setdefault(" ".join(statement.split()), Cost())
            cost.us += float(ms) * 1000
            cost.often += what in {"execute", "statement"}
    return dict(sorted(found.items(), key=lambda item: -item[1].us))


async def _ask(stack: Stack, *, is_wanted: bool) -> None:
    """Let every session tell the durations of its statements, or no more."""
    for name, value in SETTINGS.items():
        change = f"set {name} = {value}" if is_wanted else f"reset {name}"
        await stack.connection.execute(f"alter system {change}")
    await stack.connection.execute("select pg_reload_conf()")
    await asyncio.sleep(_LOOK_AGAIN_S)  # sessions read it before their next statement


async def _written(log: Path, start: int) -> str:
    """What the log has from a place on, once the mark is in it."""
    ends = time.perf_counter() + WAIT_S
    while time.perf_counter() < ends:
        text = _text(log)[start:]
        if _MARK in text:
            return text
        await asyncio.sleep(_LOOK_AGAIN_S)
    raise RuntimeError(f"the database wrote no durations within {WAIT_S:g} s")


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")
