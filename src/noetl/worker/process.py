"""The worker process: from settings to an exit code; its parts are made and ended here."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from noetl import __version__
from noetl.api.client import Client
from noetl.api.problems import Refused
from noetl.api.sockets import SocketTransport
from noetl.bus.nats import NatsBus
from noetl.clock import SystemClock
from noetl.edge.health import Health, serving
from noetl.errors import NoetlError
from noetl.ids import LeasedIds
from noetl.settings import (
    child_environment,
    mcp_endpoints,
    podman_environment,
    secret_files,
    uv_environment,
)
from noetl.telemetry import failpoint, log
from noetl.telemetry.redact import Redactor
from noetl.telemetry.traces.otlp import headers_of
from noetl.tools.container.tool import ContainerTool, Site
from noetl.tools.http.egress import Egress
from noetl.tools.interpreter import scratch
from noetl.tools.interpreter.cgroup import Groups
from noetl.tools.interpreter.environments import Environments
from noetl.tools.interpreter.pool import Interpreters
from noetl.tools.interpreter.process import Processes
from noetl.tools.interpreter.sandbox import Sandbox, SandboxMissing
from noetl.tools.mcp.places import Known
from noetl.tools.objects.store import Stores
from noetl.tools.registry import Parts, builtins, with_plugins
from noetl.tools.sources import Scripts
from noetl.tools.subscription.spools import Spools
from noetl.worker.app import WorkerParts, create_worker
from noetl.worker.backlog import Backlog
from noetl.worker.blobs import ServerBlobs
from noetl.worker.brakes import disk_is_full, memory_is_high
from noetl.worker.identity import CannotStart, checked_pool, identified
from noetl.worker.metrics import WorkerMetrics
from noetl.worker.outbox import Outbox
from noetl.worker.parcels import Parcels
from noetl.worker.pulse import Line
from noetl.worker.secrets import lifted
from noetl.worker.shelf import OutboxDamaged, OutboxFull, Shelf

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.blobs.spool.jetstream import Messages
    from noetl.bus.base import Bus
    from noetl.settings import WorkerSettings
    from noetl.telemetry.log import Lines
    from noetl.telemetry.traces.tracer import Tracer
    from noetl.tools.registry import Registry
    from noetl.worker.app import Worker
    from noetl.worker.identity import Identity

OK, BROKEN, REFUSED = 0, 1, 2
"""Drained; ended by force or by a defect; not started."""
KILL_S: Final = 5.0

_log = logging.getLogger("noetl.worker")


def work(settings: WorkerSettings) -> int:
    """Run one worker until it is told to stop; the exit code of the process."""
    redactor = Redactor()
    lines = log.configure(settings.log_level, sys.stderr, redactor=redactor, clock=SystemClock())
    try:
        failpoint.configure(settings.failpoints, settings.env)
        pool = checked_pool(settings.pool)
        with (
            identified(settings.home, pool, settings.worker_id) as identity,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            return runner.run(_Process(settings, identity, redactor, lines).run())
    except (CannotStart, Refused, SandboxMissing) as fault:
        _log.error("the worker does not start", extra=_told(fault))
        return REFUSED
    except NoetlError as fault:
        _log.error("the worker broke down", extra=_told(fault))
        return BROKEN
    finally:
        lines.close()


def _told(fault: Exception) -> dict[str, str]:
    hint = getattr(fault, "hint", "")
    code = getattr(fault, "code", "worker.cannot_start")
    return {"code": code, "reason": str(fault)} | ({"hint": hint} if hint else {})


class _Process:
    """One worker with everything that it opens."""

    def __init__(
        self, settings: WorkerSettings, identity: Identity, redactor: Redactor, lines: Lines
    ) -> None:
        self._lines = lines
        self._settings = settings
        self._identity = identity
        self._redactor = redactor
        self._clock = SystemClock()
        self._home = settings.home.absolute()
        self._is_warm = False
        self._worker: Worker | None = None
        self._stores: Stores | None = None
        self._scripts: Scripts | None = None
        self._work: asyncio.Task[None] | None = None
        self._nats: NatsBus | None = None
        self._signals = 0

    async def run(self) -> int:
        """Start, work, end."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        async with AsyncExitStack() as stack:
            interpreters, registry = await self._tools(stack)
            meters = WorkerMetrics(settings.pool, registry.tools)
            about = {
                "version": __version__,
                "worker_id": self._identity.name,
                "pool": settings.pool,
                "plugins": {"failed": dict(registry.failed)},
            }
            health = Health(self._reasons, meters.render, about)
            await self._listen(stack, health)
            parts = await self._parts(stack, registry, interpreters, meters)
            self._worker = worker = create_worker(parts)
            meters.follow(worker, settings.pool, interpreters)
            meters.follow_tools(registry.tools, self._redactor)
            meters.lines = self._lines.written
            self._lines.always.update(worker_id=self._identity.name, pool=settings.pool)
            await self._adopt(registry, parts.client)
            await interpreters.warm_up()
            self._is_warm = True
            gc.freeze()
            _log.info("the worker works", extra=about)
            return await self._worked(worker)

    async def _worked(self, worker: Worker) -> int:
        if self._is_told():
            return OK
        self._work = asyncio.create_task(worker.run(), name="worker")
        try:
            await self._work
        except asyncio.CancelledError:
            if not self._is_told():
                raise
            return BROKEN if self._signals > 1 else OK
        _log.info("the worker has left")
        return OK

    def _is_told(self) -> bool:
        """Whether somebody told this process to stop."""
        return self._signals > 0

    def _signalled(self) -> None:
        """The first signal drains, the second one kills."""
        self._signals += 1
        worker, work = self._worker, self._work
        _log.info("a signal", extra={"signals": self._signals})
        if worker is not None and worker.is_registered and self._signals == 1:
            worker.drain()
            return
        if work is not None:
            work.cancel()
        if self._signals > 1:
            asyncio.get_running_loop().call_later(KILL_S, os._exit, BROKEN)

    def _reasons(self) -> tuple[str, ...]:
        worker = self._worker
        if worker is None or not self._is_warm:
            return ("warming_up",)
        return worker.reasons

    async def _adopt(self, registry: Registry, client: Client) -> None:
        """Go on with the containers of the last run."""
        tool = registry.tools.get(ContainerTool.kind)
        if not isinstance(tool, ContainerTool):
            return
        if count := await tool.adopt(client, self._redactor):
            _log.info("containers of the last run", extra={"count": count})

    # ------------------------------------------------------------------ what it opens

    async def _tools(self, stack: AsyncExitStack) -> tuple[Interpreters, Registry]:
        settings = self._settings
        environ = child_environment()
        await asyncio.to_thread(scratch.sweep)
        hidden = (self._home, *secret_files())
        sandbox = Sandbox.detect(settings.python_sandbox, hidden=hidden)  # type: ignore[arg-type]  # the setting is one of the modes
        if settings.python_network == "off":
            sandbox.shut_off()
        sandbox.groups = Groups.found() if settings.python_sandbox != "off" else None
        packages = None
        if settings.python_requirements == "allow":
            packages = Environments(self._home / "python", uv_environment())
        interpreters = Interpreters(sandbox, environ, slots=settings.slots, packages=packages)
        stack.push_async_callback(interpreters.close)
        parts = Parts(
            interpreters=interpreters,
            processes=Processes(sandbox, environ),
            data_roots=self._data_roots(),
            shell=settings.is_shell_on,
            mcp=Known(
                endpoints=mcp_endpoints(),
                url=settings.mcp_url,
                stdio_allow=settings.mcp_stdio_allow,
            ),
            egress=Egress(
                mode="open" if settings.http_egress == "open" else "guarded",
                allow=settings.http_allow,
                always=(settings.server_url, settings.gateway_url),
            ),
            site=Site(
                namespaces=settings.namespaces,
                is_polled=settings.is_container_polled,
                may_run_processes=settings.may_run_processes,
                home=self._identity.folder / "containers",
                environ=podman_environment(),
            ),
            clock=self._clock,
            spools=Spools(
                home=self._home,
                default=settings.spool_default,
                messages=self._messages if settings.nats_url else None,
            ),
            pubsub_emulator=settings.pubsub_emulator,
        )
        registry = with_plugins(builtins(parts))
        stack.push_async_callback(registry.close)
        self._stores = Stores(parts.egress)
        self._scripts = Scripts(parts.egress, parts.data_roots, self._stores)
        stack.push_async_callback(self._scripts.close)
        for name, reason in registry.failed.items():
            _log.error("a plug-in is left out", extra={"plugin": name, "reason": reason})
        _log.info("tools", extra={"kinds": sorted(registry.tools), "sandbox": sandbox.level})
        return interpreters, registry

    def _data_roots(self) -> tuple[Path, ...]:
        """The folders of file databases; without a word, one in the home."""
        if self._settings.data_roots:
            return tuple(Path(root) for root in self._settings.data_roots)
        own = self._home / "data"
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        return (own,)

    async def _listen(self, stack: AsyncExitStack, health: Health) -> None:
        bind = self._settings.metrics_bind
        if not bind:
            return
        try:
            port = await stack.enter_async_context(serving(health, bind))
        except OSError as fault:
            raise CannotStart(
                f"metrics and health cannot be shown at {bind}: {fault}",
                hint="choose another WORKER_METRICS_BIND",
                code="worker.bad_bind",
            ) from fault
        _log.info("health", extra={"bind": bind, "port": port})

    async def _parts(
        self,
        stack: AsyncExitStack,
        registry: Registry,
        interpreters: Interpreters,
        meters: WorkerMetrics,
    ) -> WorkerParts:
        settings = self._settings
        ids = LeasedIds(self._clock, settings.machine_id)
        client = self._client(stack, settings.server_url)
        disk = disk_is_full(self._home)
        outbox = await self._outbox(stack)
        parcels = Parcels(self._identity.folder / "results", client)
        if not outbox.events:
            parcels.clear()
        return WorkerParts(
            client=client,
            tools=registry.tools,
            clock=self._clock,
            ids=ids,
            worker_id=self._identity.name,
            pool=settings.pool,
            slots=settings.slots,
            bus=await self._bus(stack),
            blobs=ServerBlobs(client),
            stores=self._stores,
            scripts=self._scripts,
            redactor=self._redactor,
            lifted=lifted(settings.keychain_env_vars, settings.pool),
            has_key=True,
            drain_s=settings.drain_s,
            ceiling_s=settings.tool_timeout_max_s,
            default_s=settings.command_timeout_s,
            most_runs=settings.most_task_runs,
            inline_bytes=settings.inline_bytes,
            sandbox=interpreters.sandbox.level,
            kind_limits=settings.kind_limits,
            heartbeat_s=settings.heartbeat_s,
            heart="thread",
            line=self._line,
            server_url=settings.server_url,
            other=lambda url: self._client(stack, url),
            outbox=outbox,
            backlog=await self._backlog(stack, disk),
            parcels=parcels,
            brakes={
                "memory": memory_is_high(settings.memory_high),
                "disk": disk,
            },
            meters=meters,
            tracer=await self._tracer(stack, meters),
            on_machine=ids.lease if settings.machine_id is None else _keep_own,
        )

    async def _tracer(self, stack: AsyncExitStack, meters: WorkerMetrics) -> Tracer | None:
        """A tracer, if somebody takes spans."""
        settings = self._settings
        if not settings.otlp_endpoint:
            return None
        from noetl.api.otlp import tracing  # noqa: PLC0415 - most have none

        self._redactor.add(*headers_of(settings.otlp_headers).values())
        name = settings.service_name or "noetl-worker"
        about = {"service.name": name, "service.instance.id": self._identity.name}
        traces = await stack.enter_async_context(
            tracing(
                settings.otlp_endpoint,
                settings.otlp_headers,
                about,
                clock=self._clock,
                redactor=self._redactor,
            )
        )
        meters.spans = traces.counts
        return traces.tracer

    async def _outbox(self, stack: AsyncExitStack) -> Outbox:
        outbox = Outbox(self._identity.folder, self._settings.outbox_max_bytes, self._clock)
        await self._find(stack, outbox)
        return outbox

    async def _backlog(self, stack: AsyncExitStack, is_disk_full: Callable[[], bool]) -> Backlog:
        backlog = Backlog(self._identity.folder, self._clock, is_disk_full=is_disk_full)
        await self._find(stack, backlog)
        return backlog

    @staticmethod
    async def _find(stack: AsyncExitStack, shelf: Shelf) -> None:
        """Open what the last run left on the disk."""
        stack.push_async_callback(shelf.close)
        try:
            await shelf.open()
        except OutboxDamaged as fault:
            _log.error("a file of the last run is lost", extra=_told(fault))
        except OutboxFull as fault:  # it is tried again when it is needed
            _log.error("a file of the last run cannot be opened", extra=_told(fault))
        if shelf.events:
            told = {"file": shelf.name, "count": shelf.events}
            _log.info("what the last run left goes first", extra=told)

    async def _bus(self, stack: AsyncExitStack) -> Bus | None:
        settings = self._settings
        if not settings.nats_url:
            return None
        self._nats = bus = await NatsBus.open(
            settings.nats_url,
            user=settings.nats_user,
            password=settings.nats_password,
            token=settings.nats_token,
            creds=settings.nats_creds,
        )
        stack.push_async_callback(bus.close)
        return bus

    def _messages(self, bucket: str) -> Messages:
        """The messages of a store of objects; tools run when the bus is there."""
        if self._nats is None:
            raise RuntimeError("the bus was not opened")
        return self._nats.messages(bucket)

    def _client(self, stack: AsyncExitStack, url: str) -> Client:
        transport = SocketTransport(url, token=self._settings.token)
        stack.push_async_callback(transport.close)
        return Client(transport)

    def _line(self) -> Line:
        transport = SocketTransport(
            self._settings.server_url, token=self._settings.token, connections=1
        )
        return Line(Client(transport), transport.close)


def _keep_own(_machine: int) -> None:
    """The machine number was chosen by a person."""
