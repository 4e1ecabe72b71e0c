"""How much of a playbook its tests went through: steps that were entered, arcs that were taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noetl.dsl.graph import graph

if TYPE_CHECKING:
    from noetl.dsl.playbook import Playbook
    from noetl.local.steps import Run


@dataclass(slots=True)
class Coverage:
    """The steps and arcs of one playbook, and which of them some case went through."""

    file: str
    playbook: Playbook
    entered: set[str] = field(default_factory=set)
    taken: set[tuple[str, int]] = field(default_factory=set)

    def add(self, run: Run) -> None:
        """Count one case."""
        self.entered.update(name for name, step in run.steps.items() if step.runs)
        self.taken |= run.arcs

    def as_json(self) -> dict[str, Any]:
        """The numbers, and what is missing."""
        drawn = graph(self.playbook)
        steps = [node.name for node in drawn.nodes if node.is_defined]
        missing_steps = [name for name in steps if name not in self.entered]
        missing_arcs = [
            f"{edge.source} -> {edge.target}"
            + (f" [{edge.on}]" if edge.on != "success" else "")
            + (f" when {edge.when}" if edge.when else "")
            for edge in drawn.edges
            if (edge.source, edge.index) not in self.taken
        ]
        total = len(steps) + len(drawn.edges)
        missing = len(missing_steps) + len(missing_arcs)
        return {
            "file": self.file,
            "percent": round(100 * (total - missing) / total, 1),
            "steps": len(steps),
            "arcs": len(drawn.edges),
            "steps_not_entered": missing_steps,
            "arcs_not_taken": missing_arcs,
        }
