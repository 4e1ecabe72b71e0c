"""Scripted tools and the two ledgers they write: A honours the idempotency key, B counts calls.

What a call gives depends on the seed, its idempotency key and its try alone: however often it is
made and by whomever, it is the same. Keys name runs by their place in the family, not by their id,
so that two worlds of one seed can be compared.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.tasks import Python, Sqlite
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits
from noetl.tools.noop import NoopTool
from noetl.tools.playbook import PlaybooksTool, PlaybookTool
from noetl.tools.wait import WaitTool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.clock import Clock
    from noetl.tools.base import ToolContext

DURATIONS = (0.0, 0.0, 0.02, 0.3, 2.0, 11.0)


@dataclass
class Ledger:
    """What tools did."""

    seed: int
    place_of: Callable[[str], Awaitable[str]]
    """The place of a run in its family, by its id."""
    failing: float = 0.1
    claims_fail: bool = False
    """A claim that fails ends its loop, whatever else was done by then."""
    is_large: bool = False
    effects: dict[str, Any] = field(default_factory=dict)
    """A: the effect of every key, once."""
    calls: dict[str, int] = field(default_factory=dict)
    """B: how often each key was called."""
    clashes: list[str] = field(default_factory=list)
    """Keys whose effects differ: the key does not name one effect."""
    began: list[tuple[float, str, str]] = field(default_factory=list)
    """When calls began: time, execution, command."""

    async def key_of(self, ctx: ToolContext) -> str:
        execution_id, _, rest = ctx.idempotency_key.partition("/")
        return f"{await self.place_of(execution_id)}:{rest}"

    def write(self, key: str, effect: Any) -> None:
        if self.effects.setdefault(key, effect) != effect:
            self.clashes.append(key)


class Scripted:
    """One kind whose calls follow the script of the seed."""

    traits: ClassVar[Traits] = Traits()

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def run(self, config: Any, ctx: ToolContext) -> Outcome:
        del config
        ledger = self._ledger
        key = await ledger.key_of(ctx)
        turn = ctx.input.get("turn", 1)
        chance = random.Random(f"{ledger.seed}/{key}/{turn}")
        ledger.calls[key] = ledger.calls.get(key, 0) + 1
        ledger.began.append((asyncio.get_running_loop().time(), ctx.execution_id, ctx.command_id))
        fails = chance.random() < ledger.failing and self._may_fail
        await asyncio.sleep(chance.choice(DURATIONS))
        if ctx.input.get("hangs"):
            await asyncio.Event().wait()
        if chance.random() < 0.2:
            ctx.progress(50, "half")
        if fails:
            kind = chance.choice(["server_error", "connection", "python"])
            raise ToolError(kind, f"scripted_{kind}", f"try {turn} of {key} fails")
        data = self._data(key)
        ledger.write(key, data)
        await asyncio.sleep(chance.choice(DURATIONS[:5]))
        return Outcome(data=data)

    async def cancel(self, ctx: ToolContext) -> None:
        """Nothing lives outside the call."""

    @property
    def _may_fail(self) -> bool:
        return True

    def _data(self, key: str) -> Any:
        made: dict[str, Any] = {"v": key}
        if self._ledger.is_large and random.Random(key).random() < 0.4:
            made["pad"] = "x" * 1_100
        return made


class ScriptedPython(Scripted):
    """Code."""

    kind: ClassVar[str] = "python"
    Config: ClassVar[Any] = Python


class ScriptedRows(Scripted):
    """The source of a cursor: a frame's rows follow from its number."""

    kind: ClassVar[str] = "sqlite"
    Config: ClassVar[Any] = Sqlite

    @property
    def _may_fail(self) -> bool:
        return self._ledger.claims_fail

    def _data(self, key: str) -> Any:
        place = key.split(":", 1)[1].split("/")[1]
        source = key.replace(f"/{place}/", "/*/", 1)
        chance = random.Random(f"{self._ledger.seed}/{source}")
        frame = int(place.removeprefix("f"))
        count = chance.randint(1, 3) if frame < chance.randint(0, 2) else 0
        rows = [{"id": f"{frame}.{row}"} for row in range(count)]
        return {"columns": ["id"], "rows": rows, "row_count": count}


def tools(ledger: Ledger, clock: Clock) -> dict[str, Any]:
    """What a worker of a world can do."""
    made = [ScriptedPython(ledger), ScriptedRows(ledger), NoopTool(), WaitTool(clock),
            PlaybookTool(), PlaybooksTool()]  # fmt: skip
    return {tool.kind: tool for tool in made}
