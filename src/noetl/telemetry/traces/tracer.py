"""Makes spans; a process that exports none has no tracer at all."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from noetl.ids import random_key
from noetl.telemetry.traces.context import TRACESTATE, Context, continued, place_of
from noetl.telemetry.traces.span import INTERNAL, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from noetl.clock import Clock
    from noetl.telemetry.traces.span import Attribute

    Trace = Mapping[str, Any]
    About = Mapping[str, Attribute]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
_NOTHING: Final[dict[str, Any]] = {}


class Tracer:
    """Begins and ends spans, and hands those that are over to whoever exports them."""

    def __init__(self, clock: Clock, export: Callable[[Span], None]) -> None:
        self._clock = clock
        self._export = export

    def begin(
        self, name: str, trace: Trace | None, about: About = _NOTHING, kind: int = INTERNAL
    ) -> Span:
        """A span that begins now, below the place that a trace names; without one it is a root."""
        span = self._made(name, trace, kind, self._now())
        span.attributes = dict(about)
        return span

    def join(self, span: Span, trace: Trace | None) -> None:
        """Put a span below the place that a trace names, before anything is below the span."""
        above = place_of(trace)
        if trace is None or above is None:
            return
        span.context = Context(above.trace_id, span.context.span_id, above.is_sampled)
        span.parent_id = above.span_id
        span.state = str(trace.get(TRACESTATE, ""))

    def end(self, span: Span, error: str = "", about: About = _NOTHING) -> None:
        """The span is over; one that its caller does not sample is kept to ourselves."""
        span.end_ns = self._now()
        span.error = error
        span.attributes.update(about)
        if span.context.is_sampled:
            self._export(span)

    def note(
        self,
        name: str,
        trace: Trace | None,
        since: float,
        about: About = _NOTHING,
        until: float | None = None,
    ) -> dict[str, Any]:
        """A span that is over already, between moments of the monotonic clock; its own place."""
        now_ns, now = self._now(), self._clock.monotonic()
        span = self._made(name, trace, INTERNAL, now_ns - _ns(now - since))
        span.end_ns = now_ns if until is None else now_ns - _ns(now - until)
        span.attributes = dict(about)
        if span.context.is_sampled:
            self._export(span)
        return continued(trace, span.context)

    @contextmanager
    def during(
        self, name: str, trace: Trace | None, about: About = _NOTHING, kind: int = INTERNAL
    ) -> Iterator[dict[str, Any]]:
        """A span around a block, which is given the trace as it goes on from there."""
        span = self.begin(name, trace, about, kind)
        try:
            yield continued(trace, span.context)
        except BaseException as fault:
            self.end(span, code_of(fault))
            raise
        self.end(span)

    def below(self, trace: Trace | None, span: Span) -> dict[str, Any]:
        """A trace as it goes on from a span."""
        return continued(trace, span.context)

    def monotonic(self) -> float:
        """This moment, for a span that is noted later."""
        return self._clock.monotonic()

    def _made(self, name: str, trace: Trace | None, kind: int, start_ns: int) -> Span:
        here = Context(random_key(), random_key()[:16])
        span = Span(name, here, start_ns, kind=kind)
        self.join(span, trace)
        return span

    def _now(self) -> int:
        return (self._clock.now() - _EPOCH) // _TICK * 1000


def code_of(fault: BaseException) -> str:
    """What a span says of a fault: its code, never its text."""
    return str(getattr(fault, "code", None) or type(fault).__name__)


def _ns(seconds: float) -> int:
    return max(0, int(seconds * 1e9))
