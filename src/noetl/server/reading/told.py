"""Rows of lists on their way to those who follow them, and the marks that say when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from noetl.ids import EPOCH
from noetl.server.reading.listing import item_of
from noetl.server.reading.stream import Stream

if TYPE_CHECKING:
    from datetime import datetime

    from noetl.store.base import ExecutionRow

_encode: Final = msgspec.json.Encoder().encode


@dataclass(slots=True, eq=False)
class Told:
    """A row that has changed; it is encoded once, for whoever wants it."""

    topic: str
    key: str
    value: Any
    """The row as the list of its topic shows it."""
    row: ExecutionRow | None = None
    tenant_id: str | None = None
    """Whose it is; none: everybody's."""
    path: str = ""
    _data: bytes = b""

    def data(self) -> bytes:
        """The row as JSON."""
        if not self._data:
            self._data = _encode(self.value)
        return self._data


def of_run(row: ExecutionRow) -> Told:
    """A run that has changed."""
    return Told("executions", row.execution_id, item_of(row), row, row.tenant_id, row.path)


class Follower(Stream, Protocol):
    """One who follows lists."""

    tenant_id: str
    topics: frozenset[str]

    def offer(self, told: Told) -> None:
        """A row has changed."""

    def reset(self) -> None:
        """More has changed than is told."""

    def knows_all(self, topic: str) -> None:
        """Every row of a topic was offered once."""


def id_at(moment: datetime) -> str:
    """The least id of a moment."""
    return str(max(1, int((moment - EPOCH).total_seconds() * 1000) << 22))


def moment_at(mark: str) -> datetime:
    """When an id was made."""
    return EPOCH + timedelta(milliseconds=int(mark) >> 22)
