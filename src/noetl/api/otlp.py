"""The way to a collector of traces: the tracer of a process that was told of one."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from noetl import __version__
from noetl.api.http import NoAnswer
from noetl.api.sockets import SocketTransport
from noetl.telemetry.traces.exporter import Exporter, Reply
from noetl.telemetry.traces.otlp import MEDIA_TYPE, PATH, headers_of
from noetl.telemetry.traces.tracer import Tracer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from noetl.clock import Clock
    from noetl.telemetry.redact import Redactor

TIMEOUT_S: Final = 10.0
_NO_ANSWER: Final = Reply(0)


class Tracing:
    """A tracer, and what became of its spans."""

    def __init__(self, exporter: Exporter, clock: Clock) -> None:
        self.tracer = Tracer(clock, exporter.put)
        self.counts: Mapping[str, int] = exporter.counts


@asynccontextmanager
async def tracing(
    endpoint: str, headers: str, about: Mapping[str, str], *, clock: Clock, redactor: Redactor
) -> AsyncIterator[Tracing]:
    """A tracer whose spans go to a collector; what is left goes out with the block."""
    transport = SocketTransport(endpoint, timeout_s=TIMEOUT_S, connections=1)
    told = {"Content-Type": MEDIA_TYPE, **headers_of(headers)}

    async def send(body: bytes) -> Reply:
        try:
            answer = await transport.request("POST", PATH, body, told)
        except NoAnswer:
            return _NO_ANSWER
        return Reply(answer.status, answer.body, _seconds(answer.headers.get("retry-after", "")))

    resource = {**about, "service.version": __version__, "host.name": socket.gethostname()}
    exporter = Exporter(send, resource | {"process.pid": os.getpid()}, __version__, redactor)
    task = asyncio.create_task(exporter.run(), name="traces")
    try:
        yield Tracing(exporter, clock)
    finally:
        await exporter.close(task)
        await transport.close()


def _seconds(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() else None
