"""What readers of runs ask the store beside the read model: sums over a log, and what has changed.

Nothing here hands out events: a log of 200 000 of them is summed up where it lies.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class StepSum(msgspec.Struct, frozen=True, kw_only=True):
    """What the log of a run says of one step."""

    step: str
    entered: int = 0
    claimed: int = 0
    """Attempts that a worker has taken on."""
    lost: int = 0
    started_at: str | None = None
    """Its first entry."""
    ended_at: str | None = None
    """Its last exit, or when it was last skipped."""


class ArcSum(msgspec.Struct, frozen=True, kw_only=True):
    """How often one arc of a step was looked at, and taken."""

    step: str
    place: int
    """Its place among the arcs of the step."""
    looked: int
    taken: int


class Circuit(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker as its owner has written it down."""

    path: str
    state: dict[str, Any]


class Reading(Protocol):
    """Sums, places and changes."""

    async def steps(self, execution_id: str) -> list[StepSum]:
        """Every step that the log of a run names, by name."""

    async def arcs(self, execution_id: str) -> list[ArcSum]:
        """Every arc that exits of the run's steps have looked at, by step and place."""

    async def changed(self, first: str, last: str, limit: int = 1000) -> list[str]:
        """Runs that have events whose ids lie in a range, ends included, oldest run first.

        Ids grow with time, and every commit of a server has one that it has made.
        """

    async def ahead(self, pool: str, command_id: str, most: int = 10_000) -> int | None:
        """Commands of a pool that are claimed before this one, counted so far; none: not in it."""

    async def circuits(self, tenant_id: str, path: str) -> list[Circuit]:
        """The breakers of a path, and those of its downstreams (`<path>.<name>`), by path."""
