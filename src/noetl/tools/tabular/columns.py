"""Columns of a result: what they are called and what they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result."""

    name: str
    kind: str = ""
    """`int`, `float`, `bool`, `text` or `json`; empty: its values tell."""


def unique(columns: Sequence[Column]) -> list[Column]:
    """Columns under names of which none hides another."""
    made: dict[str, Column] = {}
    for column in columns:
        name, number = column.name, 1
        while name in made:
            name, number = f"{column.name}_{number}", number + 1
        made[name] = Column(name, column.kind)
    return list(made.values())
