"""A playbook as nodes and arcs: one graph for the command line, the web UI and the docs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from noetl.dsl.names import outcome_of

if TYPE_CHECKING:
    from noetl.dsl.playbook.document import Playbook
    from noetl.dsl.playbook.step import Step

END = "end"
_LABEL_MOST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One step, or the undefined `end`."""

    name: str
    kinds: tuple[str, ...] = ()
    desc: str | None = None
    loop: str | None = None
    is_entry: bool = False
    is_final: bool = False
    is_defined: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One arc from a step to a step."""

    source: str
    target: str
    index: int
    on: str
    when: str | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in the order of the document, arcs in the order of their steps."""

    path: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def graph(playbook: Playbook) -> Graph:
    """The graph of a playbook."""
    nodes = [_node(step, playbook) for step in playbook.workflow]
    edges = [
        Edge(
            source=step.name,
            target=arc.step,
            index=index,
            on=outcome_of(arc),
            when=None if arc.when is None else _expression(arc.when),
        )
        for step in playbook.workflow
        for index, arc in enumerate(step.arcs)
    ]
    names = {node.name for node in nodes}
    if END not in names and any(edge.target == END for edge in edges):
        nodes.append(Node(name=END, is_defined=False))
    return Graph(playbook.path, tuple(nodes), tuple(edges))


def _node(step: Step, playbook: Playbook) -> Node:
    return Node(
        name=step.name,
        kinds=tuple(task.kind for task in step.tools) or ("noop",),
        desc=step.desc,
        loop=step.loop.mode if step.loop else None,
        is_entry=step.name == playbook.entry,
        is_final=step.name == playbook.final,
    )


def _expression(when: bool | str) -> str:  # noqa: FBT001 - a condition may be a plain boolean
    if isinstance(when, bool):
        return str(when).lower()
    text = " ".join(when.split())
    if text.startswith("{{") and text.endswith("}}") and text.count("{{") == 1:
        text = text[2:-2].strip()
    return text


def as_json(shown: Graph) -> dict[str, Any]:
    """The graph as plain data."""
    return asdict(shown) | {
        "nodes": [asdict(node) | {"kinds": list(node.kinds)} for node in shown.nodes],
        "edges": [asdict(edge) for edge in shown.edges],
    }


def label_of(node: Node) -> list[str]:
    """The lines of a node's label: its name, then what it calls."""
    if not node.is_defined:
        return [node.name]
    calls = " > ".join(node.kinds[:4]) + (" ..." if len(node.kinds) > 4 else "")  # noqa: PLR2004 - a label's width
    return [node.name, calls + (f" (loop {node.loop})" if node.loop else "")]


def caption_of(edge: Edge) -> str:
    """The words on an arc: its condition and the outcome it waits for."""
    words = edge.when or ""
    if len(words) > _LABEL_MOST:
        words = words[: _LABEL_MOST - 3] + "..."
    if edge.on != "success":
        words = f"{words} [{edge.on}]"
    return words.strip()


def to_mermaid(shown: Graph) -> str:
    """The graph as a Mermaid flowchart."""
    ids = {node.name: f"n{index}" for index, node in enumerate(shown.nodes)}
    lines = ["flowchart TD"]
    for node in shown.nodes:
        label = "<br/>".join(_mermaid(line) for line in label_of(node))
        left, right = ("([", "])") if node.is_entry or not node.is_defined else ("[", "]")
        lines.append(f'  {ids[node.name]}{left}"{label}"{right}')
    for edge in shown.edges:
        caption = _mermaid(caption_of(edge))
        link = f'-- "{caption}" -->' if caption else "-->"
        lines.append(f"  {ids[edge.source]} {link} {ids[edge.target]}")
    return "\n".join(lines) + "\n"


def _mermaid(text: str) -> str:
    """Text that Mermaid shows as it is."""
    special = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;", "|": "#124;"}
    return "".join(special.get(char, char) for char in text)


def to_dot(shown: Graph) -> str:
    """The graph in Graphviz' language."""
    lines = [f"digraph {_dot(shown.path)} {{", "  node [shape=box, style=rounded];"]
    for node in shown.nodes:
        label = _dot("\n".join(label_of(node)))
        shape = "" if node.is_defined else ", shape=oval"
        lines.append(f"  {_dot(node.name)} [label={label}{shape}];")
    for edge in shown.edges:
        caption = caption_of(edge)
        label = f" [label={_dot(caption)}]" if caption else ""
        lines.append(f"  {_dot(edge.source)} -> {_dot(edge.target)}{label};")
    return "\n".join([*lines, "}"]) + "\n"


def _dot(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
