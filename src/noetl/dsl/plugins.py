"""Kinds of tools that plug-ins bring: their names, and the JSON Schema that judges their keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

Plugins: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Schema by kind; an empty one judges nothing."""


class _Anything(Mapping[str, Mapping[str, Any]]):
    """Every kind, unjudged."""

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, str)

    def __getitem__(self, kind: str) -> Mapping[str, Any]:
        return {}

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


NONE: Final[Plugins] = {}
STORED: Final[Plugins] = _Anything()
"""For documents that were judged when they came in; the plug-in may be on another machine."""
