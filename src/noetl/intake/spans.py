"""Spans around what takes time; nothing at all in a process that exports none."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from noetl.telemetry.traces.tracer import About, Tracer


@contextmanager
def spanned(
    tracer: Tracer | None, name: str, trace: Mapping[str, Any] | None, about: About
) -> Iterator[None]:
    """A span that lasts as long as the block."""
    if tracer is None:
        yield
        return
    span = tracer.begin(name, trace, about)
    error = "cancelled"
    try:
        yield
        error = ""
    except Exception as fault:
        error = type(fault).__name__
        raise
    finally:
        tracer.end(span, error)
