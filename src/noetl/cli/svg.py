"""A graph as a picture: ranks by longest path, order by declaration, no layout program needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from noetl.cli.text import visible
from noetl.dsl.graph import caption_of, label_of

if TYPE_CHECKING:
    from noetl.dsl.graph import Graph, Node

_CHAR: Final = 7
_LINE: Final = 16
_HEIGHT: Final = 44
_GAP_X: Final = 40
_GAP_Y: Final = 64
_MARGIN: Final = 24

_STYLE: Final = (
    "text{font:12px ui-monospace,monospace;fill:#1f2937;text-anchor:middle}"
    "rect{fill:#f8fafc;stroke:#334155}.end{stroke-dasharray:4 3}"
    "path{fill:none;stroke:#64748b}.error{stroke:#dc2626}.any{stroke-dasharray:5 3}"
    ".caption{font-size:10px;fill:#475569}"
)
_TIP: Final = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto"><path d="M0 0 8 4 0 8Z" style="fill:#64748b"/></marker></defs>'
)


def to_svg(shown: Graph) -> str:
    """The graph as one SVG document."""
    boxes = _placed(shown)
    side = max((x + width / 2 for x, _, width in boxes.values()), default=0) + _MARGIN
    arcs = [
        _arc(boxes[edge.source], boxes[edge.target], edge.on, caption_of(edge), side)
        for edge in shown.edges
    ]
    left = min((start for _, start, _ in arcs), default=0.0)
    right = max((end for _, _, end in arcs), default=0.0)
    left, right = min(left, 0.0), max(right, side) + _MARGIN
    height = max((y for _, y, _ in boxes.values()), default=0) + _HEIGHT + _MARGIN
    frame = f"{left:.0f} 0 {right - left:.0f} {height:.0f}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{frame}" role="img">',
        f"<title>{_text(shown.path)}</title><style>{_STYLE}</style>{_TIP}",
        *(drawn for drawn, _, _ in arcs),
        *(_box(node, *boxes[node.name]) for node in shown.nodes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def ranks(shown: Graph) -> dict[str, int]:
    """The longest path to each node, arcs that close a cycle left out."""
    targets: dict[str, list[str]] = {node.name: [] for node in shown.nodes}
    for edge in shown.edges:
        targets[edge.source].append(edge.target)
    order: list[str] = []
    state: dict[str, str] = {}
    forward: dict[str, list[str]] = {name: [] for name in targets}
    for start, first in targets.items():
        stack = [] if start in state else [(start, iter(first))]
        state.setdefault(start, "open")
        while stack:
            name, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                state[name] = "done"
                order.append(name)
                stack.pop()
            elif state.get(target) != "open":
                forward[name].append(target)
                if target not in state:
                    state[target] = "open"
                    stack.append((target, iter(targets[target])))
    rank = dict.fromkeys(targets, 0)
    for name in reversed(order):
        for target in forward[name]:
            rank[target] = max(rank[target], rank[name] + 1)
    return rank


def _placed(shown: Graph) -> dict[str, tuple[float, float, float]]:
    """Centre, top and width of each box; rows are centred under each other."""
    rows: dict[int, list[Node]] = {}
    rank = ranks(shown)
    for node in shown.nodes:
        rows.setdefault(rank[node.name], []).append(node)
    spans = {at: sum(_width(node) + _GAP_X for node in row) - _GAP_X for at, row in rows.items()}
    widest = max(spans.values(), default=0)
    boxes = {}
    for at, row in rows.items():
        x = _MARGIN + (widest - spans[at]) / 2
        for node in row:
            width = _width(node)
            boxes[node.name] = (x + width / 2, _MARGIN + at * (_HEIGHT + _GAP_Y) * 1.0, width)
            x += width + _GAP_X
    return boxes


def _width(node: Node) -> float:
    return max(len(line) for line in label_of(node)) * _CHAR + 24.0


def _box(node: Node, x: float, y: float, width: float) -> str:
    lines = label_of(node)
    round_ = 20 if node.is_entry or not node.is_defined else 6
    first = y + _HEIGHT / 2 + 4 - (len(lines) - 1) * _LINE / 2
    words = "".join(
        f'<text x="{x:.0f}" y="{first + at * _LINE:.0f}">{_text(line)}</text>'
        for at, line in enumerate(lines)
    )
    dashed = "" if node.is_defined else ' class="end"'
    title = f"<title>{_text(node.desc)}</title>" if node.desc else ""
    return (
        f'<g>{title}<rect x="{x - width / 2:.0f}" y="{y:.0f}" width="{width:.0f}" '
        f'height="{_HEIGHT}" rx="{round_}"{dashed}/>{words}</g>'
    )


def _arc(
    source: tuple[float, float, float],
    target: tuple[float, float, float],
    on: str,
    caption: str,
    side: float,
) -> tuple[str, float, float]:
    """A curve down, or around the right side when the target is not below; how wide it is."""
    (x1, y1, width1), (x2, y2, width2) = source, target
    if y2 > y1:
        y1 += _HEIGHT
        middle = (y1 + y2) / 2
        way = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}"
        at = ((x1 + x2) / 2, middle - 4)
    else:
        y1, y2 = y1 + _HEIGHT * 0.65, y2 + _HEIGHT * 0.35
        start, end = x1 + width1 / 2, x2 + width2 / 2
        way = f"M{start:.0f} {y1:.0f}C{side:.0f} {y1:.0f} {side:.0f} {y2:.0f} {end:.0f} {y2:.0f}"
        at = (side, (y1 + y2) / 2)
    drawn = f'<path class="{on}" marker-end="url(#tip)" d="{way}"/>'
    if caption:
        drawn += f'<text class="caption" x="{at[0]:.0f}" y="{at[1]:.0f}">{_text(caption)}</text>'
    reach = len(caption) * _CHAR / 2
    return drawn, at[0] - reach, at[0] + reach


def _text(text: str) -> str:
    return escape(visible(text))
