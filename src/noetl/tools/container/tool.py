"""Runs a container job and waits for it without a slot."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from noetl.clock import rfc3339
from noetl.dsl.tasks import Container
from noetl.ids import random_key
from noetl.tools.base import Parked, ToolError, Traits
from noetl.tools.container import names
from noetl.tools.container.job import MOST_INPUT, Order, env_of, limits_of, manifests
from noetl.tools.container.kubernetes import ApiRefused, Cluster, is_in_cluster
from noetl.tools.container.podman import Podman
from noetl.tools.container.polling import LEAST_S, Polling
from noetl.tools.container.process import ProcessRuntime
from noetl.tools.container.supervise import LOOK_S, Supervisor
from noetl.tools.container.ticket import Ticket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from noetl.api.client import Client
    from noetl.clock import Clock
    from noetl.dsl.tasks.task import Task
    from noetl.telemetry.redact import Redactor
    from noetl.tools.base import ToolContext
    from noetl.tools.container.supervise import Runtime
    from noetl.tools.interpreter.process import Processes

DEFAULT_S: Final = 3600.0
GUARD_S: Final = 300.0
MOST_GUARD_S: Final = 7 * 86_400.0
_NO_FILES: Final[Mapping[str, bytes]] = {}
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where containers of this worker may run."""

    namespaces: tuple[str, ...] = ("noetl",)
    """The first is that of jobs that name none; jobs may name only these."""
    is_polled: bool = False
    """Whether this worker asks for the ends of its jobs, since no watcher runs."""
    may_run_processes: bool = False
    home: Path | None = None
    """Where records of jobs lie that this worker runs itself; in memory without it."""
    scratch: Path | None = None
    """Where their files lie; `home` without it."""
    environ: Mapping[str, str] | None = None
    """Variables for podman itself."""
    cluster: Callable[[], Awaitable[Cluster]] = Cluster.open
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    """Marks the time in which a job runs that this process watches over."""
    look_s: float = LOOK_S
    poll_s: float = LEAST_S


class ContainerTool:
    """The kind `container`."""

    kind: ClassVar[str] = "container"
    Config: ClassVar[type[Task]] = Container
    traits: ClassVar[Traits] = Traits(parks=True, extra="kubernetes")

    def __init__(self, site: Site, processes: Processes, clock: Clock) -> None:
        self._site = site
        self._clock = clock
        self._cluster: Cluster | None = None
        self._supervisor = Supervisor(site.home, around=site.around, look_s=site.look_s)
        self._process = ProcessRuntime(processes, clock)
        self._polling = Polling(self.cluster, clock, site.poll_s)
        self._podman: Podman | None = None
        self._making: dict[int, Ticket] = {}

    @property
    def tally(self) -> Mapping[tuple[str, str], int]:
        """Jobs of this worker by runtime and what became of them."""
        return self._supervisor.tally

    async def run(
        self, config: Container, ctx: ToolContext, files: Mapping[str, bytes] = _NO_FILES
    ) -> Parked:
        """Start the job, or find that of an earlier attempt, and park until it has ended."""
        order = self._order(config, ctx, files)
        self._making[id(ctx)] = order.ticket
        try:
            ticket = await self._started(order, ctx)
        except Exception as fault:
            del self._making[id(ctx)]
            if isinstance(fault, ApiRefused):
                raise fault.as_tool_error() from None
            raise
        del self._making[id(ctx)]
        return Parked(reason="callback", request=_request(ticket, config))

    async def cancel(self, ctx: ToolContext) -> None:
        """Delete the job of a task that is stopped while it starts one."""
        ticket = self._making.pop(id(ctx), None)
        if ticket is None:
            return
        if ticket.name in self._supervisor:
            await self._supervisor.stop(ticket.name)
        elif ticket.runtime == "kubernetes" and self._cluster is not None:
            await self._cluster.stop(ticket.namespace, ticket.name)

    async def adopt(self, client: Client, redactor: Redactor | None = None) -> int:
        """Go on with jobs that an earlier process of this worker left; how many there were."""
        runtimes: dict[str, Runtime] = {"process": self._process, "kubernetes": self._polling}
        if Podman.program() is not None:
            runtimes["podman"] = self._podman_here()
        return await self._supervisor.adopt(runtimes, client, redactor)

    async def close(self) -> None:
        """Watch over nothing any more."""
        await self._supervisor.close()
        if self._cluster is not None:
            await self._cluster.close()
            self._cluster = None

    async def cluster(self) -> Cluster:
        """The cluster of this worker, found when it is needed first."""
        if self._cluster is None:
            self._cluster = await self._site.cluster()
        return self._cluster

    # ------------------------------------------------------------------ one job

    def _order(
        self, config: Container, ctx: ToolContext, files: Mapping[str, bytes]
    ) -> Order:  # fmt: skip
        runtime = self._runtime(config.runtime)
        timeout_s = DEFAULT_S if ctx.timeout_s is None else ctx.timeout_s
        ticket = Ticket(
            name=names.job_name(ctx.step, ctx.execution_id, ctx.idempotency_key, ctx.try_number),
            runtime=runtime,
            execution_id=ctx.execution_id,
            step=ctx.step,
            command_id=ctx.command_id,
            key=ctx.idempotency_key,
            timeout_s=timeout_s,
            namespace=self._namespace(config) if runtime == "kubernetes" else "",
            uid=None if runtime == "kubernetes" else random_key(),
            began_at=rfc3339(self._clock.now()),
        )
        order = Order(
            ticket=ticket,
            config=config,
            input=_encode(dict(ctx.input)),
            env=env_of(config),
            limits=limits_of(config),
            files=files,
            is_secret=lambda text: ctx.redactor.redact(text) != text,
        )
        order = replace(order, secrets=ctx.redactor.within(order.texts))
        kept = (order.input, order.secrets_json, *files.values())
        if sum(map(len, kept)) > MOST_INPUT:
            message = f"/input: a container takes at most {MOST_INPUT} bytes; give it a reference"
            raise ToolError("limit", "input_too_large", message)
        return order

    async def _started(self, order: Order, ctx: ToolContext) -> Ticket:
        ticket = order.ticket
        if ticket.name in self._supervisor:  # an earlier attempt began it, and it goes on
            return self._supervisor.ticket(ticket.name)
        if ticket.runtime == "kubernetes":
            job = await (await self.cluster()).create(*manifests(order))
            ticket = msgspec.structs.replace(ticket, uid=job["metadata"]["uid"])
            if self._site.is_polled:
                await self._watched(self._polling, order, ticket, ctx, is_limited=False)
            else:
                self._supervisor.tally["kubernetes", "created"] += 1
            return ticket
        runtime = self._process if ticket.runtime == "process" else self._podman_here()
        try:
            runtime.check(order)
        except ToolError as fault:
            if order.config.runtime != "auto":
                raise
            told = f"this worker runs in no cluster, and podman cannot run it: {fault.message}"
            raise _no_runtime(told) from None
        await self._watched(runtime, order, ticket, ctx, is_limited=True)
        return ticket

    async def _watched(
        self, runtime: Runtime, order: Order, ticket: Ticket, ctx: ToolContext, *, is_limited: bool
    ) -> None:
        if ctx.client is None:
            message = "this worker cannot tell the server when a container has ended"
            raise ToolError("internal", "no_client", message)
        order = replace(order, ticket=ticket)
        await self._supervisor.take(runtime, order, ctx.client, ctx.redactor, is_limited=is_limited)

    def _runtime(self, asked: str) -> str:
        if asked == "process" and not self._site.may_run_processes:
            message = (
                "/runtime: containers do not run as processes here "
                "(NOETL_CONTAINER_ALLOW_PROCESS=true allows it)"
            )
            raise ToolError("config", "process_runtime_off", message)
        if asked == "podman" and Podman.program() is None:
            raise _no_runtime("podman is not installed on this machine")
        if asked != "auto":
            return asked
        if is_in_cluster():
            return "kubernetes"
        if Podman.program() is None:
            raise _no_runtime(
                "this worker runs in no cluster and finds no podman; "
                "install podman, or say `runtime: kubernetes` or `runtime: process`"
            )
        return "podman"

    def _namespace(self, config: Container) -> str:
        allowed = self._site.namespaces
        asked = config.namespace or allowed[0]
        if asked not in allowed:
            message = (
                f"/namespace: jobs may not run in `{asked}`; "
                f"NOETL_CONTAINER_NAMESPACE allows {', '.join(allowed)}"
            )
            raise ToolError("config", "namespace_forbidden", message)
        return asked

    def _podman_here(self) -> Podman:
        if self._podman is None:
            from noetl.tools.interpreter import scratch  # noqa: PLC0415 - local runs without a home

            home = self._site.scratch or self._site.home or scratch.made(0o700)
            self._podman = Podman(home, self._site.environ or {}, self._clock)
        return self._podman


def _request(ticket: Ticket, config: Container) -> dict[str, Any]:
    """What the parked command waits for."""
    guard_s = min(MOST_GUARD_S, math.ceil(ticket.timeout_s) + GUARD_S)
    return {
        "pending_callback": True,
        "job_name": ticket.name,
        "job_uid": ticket.uid,
        "namespace": ticket.namespace or None,
        "labels": names.labels(ticket.execution_id, ticket.step, ticket.command_id),
        "runtime": ticket.runtime,
        "image": config.image,
        "timeout_s": guard_s,
    }


def _no_runtime(message: str) -> ToolError:
    return ToolError("config", "no_container_runtime", message)
