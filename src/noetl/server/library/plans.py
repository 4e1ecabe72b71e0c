"""The picture of a playbook before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api.catalog import Plan, PlanEdge, PlanNode
from noetl.dsl.graph import caption_of, graph
from noetl.dsl.playbook import Playbook

if TYPE_CHECKING:
    from noetl.dsl.graph import Node
    from noetl.dsl.parse import Parsed


def plan_of(parsed: Parsed) -> Plan:
    """The steps and arcs of a document; none when it is no playbook, or not a right one."""
    if not isinstance(parsed.model, Playbook):
        return Plan()
    shown = graph(parsed.model)
    return Plan(
        nodes=tuple(map(_node, shown.nodes)),
        edges=tuple(
            PlanEdge(
                from_=edge.source, to=edge.target, when=edge.when, label=caption_of(edge) or None
            )
            for edge in shown.edges
        ),
    )


def _node(node: Node) -> PlanNode:
    return PlanNode(
        id=node.name,
        kind="step" if node.is_defined else "end",
        label=node.name,
        tool=" > ".join(node.kinds) or None,
        desc=node.desc,
        loop=None if node.loop is None else {"mode": node.loop},
        is_entry=node.is_entry,
        is_final=node.is_final,
    )
