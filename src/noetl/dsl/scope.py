"""The names that a template sees, in their order of precedence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Everything that may be visible at one point, before precedence is applied."""

    scopes: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    iteration: Mapping[str, Any] = field(default_factory=dict)
    tasks: Mapping[str, Any] = field(default_factory=dict)
    ctx: Mapping[str, Any] = field(default_factory=dict)
    steps: Mapping[str, Any] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    late: Mapping[str, Any] = field(default_factory=dict)


class Scope(Mapping[str, Any]):
    """Looks a name up: scopes, inputs, iteration, tasks, ctx, steps, workload, late names."""

    __slots__ = ("_layers",)

    def __init__(self, names: Names) -> None:
        layers = (
            names.scopes,
            names.inputs,
            names.iteration,
            names.tasks,
            names.ctx,
            names.steps,
            names.workload,
            names.late,
        )
        self._layers = tuple(layer for layer in layers if layer)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - values of the author's own
        """The value of the highest layer that has the name."""
        for layer in self._layers:
            if name in layer:
                return layer[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        """Every visible name, once."""
        return iter(dict.fromkeys(name for layer in self._layers for name in layer))

    def __len__(self) -> int:
        """How many names are visible."""
        return sum(1 for _ in self)
