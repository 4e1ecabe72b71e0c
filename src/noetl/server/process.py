"""The server process: opens what it stands on, listens, and ends in good order."""

from __future__ import annotations

import asyncio
import importlib
import logging
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from noetl import __version__
from noetl.edge.http import bound, listener
from noetl.edge.memory import settle
from noetl.errors import NoetlError
from noetl.server.app import create_server
from noetl.server.backends import opened
from noetl.telemetry import failpoint, log
from noetl.telemetry.fingerprints import Fingerprints
from noetl.telemetry.redact import Redactor
from noetl.telemetry.traces.otlp import headers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from noetl.edge.http import Listener
    from noetl.server.app import Server
    from noetl.server.parts import ServerParts
    from noetl.server.plays import Player
    from noetl.settings import ServerSettings
    from noetl.telemetry.log import Lines

T = TypeVar("T")

DRAIN_S: Final = 25.0
"""How long what was begun may take after SIGTERM."""
_log: Final = logging.getLogger(__name__)


def serve(settings: ServerSettings, player: Player | None = None) -> int:
    """Run a server until it is told to stop; 0 when it ended in good order."""
    seen = Fingerprints()
    lines = log.configure(settings.log_level, sys.stderr, redactor=_redactor(settings, seen))
    try:
        failpoint.configure(settings.failpoints, settings.env)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(settings, lines, seen, player))
    except NoetlError as fault:
        told = {"code": fault.code, "reason": fault.message, "hint": fault.hint}
        _log.error("the server does not start", extra=told)
        return 1
    except BaseExceptionGroup:
        _log.exception("the server has failed")
        return 1
    finally:
        lines.close()
    return 0


async def _serve(
    settings: ServerSettings, lines: Lines, seen: Fingerprints, player: Player | None
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _log.debug("the server starts", extra={"version": __version__})
    async with AsyncExitStack() as stack:
        sockets = [stack.enter_context(bound(settings.host, settings.port))]
        if settings.metrics_port is not None:
            sockets.append(stack.enter_context(bound(settings.host, settings.metrics_port)))
        backends = await _unless(stop, opened(stack, settings, seen))
        if backends is None:
            return
        parts, spans = await _traced(stack, settings, backends.parts)
        server = create_server(replace(parts, player=player), backends.vitals)
        server.plane.metrics.lines = lines.written
        server.plane.metrics.spans = spans
        async with server, asyncio.TaskGroup() as group:
            api = listener(
                server.asgi,
                tls_cert=settings.tls_cert,
                tls_key=settings.tls_key,
                tls_client_ca=settings.tls_client_ca,
            )
            listeners = [api, *(listener(server.watched) for _ in sockets[1:])]
            beside = [group.create_task(loop(), name=n) for n, loop in backends.loops.items()]
            for each, open_socket in zip(listeners, sockets, strict=True):
                group.create_task(each.serve([open_socket]))
            for each in listeners:
                await each.heard.wait()
            settle()
            _log.info("the server listens", extra={"url": settings.url, "version": __version__})
            await stop.wait()
            await _end(server, listeners)
            for task in beside:
                task.cancel()
    _log.info("the server has ended")


async def _traced(
    stack: AsyncExitStack, settings: ServerSettings, parts: ServerParts
) -> tuple[ServerParts, Mapping[str, int]]:
    """The parts with a tracer, if somebody takes spans, and what became of those."""
    if not settings.otlp_endpoint:
        return parts, {}
    from noetl.api.otlp import tracing  # noqa: PLC0415 - most have none

    name = settings.service_name or "noetl-server"
    about = {"service.name": name, "service.instance.id": settings.url}
    traces = await stack.enter_async_context(
        tracing(
            settings.otlp_endpoint,
            settings.otlp_headers,
            about,
            clock=parts.clock,
            redactor=_redactor(settings),
        )
    )
    return replace(parts, tracer=traces.tracer), traces.counts


async def _unless(stop: asyncio.Event, work: Coroutine[None, None, T]) -> T | None:
    """What the work gives; nothing when the signal to stop comes first."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        return working.result()
    working.cancel()
    await asyncio.wait((working,))
    return None


async def _end(server: Server, listeners: list[Listener]) -> None:
    _log.info("the server drains")
    if not await server.drain(DRAIN_S):
        _log.warning("what was begun did not end in time", extra={"seconds": DRAIN_S})
    await server.stop()
    for each in listeners:
        each.stop()


def _redactor(settings: ServerSettings, seen: Fingerprints | None = None) -> Redactor:
    secrets = (
        *settings.internal_tokens,
        *settings.encryption_key.replace(" ", "").split(","),
        settings.vault_token,
        settings.nats_password,
        settings.nats_token,
        *headers_of(settings.otlp_headers).values(),
        settings.database_url.partition("://")[2].partition("@")[0].partition(":")[2],
    )
    return Redactor((secret for secret in secrets if secret), seen)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The fast loop where there is one."""
    try:
        fast = importlib.import_module("uvloop")
    except ModuleNotFoundError:
        return None
    made: Callable[[], asyncio.AbstractEventLoop] = fast.new_event_loop
    return made
