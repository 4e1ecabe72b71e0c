"""What keeps a store small and its read models right: partitions, old rows, figures, imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS: Final = 5_000
"""How many rows one statement deletes."""
IMPORTED: Final = "imported"
"""The kind of a run that another installation has driven; nobody drives it here."""

Table = Literal[
    "command",
    "dedup",
    "outbox",
    "log",
    "result",
    "variable",
    "session",
    "keychain",
    "callback",
    "request",
    "delivery",
    "outcome",
]
"""A table whose rows grow old one by one."""


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one month of `event` or `log`."""

    name: str
    table: str
    first_id: str
    """The first execution of the month."""
    end_id: str
    """The first execution of the next month."""
    is_old: bool = False
    """The whole month lies before the moment that was asked about."""
    blockers: tuple[str, ...] = ()
    """Of an old month: some of the runs that live, or hold what was not exported."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """How a store is."""

    migration: str = ""
    """The newest one."""
    months_ahead: int = 0
    """Months after this one that have their partitions."""
    default_rows: int = 0
    """Rows outside of every month."""


class Upkeep(Protocol):
    """Makes room, and says how much there is."""

    async def condition(self) -> Condition:
        """How the store is."""

    async def ensure_partitions(self) -> int:
        """Make the partitions of the next months; how many were made."""

    async def partitions(self, before: str) -> list[Partition]:
        """Every month, oldest first; those before a moment with what keeps them."""

    async def drop_partition(self, name: str) -> tuple[str, ...]:
        """Drop a month whose runs have all ended and are exported; else what keeps it."""

    async def purge(self, table: Table, before: str, *, is_dry: bool = False) -> int:
        """Delete some rows that are older than a moment; how many.

        A dry one deletes none, and tells of all.
        """

    async def old_runs(
        self, before: str, limit: int, *, month: Partition | None = None
    ) -> list[str]:
        """Runs that ended before a moment, and whose parents did; or all runs of a month.

        None that lives or holds what was not exported.
        """

    async def forget_runs(self, ids: Sequence[str], *, spares_events: bool = False) -> int:
        """Delete runs and everything of theirs; how many rows there were.

        The events may be spared when their whole month is about to go.
        """


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant has."""

    live: dict[str, int]
    """Runs that have not ended, by status."""
    ended: dict[str, int]
    """Runs that were started since a moment and have ended, by status."""
    runs_estimated: int
    """All runs, as the statistics of the store tell."""
    playbooks: int
