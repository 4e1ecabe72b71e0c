"""Spans as the OpenTelemetry protocol has them: one JSON document per batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from noetl.telemetry.traces.span import Attribute, Span

PATH: Final = "/v1/traces"
MEDIA_TYPE: Final = "application/json"
_FAILED: Final = 2
_SAMPLED: Final = 1
_encode: Final = msgspec.json.Encoder().encode


def encoded(spans: Iterable[Span], resource: Mapping[str, Attribute], version: str) -> bytes:
    """A batch of spans of one process."""
    scope = {"name": "noetl", "version": version}
    body = {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": scope, "spans": [_span(span) for span in spans]}],
            }
        ]
    }
    return _encode(body)


def _span(span: Span) -> dict[str, Any]:
    made: dict[str, Any] = {
        "traceId": span.context.trace_id,
        "spanId": span.context.span_id,
        "parentSpanId": span.parent_id,
        "flags": _SAMPLED,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(max(span.start_ns, span.end_ns)),
        "attributes": _attributes(span.attributes),
        "status": {"code": _FAILED, "message": span.error} if span.error else {},
    }
    if span.state:
        made["traceState"] = span.state
    return made


def _attributes(values: Mapping[str, Attribute]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Attribute) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": value}


def rejected(answer: bytes) -> int:
    """How many spans of a batch a collector has not taken, although it took the others."""
    try:
        partial = msgspec.json.decode(answer).get("partialSuccess") or {}
        return int(partial.get("rejectedSpans", 0))
    except (msgspec.DecodeError, AttributeError, TypeError, ValueError):
        return 0


def headers_of(text: str) -> dict[str, str]:
    """The headers of `OTEL_EXPORTER_OTLP_HEADERS`: `name=value`, separated by commas."""
    pairs: Sequence[tuple[str, str, str]] = [
        part.partition("=") for part in text.split(",") if part.strip()
    ]
    return {name.strip().lower(): unquote(value.strip()) for name, _, value in pairs}
