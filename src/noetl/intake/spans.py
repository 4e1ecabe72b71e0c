"""Spans around what takes time; nothing at all in a process that exports none."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from noetl.telemetry.traces.tracer import About, Tracer


@contextmanager
def spanned(
    tracer: Tracer | None, name: str, trace: Mapping[str, Any] | None, about: About
) -> Iterator[Callable[..., None]]:
    """A span that lasts as long as the block, which may tell more of it."""
    if tracer is None:
        yield lambda **_: None
        return
    span = tracer.begin(name, trace, about)
    error = "cancelled"
    try:
        yield span.attributes.update
        error = ""
    except Exception as fault:
        error = type(fault).__name__
        raise
    finally:
        tracer.end(span, error)
