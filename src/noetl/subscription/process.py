"""The process that listens: from settings to an exit code; its parts are made and ended here."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import uvloop

from noetl import __version__
from noetl.api.client import Client
from noetl.api.registering import new_name
from noetl.api.sockets import SocketTransport
from noetl.blobs.spool.opening import DEFAULT
from noetl.bus import streams, subjects
from noetl.bus.address import Address
from noetl.bus.broker import Broker
from noetl.bus.gateway import LEAST_VERSION
from noetl.bus.nats_keys import NatsKeys
from noetl.bus.objects import NatsObjects
from noetl.clock import SystemClock
from noetl.edge.health import Health, serving
from noetl.errors import NoetlError
from noetl.ids import LeasedIds
from noetl.intake.circuit_stores import KeysStore, ServerStore
from noetl.secrets.sealed import KeyPair
from noetl.subscription.app import KIND, App, AppParts
from noetl.subscription.secrets import MissingAlias
from noetl.subscription.state import NotPull
from noetl.telemetry import failpoint, log
from noetl.telemetry.metrics import Metrics
from noetl.telemetry.redact import Redactor
from noetl.telemetry.traces.otlp import headers_of

if TYPE_CHECKING:
    from noetl.settings import SubscriptionSettings
    from noetl.telemetry.log import Lines
    from noetl.telemetry.traces.tracer import Tracer

OK, BROKEN, REFUSED = 0, 1, 2
"""Drained; ended by force or by a defect; not started."""
EX_CONFIG: Final = 78
"""A credential is missing: only a person can help."""
_log: Final = logging.getLogger("noetl.subscription")


def listen(settings: SubscriptionSettings) -> int:
    """Listen until told to stop; the exit code of the process."""
    redactor = Redactor(filter(None, (settings.bearer, settings.nats_password)))
    lines = log.configure(settings.log_level, sys.stderr, redactor=redactor, clock=SystemClock())
    try:
        failpoint.configure(settings.failpoints, settings.env)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_Process(settings, redactor, lines).run())
    except MissingAlias as fault:
        _log.error("the listener does not start", extra=_told(fault))
        return EX_CONFIG
    except NotPull as fault:
        _log.error("the listener does not start", extra=_told(fault))
        return REFUSED
    except NoetlError as fault:
        _log.error("the listener broke down", extra=_told(fault))
        return BROKEN
    finally:
        lines.close()


def _told(fault: NoetlError) -> dict[str, str]:
    return {"code": fault.code, "reason": fault.message} | (
        {"hint": fault.hint} if fault.hint else {}
    )


class _Process:
    """One listener with everything that it opens."""

    def __init__(self, settings: SubscriptionSettings, redactor: Redactor, lines: Lines) -> None:
        self._settings = settings
        self._redactor = redactor
        self._lines = lines
        self._clock = SystemClock()
        self._signals = 0
        self._app: App | None = None

    async def run(self) -> int:
        """Start, listen, end."""
        settings, loop = self._settings, asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        async with AsyncExitStack() as stack:
            name = settings.runtime_id or new_name(KIND)
            about = {"version": __version__, "runtime_id": name, "subscriptions": settings.paths}
            metrics = Metrics("subscription", __version__)
            self._app = app = await self._made(stack, name)
            for series in app.metrics.series:
                metrics.add(series)
            health = Health(lambda: app.reasons, metrics.render, about, lambda: app.ailments)
            port = await stack.enter_async_context(serving(health, settings.metrics_bind))
            self._lines.always.update(runtime_id=name)
            _log.info("the listener listens", extra={**about, "port": port})
            gc.freeze()
            if not self._signals:
                await app.run()
        _log.info("the listener has ended")
        return OK

    def _signalled(self) -> None:
        """The first signal drains, the second one ends at once: what is held comes again."""
        self._signals += 1
        _log.info("a signal", extra={"signals": self._signals})
        if self._signals > 1:
            os._exit(BROKEN)
        if self._app is not None:
            self._app.stop()

    async def _made(self, stack: AsyncExitStack, name: str) -> App:
        settings = self._settings
        transport = SocketTransport(settings.server_url, token=settings.bearer)
        stack.push_async_callback(transport.close)
        client = Client(transport)
        ids = LeasedIds(self._clock, settings.machine_id)
        broker = self._broker(stack)
        keys = None if broker is None else NatsKeys(broker, subjects.CIRCUITS_BUCKET)
        return App(
            AppParts(
                name=name,
                paths=settings.paths,
                client=client,
                keys=KeyPair.make(),
                clock=self._clock,
                ids=ids,
                circuits=ServerStore(client) if keys is None else KeysStore(keys),
                redactor=self._redactor,
                home=settings.home.absolute(),
                spool_default=settings.spool_default or DEFAULT,
                messages=None if broker is None else lambda bucket: NatsObjects(broker, bucket),
                emulator=settings.pubsub_emulator,
                state_poll_s=settings.state_poll_ms / 1000,
                tracer=await self._tracer(stack, name),
                on_machine=ids.lease if settings.machine_id is None else None,
            )
        )

    def _broker(self, stack: AsyncExitStack) -> Broker | None:
        settings = self._settings
        if not settings.nats_url:
            return None
        address = Address.of(
            settings.nats_url,
            user=settings.nats_user,
            password=settings.nats_password,
            token=settings.nats_token,
            creds=settings.nats_creds,
        )
        broker = Broker(address, (streams.bucket(subjects.CIRCUITS_BUCKET),), LEAST_VERSION)
        broker.start()
        stack.push_async_callback(broker.close)
        return broker

    async def _tracer(self, stack: AsyncExitStack, name: str) -> Tracer | None:
        """A tracer, if somebody takes spans."""
        settings = self._settings
        if not settings.otlp_endpoint:
            return None
        from noetl.api.otlp import tracing  # noqa: PLC0415 - most have none

        self._redactor.add(*headers_of(settings.otlp_headers).values())
        service = settings.service_name or "noetl-subscription"
        about = {"service.name": service, "service.instance.id": name}
        traces = await stack.enter_async_context(
            tracing(
                settings.otlp_endpoint,
                settings.otlp_headers,
                about,
                clock=self._clock,
                redactor=self._redactor,
            )
        )
        return traces.tracer
