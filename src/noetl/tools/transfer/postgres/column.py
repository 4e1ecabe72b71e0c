"""What a query says of a column."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a query."""

    name: str
    oid: int
    type: str
    """As SQL names it, with its length or precision."""
    precision: int
    scale: int
