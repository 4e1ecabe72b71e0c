"""The gateway process: opens what it stands on, listens, and ends in good order."""

from __future__ import annotations

import asyncio
import importlib
import logging
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from noetl import __version__
from noetl.bus.gateway import GatewayBus
from noetl.clock import SystemClock
from noetl.edge.http import Bounds, Sockets, bound, listener
from noetl.edge.memory import settle
from noetl.errors import NoetlError
from noetl.gateway.app import create_gateway
from noetl.gateway.parts import GatewayParts
from noetl.gateway.shards import Shards
from noetl.gateway.upstream import Upstream
from noetl.ids import LeasedIds
from noetl.secrets.file import SecretFile
from noetl.settings import BadSetting
from noetl.telemetry import failpoint, log
from noetl.telemetry.fingerprints import Fingerprints
from noetl.telemetry.redact import Redactor
from noetl.telemetry.traces.otlp import headers_of
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.http.fetching import Fetcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noetl.edge.http import Listener
    from noetl.gateway.app import Gateway
    from noetl.settings import GatewaySettings
    from noetl.telemetry.log import Lines
    from noetl.telemetry.traces.tracer import Tracer

DRAIN_S: Final = 10.0
"""How long calls may take to end after SIGTERM, when the streams have ended."""
CLOSING_S: Final = 9
BUS_S: Final = 30.0
TOKEN_S: Final = 1.0
"""How often the file of the internal token is looked at."""
BOUNDS: Final = Bounds(head_bytes=64 * 1024, head_fields=100, body_s=10.0)
MESSAGE_BYTES: Final = 1024 * 1024
EX_CONFIG: Final = 78
"""The exit code of a process that was told something it cannot use."""
_REACHED: Final = "set NOETL_GATEWAY_URL, or GATEWAY_PUBLIC_URL, to an address that workers reach"
_log: Final = logging.getLogger(__name__)


def serve(settings: GatewaySettings) -> int:
    """Run a gateway until it is told to stop; 0 when it ended in good order."""
    seen = Fingerprints()
    lines = log.configure(settings.log_level, sys.stderr, redactor=_redactor(settings, seen))
    try:
        failpoint.configure(settings.failpoints, settings.env)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(settings, lines, seen))
    except NoetlError as fault:
        told = {"code": fault.code, "reason": fault.message, "hint": fault.hint}
        _log.error("the gateway does not start", extra=told)
        return EX_CONFIG if isinstance(fault, BadSetting) else 1
    except BaseExceptionGroup:
        _log.exception("the gateway has failed")
        return 1
    finally:
        lines.close()
    return 0


async def _serve(settings: GatewaySettings, lines: Lines, seen: Fingerprints) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _log.debug("the gateway starts", extra={"version": __version__})
    _warn(settings)
    async with AsyncExitStack() as stack:
        sockets = [stack.enter_context(bound(settings.host, settings.port))]
        if settings.metrics_bind:
            host, _, port = settings.metrics_bind.rpartition(":")
            sockets.append(stack.enter_context(bound(host, int(port))))
        parts, spans = await _opened(stack, settings, seen)
        opening = asyncio.create_task(parts.bus.ready(BUS_S))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not opening.done():
            opening.cancel()
            return
        opening.result()
        gateway = create_gateway(parts)
        gateway.gate.metrics.lines = lines.written
        gateway.gate.metrics.spans = spans
        _watch_token(gateway, settings, seen)
        async with gateway, asyncio.TaskGroup() as group:
            listeners = [
                _door(gateway, settings),
                *(listener(gateway.watched) for _ in sockets[1:]),
            ]
            for each, open_socket in zip(listeners, sockets, strict=True):
                group.create_task(each.serve([open_socket]))
            for each in listeners:
                await each.heard.wait()
            settle()
            told = {"url": settings.url, "version": __version__}
            _log.info("the gateway listens", extra=told)
            await stop.wait()
            await _end(gateway, listeners)
    _log.info("the gateway has ended")


def _door(gateway: Gateway, settings: GatewaySettings) -> Listener:
    return listener(
        gateway.asgi,
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
        tls_client_ca=settings.tls_client_ca,
        bounds=BOUNDS,
        sockets=Sockets(most_bytes=MESSAGE_BYTES, ping_s=settings.heartbeat_s),
        closing_s=CLOSING_S,
    )


async def _opened(
    stack: AsyncExitStack, settings: GatewaySettings, seen: Fingerprints
) -> tuple[GatewayParts, Mapping[str, int]]:
    clock = SystemClock()
    ids = LeasedIds(clock, settings.machine_id)
    bus = await GatewayBus.open(
        settings.nats_url,
        user=settings.nats_user,
        password=settings.nats_password,
        token=settings.nats_token,
        creds=settings.nats_creds,
        sessions_bucket=settings.session_bucket,
        requests_bucket=settings.request_bucket,
    )
    stack.push_async_callback(bus.close)
    shards = Shards(settings.shard_servers)
    upstream = Upstream.to(
        settings.server_url,
        settings.internal_token,
        clock,
        shards,
        previous=settings.internal_token_previous,
        timeout_s=settings.timeout_s,
    )
    stack.push_async_callback(upstream.close)
    # Whoever runs the gateway names the issuers: those may be in the same network, and no other.
    issuers = tuple(one.issuer for one in settings.providers)
    fetch = Fetcher(Guard(egress=Egress(allow=settings.http_allow, always=issuers)))
    stack.push_async_callback(fetch.close)
    tracer, spans = await _traced(stack, settings, clock)
    made = GatewayParts(
        settings=settings,
        clock=clock,
        ids=ids,
        bus=bus,
        upstream=upstream,
        fetch=fetch,
        shards=shards,
        seen=seen,
        on_machine=ids.lease if settings.machine_id is None else None,
        tracer=tracer,
    )
    return made, spans


async def _traced(
    stack: AsyncExitStack, settings: GatewaySettings, clock: SystemClock
) -> tuple[Tracer | None, Mapping[str, int]]:
    """A tracer, if somebody takes spans, and what becomes of those."""
    if not settings.otlp_endpoint:
        return None, {}
    from noetl.api.otlp import tracing  # noqa: PLC0415 - most have none

    name = settings.service_name or "noetl-gateway"
    about = {"service.name": name, "service.instance.id": settings.url}
    traces = await stack.enter_async_context(
        tracing(
            settings.otlp_endpoint,
            settings.otlp_headers,
            about,
            clock=clock,
            redactor=_redactor(settings),
        )
    )
    return traces.tracer, traces.counts


def _watch_token(gateway: Gateway, settings: GatewaySettings, seen: Fingerprints) -> None:
    """Take the internal token anew from its file when that changes."""
    if not settings.internal_token_file:
        return
    file = SecretFile(Path(settings.internal_token_file), settings.internal_token, seen.add)

    async def watch() -> None:
        while True:
            await asyncio.sleep(TOKEN_S)
            gateway.gate.upstream.renew(await asyncio.to_thread(file))

    gateway.gate.tasks.add("token", watch)


async def _end(gateway: Gateway, listeners: list[Listener]) -> None:
    """Streams first, while calls are answered; then nobody new is heard, and calls end."""
    _log.info("the gateway drains")
    await gateway.end_streams()
    for each in listeners:
        each.stop()
    if not await gateway.drain(DRAIN_S):
        _log.warning("what was begun did not end in time", extra={"seconds": DRAIN_S})
    await gateway.gate.registration.leave()


def _warn(settings: GatewaySettings) -> None:
    """Say loudly what makes the gateway less safe, and what cannot work."""
    for name, is_on in settings.switches.items():
        if is_on:
            _log.warning("the gateway is less safe than it could be", extra={"switch": name})
    if settings.is_called_back_here:
        told = {"gateway_url": settings.callback_url, "hint": _REACHED}
        _log.warning("playbooks on other machines cannot call back", extra=told)


def _redactor(settings: GatewaySettings, seen: Fingerprints | None = None) -> Redactor:
    secrets = (
        settings.internal_token,
        settings.internal_token_previous,
        settings.nats_password,
        settings.nats_token,
        settings.oidc_client_secret,
        *(one.client_secret for one in settings.providers),
        *headers_of(settings.otlp_headers).values(),
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
