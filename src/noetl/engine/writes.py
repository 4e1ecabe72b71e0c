"""The one way in which a dotted key such as `ctx.a.b` is written into maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def write_at(target: dict[str, Any], path: str, value: object) -> None:
    """Write into nested maps; the maps on the way are copied, so that nobody else's change."""
    *parents, last = path.split(".")
    for name in parents:
        inner = target.get(name)
        target[name] = dict(inner) if isinstance(inner, dict) else {}
        target = target[name]
    target[last] = value


def with_writes(box: Mapping[str, Any], writes: Mapping[str, Any]) -> dict[str, Any]:
    """A map after some writes; the map itself stays as it was."""
    after = dict(box)
    for path, value in writes.items():
        write_at(after, path, value)
    return after
