"""Moves rows from one store to another: all of them or none, and once for every visit."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.check.transfer import faults_of
from noetl.dsl.tasks import Transfer
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits, missing_extra
from noetl.tools.interpreter import scratch
from noetl.tools.transfer.plan import Plan
from noetl.tools.transfer.pump import Lanes
from noetl.tools.transfer.work import Work

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext
    from noetl.tools.transfer.sides import Sides


class TransferTool:
    """The kind `transfer`."""

    kind: ClassVar[str] = "transfer"
    Config: ClassVar[type[Task]] = Transfer
    traits: ClassVar[Traits] = Traits(credentialed=True)

    def __init__(self, sides: Sides, clock: Clock) -> None:
        self._sides = sides
        self._clock = clock

    async def run(self, config: Transfer, ctx: ToolContext) -> Outcome:
        """Move the rows; a repeat of what was done returns the first outcome."""
        _check(config)
        try:
            return Outcome(data=await self._run(config, ctx))
        except ImportError as fault:
            if (fault.name or "").partition(".")[0] not in {"pyarrow", "duckdb"}:
                raise
            raise missing_extra(self.kind, "duckdb") from None

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task cuts its connections; the target stays as it was."""

    async def _run(self, config: Transfer, ctx: ToolContext) -> dict[str, Any]:
        begun = self._clock.monotonic()
        async with AsyncExitStack() as held:
            lanes = Lanes()
            held.callback(lanes.close)
            folder = scratch.made(0o700)  # swept by the next worker when this one is killed
            held.callback(shutil.rmtree, folder, ignore_errors=True)
            work = Work(plan=_plan(config, ctx), ctx=ctx, lanes=lanes, folder=folder)
            target = await self._sides.target(config, work, held)
            first = await target.earlier()
            if first is not None:
                ctx.log("this transfer was done before: its first outcome is returned")
                return first
            source = await self._sides.source(config, work, held)
            moved = await self._sides.move(source, target, work)
            said = {
                "rows_transferred": moved.rows,
                "chunks_processed": moved.chunks,
                "bytes": moved.bytes,
                "mode": config.mode,
                "source_type": config.source.kind,
                "target_type": config.target.kind,
                "target_table": config.target.table or getattr(target, "uri", config.target.uri),
                "columns": list(moved.columns),
                "duration_ms": round((self._clock.monotonic() - begun) * 1000),
            }
            return await target.commit(said)


class SnowflakeTransferTool(TransferTool):
    """The kind `snowflake_transfer`, an older name of `transfer`."""

    kind: ClassVar[str] = "snowflake_transfer"


def _check(config: Transfer) -> None:
    found = faults_of(config)
    if config.mode == "upsert" and not config.key_:
        found.append(("", "key", "mode `upsert` needs `key`"))
    if found:
        told = "; ".join("/".join(("", *filter(None, at[:2]))) + f": {at[2]}" for at in found)
        raise ToolError("config", "invalid_config", told)


def _plan(config: Transfer, ctx: ToolContext) -> Plan:
    target = config.target
    return Plan(
        mode=config.mode,
        key=tuple(config.key_),
        chunk_size=int(config.chunk_size),
        is_lenient=config.on_type_error == "null",
        columns=tuple(target.columns),
        mapping={str(name): str(field) for name, field in target.mapping.items()},
        is_made=target.create,
        mark=ctx.idempotency_key,
    )
