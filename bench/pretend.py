"""Pretended workers: they claim real commands and report what real ones do, without a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.api.commands import Claim
from noetl.api.events import Report, Reports
from noetl.clock import SystemClock, rfc3339
from noetl.ids import Ids

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.api.commands import Command

POOL = "bench"
"""A pool without real workers."""
MOST_SLOTS = 64
_clock: Final = SystemClock()
_ids: Final = Ids(_clock)
"""Of all that pretend: two makers of ids could have the same number."""


class Pretender:
    """One worker that only says that it works."""

    def __init__(self, name: str = "bench", pool: str = POOL) -> None:
        self.name = name
        self.pool = pool

    async def claim(
        self, client: Client, count: int, *, slots: int = MOST_SLOTS, wait_s: float = 2.0
    ) -> list[Command]:
        """So many commands of the pool, taken at most `slots` at a time."""
        found: list[Command] = []
        while len(found) < count:
            claim = Claim(
                worker_id=self.name, pool=self.pool, free_slots=min(slots, count - len(found)),
                wait_seconds=wait_s,
            )  # fmt: skip
            given = (await client.claim(claim)).claimed
            if not given:
                raise RuntimeError(f"{len(found)} commands of {count} were to be had")
            found += given
        return found

    def done(self, command: Command, result: object = 1) -> list[Report]:
        """What a worker says about a command: that it began, and what it gave."""
        return [
            self.report(command, "command.started", {}),
            self.report(command, "call.done", {"result": result}),
        ]

    def report(self, command: Command, event_type: str, payload: dict[str, Any]) -> Report:
        """One event about a command."""
        return Report(
            execution_id=command.execution_id,
            event_id=_ids.new(),
            event_type=event_type,
            step=command.node_name,
            command_id=command.command_id,
            attempt=command.attempt,
            created_at=rfc3339(_clock.now()),
            payload=payload,
        )

    def batch(self, events: list[Report], free_slots: int = 0) -> Reports:
        """Events as they are posted; with `free_slots` the answer carries more work."""
        return Reports(
            worker_id=self.name, pool=self.pool, events=tuple(events), free_slots=free_slots
        )
