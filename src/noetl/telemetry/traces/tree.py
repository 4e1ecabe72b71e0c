"""Spans that a collector was sent, as people read them: one tree per trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NS_PER_MS: Final = 1_000_000
_SHOWN: Final = ("path", "step", "task", "worker_id", "pool", "schedule_id", "outcome")


@dataclass(slots=True)
class Seen:
    """One span as it arrived."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    start_ns: int
    end_ns: int
    error: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def took_ms(self) -> float:
        """How long it took."""
        return (self.end_ns - self.start_ns) / _NS_PER_MS


def spans_of(body: bytes) -> list[Seen]:
    """The spans of one request in the JSON form of the protocol."""
    found: list[Seen] = []
    for of_resource in msgspec.json.decode(body)["resourceSpans"]:
        about = _attributes(of_resource.get("resource", {}).get("attributes", ()))
        service = str(about.get("service.name", ""))
        for of_scope in of_resource.get("scopeSpans", ()):
            found += [_seen(span, service) for span in of_scope.get("spans", ())]
    return found


def _seen(span: dict[str, Any], service: str) -> Seen:
    return Seen(
        trace_id=span["traceId"],
        span_id=span["spanId"],
        parent_id=span.get("parentSpanId", ""),
        name=span["name"],
        service=service,
        start_ns=int(span["startTimeUnixNano"]),
        end_ns=int(span["endTimeUnixNano"]),
        error=span.get("status", {}).get("message", ""),
        attributes=_attributes(span.get("attributes", ())),
    )


def _attributes(pairs: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: _plain(pair["value"]) for pair in pairs}


def _plain(value: dict[str, Any]) -> Any:  # noqa: ANN401 - text, number, or yes and no
    kind, found = next(iter(value.items()))
    return int(found) if kind == "intValue" else found


def lines(spans: Iterable[Seen]) -> Iterator[str]:
    """Every trace as a tree, each with what it is below; the oldest first."""
    traces: dict[str, list[Seen]] = {}
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)):
        traces.setdefault(span.trace_id, []).append(span)
    for trace_id, found in traces.items():
        known = {span.span_id for span in found}
        below: dict[str, list[Seen]] = {}
        for span in found:
            below.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)
        first, last = found[0].start_ns, max(span.end_ns for span in found)
        took = (last - first) / _NS_PER_MS
        yield f"trace {trace_id}: {len(found)} spans, {took:.1f} ms"
        yield from _branch(below, "", first, 1)


def _branch(below: dict[str, list[Seen]], of: str, first_ns: int, depth: int) -> Iterator[str]:
    for span in below.get(of, ()):
        at = (span.start_ns - first_ns) / _NS_PER_MS
        told = " ".join(
            f"{key}={span.attributes[key]}" for key in _SHOWN if span.attributes.get(key)
        )
        failed = f" failed: {span.error}" if span.error else ""
        head = f"{'  ' * depth}{span.name} ({span.service})"
        yield f"{head} +{at:.1f} ms, {span.took_ms:.1f} ms{failed} {told}".rstrip()
        yield from _branch(below, span.span_id, first_ns, depth + 1)
