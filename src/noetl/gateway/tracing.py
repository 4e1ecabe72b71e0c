"""The trace that a call belongs to: it comes with the request and goes on to the server."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from noetl.telemetry.traces.context import continued, of_headers, onward
from noetl.telemetry.traces.span import SERVER
from noetl.telemetry.traces.tracer import code_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from noetl.telemetry.traces.span import Span
    from noetl.telemetry.traces.tracer import Tracer

_trace: ContextVar[Mapping[str, Any] | None] = ContextVar("noetl.gateway.trace", default=None)
_FAULT: Final = 500


def onward_headers() -> dict[str, str]:
    """The headers of a call that is made for the one under way."""
    return onward(_trace.get())


class Spanned:
    """What one call tells of itself when it is over."""

    def __init__(self, tracer: Tracer | None, span: Span | None) -> None:
        self._tracer = tracer
        self._span = span
        self.error = ""

    def join(self, trace: Mapping[str, Any] | None) -> None:
        """The call belongs to this trace, as is known only now; so do the calls that it makes."""
        if self._tracer is not None and self._span is not None:
            self._tracer.join(self._span, trace)
        _trace.set(_below(trace, self._span))

    def tell(self, **about: str | float | bool) -> None:
        """Note something; never a text of the caller, never a query."""
        if self._span is not None:
            self._span.attributes.update(about)

    def answered(self, status: int) -> None:
        """Note the status of the answer."""
        self.tell(**{"http.response.status_code": status})
        if status >= _FAULT:
            self.error = str(status)


@contextmanager
def spanned(
    tracer: Tracer | None, name: str, headers: Mapping[str, str] | None, about: Mapping[str, str]
) -> Iterator[Spanned]:
    """One call as a span, below the caller's; calls that it makes go below this one.

    Without headers nobody is believed yet, and the call is the first of a trace.
    """
    trace = None if headers is None else of_headers(headers)
    span = None if tracer is None else tracer.begin(name, trace, about, SERVER)
    token = _trace.set(_below(trace, span))
    told = Spanned(tracer, span)
    try:
        yield told
    except BaseException as fault:
        told.error = code_of(fault)
        raise
    finally:
        _trace.reset(token)
        if tracer is not None and span is not None:
            tracer.end(span, told.error)


def _below(trace: Mapping[str, Any] | None, span: Span | None) -> Mapping[str, Any] | None:
    return trace if span is None else continued(trace, span.context)
