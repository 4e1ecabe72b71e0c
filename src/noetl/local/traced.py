"""The tracer of a local run, when somebody takes its spans."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from noetl.settings import TraceSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.clock import Clock
    from noetl.telemetry.redact import Redactor
    from noetl.telemetry.traces.tracer import Tracer


@asynccontextmanager
async def traced(clock: Clock, redactor: Redactor) -> AsyncIterator[Tracer | None]:
    """A tracer while the block lasts; none when nobody takes spans."""
    settings = TraceSettings.read()
    if not settings.otlp_endpoint:
        yield None
        return
    from noetl.api.otlp import tracing  # noqa: PLC0415 - most runs have none
    from noetl.telemetry.traces.otlp import headers_of  # noqa: PLC0415 - as above

    redactor.add(*headers_of(settings.otlp_headers).values())
    about = {"service.name": settings.service_name or "noetl-local"}
    async with tracing(
        settings.otlp_endpoint, settings.otlp_headers, about, clock=clock, redactor=redactor
    ) as traces:
        yield traces.tracer
