"""Signals that can be overheard: while somebody follows lists, one hearer is told of commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.server.signals import Signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from noetl.store.base import Change


class Changes(Signals):
    """As `Signals`; without a hearer a commit costs one look more, however large it is."""

    def __init__(self) -> None:
        super().__init__()
        self.hearer: Callable[[Iterable[Change]], None] | None = None

    def committed(self, changes: Iterable[Change]) -> None:
        """Wake whoever a commit concerns."""
        super().committed(changes)
        if self.hearer is not None:
            self.hearer(changes)
