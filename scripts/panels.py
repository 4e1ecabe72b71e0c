"""Panels of Grafana from few words: a title, a unit, a sentence and what is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
WIDTH: Final = 24
RANGE: Final = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Panel:
    """One drawing; `draws` are expressions, each with its legend."""

    title: str
    unit: str
    about: str
    draws: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    is_stacked: bool = False
    red_above: float | None = None
    """From here on it is drawn in red."""


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard: rows of panels, and what a reader may choose."""

    name: str
    title: str
    about: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    chosen: tuple[tuple[str, str], ...] = ()
    """Variables, each with the expression whose values it offers."""
    tags: tuple[str, ...] = field(default=("noetl",))


def rate(metric: str, by: str = "", more: str = "") -> str:
    """How much is counted a second."""
    of = f" by ({by})" if by else ""
    return f"sum{of} (rate({metric}{_braced(more)}[{RANGE}]))"


def quantile(part: float, histogram: str, by: str = "", more: str = "") -> str:
    """The value that a part of all does not pass."""
    labels = f"le, {by}" if by else "le"
    inner = f"sum by ({labels}) (rate({histogram}_bucket{_braced(more)}[{RANGE}]))"
    return f"histogram_quantile({part:g}, {inner})"


def quantiles(histogram: str, more: str = "") -> tuple[tuple[str, str], ...]:
    """The usual three."""
    return tuple(
        (quantile(part, histogram, more=more), name)
        for part, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    )


def mean(histogram: str, by: str = "") -> str:
    """The mean of what a histogram was given."""
    return f"{rate(f'{histogram}_sum', by)} / {rate(f'{histogram}_count', by)}"


def share(part: str, whole: str) -> str:
    """A part of a whole, which may be nothing."""
    return f"{part} / clamp_min({whole}, 1e-9)"


def _braced(more: str) -> str:
    return f"{{{more}}}" if more else ""


def drawn(board: Board) -> dict[str, Any]:
    """A dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in board.rows:
        panels.append(_row(title, len(panels) + 1, top))
        top += 1
        left = tallest = 0
        for panel in row:
            if left + panel.width > WIDTH:
                top, left, tallest = top + tallest, 0, 0
            place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            panels.append(_panel(panel, len(panels) + 1, place))
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest
    return {
        "uid": f"noetl-{board.name}",
        "title": board.title,
        "description": board.about,
        "tags": list(board.tags),
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": []},
        "links": [_link()],
        "templating": {"list": [_datasource(), *(_variable(*one) for one in board.chosen)]},
        "panels": panels,
    }


def _row(title: str, number: int, top: int) -> dict[str, Any]:
    place = {"h": 1, "w": WIDTH, "x": 0, "y": top}
    return {"id": number, "type": "row", "title": title, "collapsed": False,
            "gridPos": place, "panels": []}  # fmt: skip


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_above is not None:
        steps.append({"color": "red", "value": panel.red_above})
    custom: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
    if panel.is_stacked:
        custom |= {"stacking": {"mode": "normal"}, "fillOpacity": 40}
    if panel.red_above is not None:
        custom["thresholdsStyle"] = {"mode": "line"}
    defaults = {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
        **({"custom": custom} if panel.kind == "timeseries" else {}),
    }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel.kind),
        "targets": [
            {"refId": chr(ord("A") + index), "expr": expr, "legendFormat": legend,
             "datasource": DATASOURCE}
            for index, (expr, legend) in enumerate(panel.draws)
        ],
    }  # fmt: skip


def _options(kind: str) -> dict[str, Any]:
    if kind == "stat":
        reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"reduceOptions": reduce, "colorMode": "value", "graphMode": "area"}
    legend = {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus",
            "label": "Data source", "hide": 0}  # fmt: skip


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name, "label": name, "type": "query", "datasource": DATASOURCE,
        "query": {"query": query, "refId": name}, "refresh": 2, "includeAll": True,
        "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "sort": 1,
    }  # fmt: skip


def _link() -> dict[str, Any]:
    return {"title": "NoETL", "type": "dashboards", "tags": ["noetl"], "asDropdown": True,
            "includeVars": False, "keepTime": True}  # fmt: skip
