"""The server process: opens what it stands on, listens, and ends in good order."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import signal
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, TypeVar

from noetl import __version__
from noetl.errors import NoetlError
from noetl.server.app import create_server
from noetl.server.backends import opened
from noetl.server.http import bound, listener
from noetl.telemetry import failpoint, log
from noetl.telemetry.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from noetl.server.app import Server
    from noetl.server.http import Listener
    from noetl.settings import ServerSettings
    from noetl.telemetry.log import Lines

T = TypeVar("T")

DRAIN_S: Final = 25.0
"""How long what was begun may take after SIGTERM."""
_GC: Final = (20_000, 20, 50)
_log: Final = logging.getLogger(__name__)


def serve(settings: ServerSettings) -> int:
    """Run a server until it is told to stop; 0 when it ended in good order."""
    lines = log.configure(settings.log_level, sys.stderr, redactor=_redactor(settings))
    try:
        failpoint.configure(settings.failpoints, settings.env)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(settings, lines))
    except NoetlError as fault:
        _log.error(fault.message, extra={"code": fault.code, "hint": fault.hint})
        return 1
    except BaseExceptionGroup:
        _log.exception("the server has failed")
        return 1
    finally:
        lines.close()
    return 0


async def _serve(settings: ServerSettings, lines: Lines) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _log.debug("the server starts", extra={"version": __version__})
    async with AsyncExitStack() as stack:
        sockets = [stack.enter_context(bound(settings.host, settings.port))]
        if settings.metrics_port is not None:
            sockets.append(stack.enter_context(bound(settings.host, settings.metrics_port)))
        backends = await _unless(stop, opened(stack, settings))
        if backends is None:
            return
        server = create_server(backends.parts, backends.vitals)
        server.plane.metrics.lines = lines.written
        async with server, asyncio.TaskGroup() as group:
            api = listener(server.asgi, tls_cert=settings.tls_cert, tls_key=settings.tls_key)
            listeners = [api, *(listener(server.watched) for _ in sockets[1:])]
            beside = [group.create_task(loop(), name=n) for n, loop in backends.loops.items()]
            for each, open_socket in zip(listeners, sockets, strict=True):
                group.create_task(each.serve([open_socket]))
            for each in listeners:
                await each.heard.wait()
            _settle()
            _log.info("the server listens", extra={"url": settings.url, "version": __version__})
            await stop.wait()
            await _end(server, listeners)
            for task in beside:
                task.cancel()
    _log.info("the server has ended")


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


def _settle() -> None:
    """What is there by now stays: it need not be looked through again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC)


def _redactor(settings: ServerSettings) -> Redactor:
    secrets = (
        *settings.internal_tokens,
        settings.encryption_key,
        settings.nats_password,
        settings.nats_token,
        settings.database_url.partition("://")[2].partition("@")[0].partition(":")[2],
    )
    return Redactor(secret for secret in secrets if secret)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The fast loop where there is one."""
    try:
        fast = importlib.import_module("uvloop")
    except ModuleNotFoundError:
        return None
    made: Callable[[], asyncio.AbstractEventLoop] = fast.new_event_loop
    return made
