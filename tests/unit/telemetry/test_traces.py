"""Places in a trace, spans, and the way to a collector."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from noetl.telemetry.redact import Redactor
from noetl.telemetry.traces import exporter as exporting
from noetl.telemetry.traces.context import (
    Context,
    baggage_of,
    members,
    of_headers,
    onward,
    parsed,
    trace_id_of,
)
from noetl.telemetry.traces.exporter import Exporter, Reply
from noetl.telemetry.traces.otlp import encoded, headers_of, rejected
from noetl.telemetry.traces.span import SERVER, Span
from noetl.telemetry.traces.tracer import Tracer
from noetl.telemetry.traces.tree import lines, spans_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class Hands:
    """A clock that is set by hand."""

    seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return 1000.0 + self.seconds


# ------------------------------------------------------------------------------- context


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (PARENT, Context(TRACE, "b7ad6b7169203331", is_sampled=True)),
        (PARENT[:-1] + "0", Context(TRACE, "b7ad6b7169203331", is_sampled=False)),
        ("cc" + PARENT[2:] + "-more", Context(TRACE, "b7ad6b7169203331", is_sampled=True)),
        (PARENT + "-more", None),
        ("ff" + PARENT[2:], None),
        (PARENT.upper(), None),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (PARENT[:-3], None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_a_place_is_read_only_from_a_well_formed_header(header, found) -> None:
    assert parsed(header) == found


def test_a_place_is_written_as_it_is_read() -> None:
    assert parsed(PARENT).traceparent == PARENT


def test_the_headers_of_a_request_are_kept_within_their_limits() -> None:
    whole = {"traceparent": PARENT, "tracestate": "a=1", "baggage": "tenant=a"}
    assert of_headers({**whole, "accept": "*/*"}) == whole
    assert of_headers({"traceparent": PARENT, "tracestate": "a" * 513}) == {"traceparent": PARENT}
    assert of_headers({"traceparent": PARENT, "tracestate": "a\nb"}) == {"traceparent": PARENT}
    assert of_headers({"traceparent": PARENT, "baggage": "a=" + "b" * 8191}) == {
        "traceparent": PARENT
    }
    later = "01" + PARENT[2:]
    assert of_headers({"traceparent": later + "-x"}) == {"traceparent": later}
    assert of_headers({"tracestate": "a=1"}) is None


def test_a_stranger_is_told_the_place_and_never_the_baggage() -> None:
    trace = {"traceparent": PARENT, "tracestate": "a=1", "baggage": "tenant=a"}
    assert onward(trace) == {"traceparent": PARENT, "tracestate": "a=1"}
    assert onward({"traceparent": PARENT, "tracestate": "a\r\nb"}) == {"traceparent": PARENT}
    assert onward({"traceparent": "no"}) == onward(None) == {}


def test_only_members_that_may_pass_are_taken_from_a_baggage() -> None:
    assert members("tenant=a=b;p=1, secret=x", ["tenant"]) == {"tenant": "a=b"}
    assert members("a=%20b, b, =c, d e=f") == {"a": " b"}
    assert members("a=1," * 3000) == {}
    assert baggage_of({"a": " b", "c": "d"}) == "a=%20b,c=d"


def test_the_id_of_a_trace_is_that_of_its_place() -> None:
    assert trace_id_of({"traceparent": PARENT}) == TRACE
    assert trace_id_of(None) is trace_id_of({}) is None


# ---------------------------------------------------------------------------------- spans


class Traced:
    """A tracer whose spans are kept."""

    def __init__(self) -> None:
        self.clock = Hands()
        self.spans: list[Span] = []
        self.tracer = Tracer(self.clock, self.spans.append)


def test_a_span_without_a_caller_is_the_root_of_a_new_trace() -> None:
    t = Traced()
    span = t.tracer.begin("execute", None, {"path": "a"}, SERVER)
    t.clock.seconds = 0.5
    t.tracer.end(span, about={"outcome": "started"})
    assert t.spans == [span]
    assert span.parent_id == ""
    assert (span.end_ns - span.start_ns) == 500_000_000
    assert span.attributes == {"path": "a", "outcome": "started"}
    assert parsed(span.context.traceparent) == span.context


def test_a_span_is_below_the_place_of_its_caller() -> None:
    t = Traced()
    trace = {"traceparent": PARENT, "tracestate": "a=1", "baggage": "b=c"}
    with t.tracer.during("outer", trace) as below, t.tracer.during("inner", below):
        pass
    inner, outer = t.spans
    assert (outer.parent_id, inner.parent_id) == ("b7ad6b7169203331", outer.context.span_id)
    assert {inner.context.trace_id, outer.context.trace_id} == {TRACE}
    assert below == {**trace, "traceparent": outer.context.traceparent}
    assert outer.state == "a=1"


def test_a_span_that_failed_says_its_code_and_never_its_text() -> None:
    t = Traced()
    with pytest.raises(ValueError, match="secret"), t.tracer.during("it", None):
        raise ValueError("secret")
    assert t.spans[0].error == "ValueError"
    assert b"secret" not in encoded(t.spans, {}, "1")


def test_what_is_noted_afterwards_lies_where_it_was() -> None:
    t = Traced()
    t.clock.seconds = 10.0
    began = t.clock.monotonic() - 3
    t.tracer.note("it", None, began, {"n": 1}, until=began + 1)
    (span,) = t.spans
    assert span.end_ns - span.start_ns == 1_000_000_000
    assert span.start_ns == 1_767_225_607_000_000_000


def test_a_trace_that_its_caller_does_not_sample_is_not_exported_but_goes_on() -> None:
    t = Traced()
    with t.tracer.during("it", {"traceparent": PARENT[:-1] + "0"}) as below:
        t.tracer.note("more", below, 0.0)
    assert t.spans == []
    assert below["traceparent"].endswith("-00")


# ----------------------------------------------------------------------------------- otlp


def test_a_batch_is_one_document_of_the_protocol() -> None:
    span = Span(
        "it",
        Context(TRACE, "b7ad6b7169203331"),
        1,
        parent_id="1" * 16,
        end_ns=2,
        state="a=1",
        error="gone",
        attributes={"text": "a", "whole": 1, "part": 0.5, "is": True},
    )
    body = json.loads(encoded([span], {"service.name": "s"}, "1.0"))
    (resource,) = body["resourceSpans"]
    assert resource["resource"] == {
        "attributes": [{"key": "service.name", "value": {"stringValue": "s"}}]
    }
    (scope,) = resource["scopeSpans"]
    assert scope["scope"] == {"name": "noetl", "version": "1.0"}
    assert scope["spans"] == [
        {
            "traceId": TRACE,
            "spanId": "b7ad6b7169203331",
            "parentSpanId": "1" * 16,
            "flags": 1,
            "name": "it",
            "kind": 1,
            "startTimeUnixNano": "1",
            "endTimeUnixNano": "2",
            "attributes": [
                {"key": "text", "value": {"stringValue": "a"}},
                {"key": "whole", "value": {"intValue": "1"}},
                {"key": "part", "value": {"doubleValue": 0.5}},
                {"key": "is", "value": {"boolValue": True}},
            ],
            "status": {"code": 2, "message": "gone"},
            "traceState": "a=1",
        }
    ]


def test_headers_of_the_setting_are_decoded() -> None:
    assert headers_of("Api-Key=a%20b, x = y ,") == {"api-key": "a b", "x": "y"}
    assert headers_of("") == {}


@pytest.mark.parametrize(
    ("body", "count"),
    [(b'{"partialSuccess":{"rejectedSpans":"3"}}', 3), (b"{}", 0), (b"no", 0), (b"[]", 0)],
)
def test_spans_that_a_collector_did_not_take_are_known(body, count) -> None:
    assert rejected(body) == count


# ------------------------------------------------------------------------------- exporter


class Sink:
    """A collector that answers as it is told."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.bodies: list[bytes] = []

    async def __call__(self, body: bytes) -> Reply:
        self.bodies.append(body)
        return self.replies.pop(0) if self.replies else Reply(200)

    @property
    def names(self) -> list[str]:
        return [span.name for body in self.bodies for span in spans_of(body)]


def made(name: str = "it") -> Span:
    return Span(name, Context(TRACE, "b7ad6b7169203331"), 1, end_ns=2)


async def drained(exporter: Exporter) -> None:
    task = asyncio.create_task(exporter.run())
    await exporter.close(task)
    assert task.done()


async def test_spans_go_out_together_and_secrets_do_not() -> None:
    sink = Sink()
    exporter = Exporter(sink, {}, "1", Redactor(["hidden-value"]))
    for name in ("a", "b", "hidden-value"):
        exporter.put(made(name))
    await drained(exporter)
    assert len(sink.bodies) == 1
    assert sink.names == ["a", "b", "***"]
    assert exporter.counts == {"exported": 3, "dropped": 0, "failed": 0}


async def test_a_full_batch_does_not_wait(monkeypatch) -> None:
    monkeypatch.setattr(exporting, "WAIT_S", 60.0)
    sent = asyncio.Event()

    async def send(_: bytes) -> Reply:
        sent.set()
        return Reply(200)

    exporter = Exporter(send, {}, "1")
    task = asyncio.create_task(exporter.run())
    for _ in range(exporting.MOST_SENT):
        exporter.put(made())
    async with asyncio.timeout(10):
        await sent.wait()
    await exporter.close(task)
    assert exporter.counts["exported"] == exporting.MOST_SENT


async def test_what_the_queue_does_not_hold_is_counted() -> None:
    exporter = Exporter(Sink(), {}, "1")
    for _ in range(exporting.MOST_QUEUED + 5):
        exporter.put(made())
    assert exporter.counts["dropped"] == 5
    await drained(exporter)
    assert exporter.counts["exported"] == exporting.MOST_QUEUED


async def test_a_busy_collector_is_asked_again(monkeypatch) -> None:
    monkeypatch.setattr(exporting, "FIRST_PAUSE_S", 0.001)
    sink = Sink(Reply(429, retry_after_s=0.0), Reply(503), Reply(0))
    exporter = Exporter(sink, {}, "1")
    exporter.put(made())
    await drained(exporter)
    assert len(sink.bodies) == 4
    assert exporter.counts == {"exported": 1, "dropped": 0, "failed": 0}


async def test_a_collector_that_refuses_is_not_asked_again(caplog) -> None:
    sink = Sink(Reply(400), Reply(200, b'{"partialSuccess":{"rejectedSpans":1}}'), Reply(200))
    exporter = Exporter(sink, {}, "1")
    caplog.set_level("INFO")
    for _ in range(2 * exporting.MOST_SENT + 2):
        exporter.put(made())
    await drained(exporter)
    assert len(sink.bodies) == 3
    assert exporter.counts["failed"] == exporting.MOST_SENT + 1
    assert [r.message for r in caplog.records] == ["spans are lost", "spans are taken again"]


async def test_an_end_does_not_wait_for_a_collector_that_is_away(monkeypatch) -> None:
    monkeypatch.setattr(exporting, "FLUSH_S", 0.01)
    monkeypatch.setattr(exporting, "FIRST_PAUSE_S", 60.0)
    exporter = Exporter(Sink(*[Reply(0)] * 9), {}, "1")
    exporter.put(made())
    async with asyncio.timeout(5):
        await drained(exporter)
    assert exporter.counts == {"exported": 0, "dropped": 0, "failed": 1}


async def test_an_exporter_without_spans_ends_at_once() -> None:
    sink = Sink()
    await drained(Exporter(sink, {}, "1"))
    assert sink.bodies == []


# ----------------------------------------------------------------------------------- tree


def test_a_person_sees_one_tree_per_trace() -> None:
    t = Traced()
    with t.tracer.during("execute", None, {"path": "a/b", "execution_id": "1"}) as below:
        t.clock.seconds += 0.001
        began = t.tracer.monotonic()
        t.clock.seconds += 0.002
        t.tracer.note("tool.dispatch.http", below, began)
    seen = spans_of(encoded(t.spans, {"service.name": "s"}, "1"))
    head, *rest = lines(seen)
    assert head == f"trace {t.spans[0].context.trace_id}: 2 spans, 3.0 ms"
    assert rest == [
        "  execute (s) +0.0 ms, 3.0 ms path=a/b",
        "    tool.dispatch.http (s) +1.0 ms, 2.0 ms",
    ]
