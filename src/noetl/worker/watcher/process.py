"""The watcher process: from settings to an exit code."""

from __future__ import annotations

import asyncio
import logging
import platform
import signal
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from noetl import __version__
from noetl.api.client import Client
from noetl.api.sockets import SocketTransport
from noetl.clock import SystemClock
from noetl.edge.health import Health, serving
from noetl.errors import NoetlError
from noetl.ids import random_key
from noetl.telemetry import log
from noetl.telemetry.metrics import Metrics
from noetl.telemetry.redact import Redactor
from noetl.tools.base import ToolError
from noetl.tools.container.kubernetes import Cluster
from noetl.tools.container.report import Messenger, as_watcher
from noetl.tools.container.supervise import STATES
from noetl.worker.watcher.lead import Lead, Terms
from noetl.worker.watcher.watch import Pace, Watcher

if TYPE_CHECKING:
    from noetl.settings import WorkerSettings

OK, BROKEN, REFUSED = 0, 1, 2
"""Told to stop; ended by a defect; not started."""
_RUNTIME: Final = "kubernetes"

_log = logging.getLogger("noetl.worker")


def watch(settings: WorkerSettings) -> int:
    """Run one watcher until it is told to stop; the exit code of the process."""
    redactor = Redactor((settings.internal_token,))
    lines = log.configure(settings.log_level, sys.stderr, redactor=redactor, clock=SystemClock())
    try:
        asyncio.run(_run(settings, redactor))
    except ToolError as fault:
        _log.error("the watcher does not start", extra={"code": fault.code, "reason": str(fault)})
        return REFUSED
    except NoetlError as fault:
        _log.error("the watcher broke down", extra={"code": fault.code, "reason": str(fault)})
        return BROKEN
    finally:
        lines.close()
    return OK


async def _run(settings: WorkerSettings, redactor: Redactor) -> None:
    clock, stop = SystemClock(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    namespace = settings.namespaces[0]
    holder = settings.worker_id or f"{platform.node()}-{random_key()[:8]}"
    async with AsyncExitStack() as stack:
        cluster = await Cluster.open()
        stack.push_async_callback(cluster.close)
        transport = SocketTransport(settings.server_url, token=settings.internal_token)
        stack.push_async_callback(transport.close)
        client = Client(transport)
        messenger = Messenger(client, as_watcher(client), redactor=redactor)
        watcher = Watcher(cluster, namespace, client, messenger, clock, Pace())
        lead = Lead(cluster, namespace, holder, clock, Terms())
        about = {"version": __version__, "namespace": namespace, "holder": holder}
        await stack.enter_async_context(
            serving(
                Health(lambda: (), _Numbers(watcher, lead).render, about), settings.metrics_bind
            )
        )
        _log.info("the watcher works", extra=about)
        working = asyncio.create_task(lead.run(watcher.run))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if working.done():
            working.result()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


class _Numbers:
    """What a watcher shows to scrapers."""

    def __init__(self, watcher: Watcher, lead: Lead) -> None:
        self._watcher = watcher
        self._lead = lead
        self._metrics = metrics = Metrics("watcher", __version__)
        self._jobs = metrics.counter(
            "container_jobs_total", "Jobs of steps.", {"runtime": (_RUNTIME,), "state": STATES}
        )
        self._leads = metrics.gauge("watcher_leads", "Whether this watcher is the one that works.")

    def render(self) -> bytes:
        """The text that a scraper reads."""
        self._jobs.replace({names: float(n) for names, n in self._watcher.tally.items()})
        self._leads.set(float(self._lead.is_held))
        return self._metrics.render()
