"""One run of one task: its limits, what its tool may know, and what came of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.credentials import KeychainPut
from noetl.api.problems import Refused
from noetl.dsl.secret_inputs import (
    CALLBACK,
    MASK,
    at,
    has_mask,
    is_masked,
    named,
    with_secrets,
)
from noetl.dsl.tasks.about import DEFAULT_TIMEOUT_S, about
from noetl.dsl.views import NeedsObject, Outcome
from noetl.engine.pipeline import MOST_RUNS, RunTask
from noetl.tools.base import Callback, Parked, ToolContext, ToolError, failed, run_tool
from noetl.worker.results import plain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from typing import TypeVar

    from noetl.api.client import Client
    from noetl.api.commands import Command
    from noetl.blobs.base import Blobs
    from noetl.dsl.views import Reference
    from noetl.engine.pipeline import Done, Failed, Park, Pipeline
    from noetl.ids import Ids
    from noetl.telemetry.redact import Redactor
    from noetl.telemetry.traces.tracer import Tracer
    from noetl.tools.base import Tool
    from noetl.tools.objects.store import Stores
    from noetl.tools.sources import Scripts
    from noetl.worker.logs import Lines, Pace
    from noetl.worker.objects import Objects
    from noetl.worker.secrets import Handed

    T = TypeVar("T")

DEFAULT_S: Final = DEFAULT_TIMEOUT_S
CEILING_S: Final = 3600.0
_PARKING: Final = frozenset({"playbook", "playbooks", "wait", "container"})
NAMED_S: Final = 30 * 86_400.0
"""How long a secret keeps the name that a task gave it."""
_NOT_FOUND: Final = 404
_NO_SECRETS: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every task of this worker runs with."""

    client: Client
    tools: Mapping[str, Tool]
    redactor: Redactor
    objects: Objects
    blobs: Blobs | None = None
    stores: Stores | None = None
    scripts: Scripts | None = None
    secrets: Callable[[Command], Handed] | None = None
    pool: str = ""
    worker_id: str = ""
    ids: Ids | None = None
    ceiling_s: float = CEILING_S
    default_s: float = DEFAULT_S
    most_runs: int = MOST_RUNS
    tracer: Tracer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinks:
    """Where one command tells what happens."""

    lines: Lines
    pace: Pace


def _forget(_state: Any) -> None:  # noqa: ANN401 - the tool's own JSON
    """Nothing is kept."""


class Tasks:
    """Runs the tasks of one command."""

    def __init__(self, bench: Bench, command: Command, sinks: Sinks, claimed_at: float) -> None:
        self.resolved: dict[str, Any] = {}
        """Values by reference that templates of this command touched."""
        self.trace: Mapping[str, Any] | None = command.trace
        """Where in its trace the command is."""
        self.afterwards: dict[str, list[Callable[[], Awaitable[None]]]] = {}
        """What follows the report, by the visit of a task that asked for it."""
        self._bench = bench
        self._awaited: Outcome | None = None
        self._claimed_at = claimed_at
        self._command = command
        self._sinks = sinks
        self.secrets = None if bench.secrets is None else bench.secrets(command)

    async def whole(self, paths: tuple[tuple[str, ...], ...]) -> Command:
        """The command with the secret inputs that its templates name in the places of the masks."""
        bound = self._command.context.bindings
        workload = bound.get("workload")
        is_asked_for = bool(self._command.meta.get("callback"))
        if is_asked_for and CALLBACK not in paths:
            paths = (*paths, CALLBACK)
        if not paths or not workload or self.secrets is None:
            return self._command
        # Whoever asked for the run may have named more secrets than its playbook declares.
        if not is_masked(workload, paths) and not (is_asked_for and has_mask(workload)):
            return self._command
        filled = with_secrets(workload, await self.secrets.inputs())
        if is_masked(filled, paths):
            lost = ", ".join(f"`{'.'.join(path)}`" for path in paths if at(filled, path) == MASK)
            raise ToolError("auth", "secret_missing", f"nobody keeps the secret input {lost}")
        context = msgspec.structs.replace(
            self._command.context, bindings={**bound, "workload": filled}
        )
        self._command = msgspec.structs.replace(self._command, context=context)
        return self._command

    async def touched(self, make: Callable[[], T]) -> T:
        """What `make` makes; a value that it reads and that lies elsewhere is fetched before."""
        while True:
            try:
                return make()
            except NeedsObject as need:
                reference = need.reference
            await self.fetch(reference)

    async def following(self, pipeline: Pipeline) -> RunTask | Park | Done | Failed:
        """What the pipeline does next, with the secrets that it names there."""
        names, secrets = pipeline.needs_keychain(), self.secrets
        if secrets is None:
            return await self.touched(pipeline.next)
        known = await secrets.keychain(names) if names else _NO_SECRETS
        move = await self.touched(lambda: pipeline.next(known))
        if isinstance(move, RunTask):
            await secrets.ahead(_aliases(move.config))
        return move

    async def fetch(self, reference: Reference) -> None:
        """Make a value readable by the templates of this command."""
        self.resolved[reference.ref] = await self._bench.objects.get(reference)

    def has_effects(self, kind: str) -> bool:
        """Whether repeating a task of this kind could be seen outside."""
        tool = self._bench.tools.get(kind)
        return tool is None or tool.traits.side_effects

    async def settled(
        self, move: RunTask, keep: Callable[[Any], None], awaited: Outcome
    ) -> Outcome | Parked:
        """What a task waited for as its outcome, or what its tool makes of that."""
        tool = self._bench.tools.get(move.task.kind)
        if tool is None or not tool.traits.settles:
            return awaited
        self._awaited = awaited
        try:
            return await self.run(move, keep)
        finally:
            self._awaited = None

    async def run(self, move: RunTask, keep: Callable[[Any], None] = _forget) -> Outcome | Parked:
        """Run the task's tool within its limits; `keep` takes where it is, for its next try."""
        if (tracer := self._bench.tracer) is None:
            return await self._run(move, keep, self.trace)
        about: dict[str, Any] = {"task": move.task.name, "attempt": self._command.attempt}
        span = tracer.begin(f"tool.dispatch.{move.task.kind}", self.trace, about)
        error = "cancelled"
        try:
            outcome = await self._run(move, keep, tracer.below(self.trace, span))
            fault = None if isinstance(outcome, Parked) else outcome.error
            error = "" if fault is None else str(fault.get("code") or "error")
        finally:
            tracer.end(span, error)
        return outcome

    async def _run(
        self, move: RunTask, keep: Callable[[Any], None], trace: Mapping[str, Any] | None
    ) -> Outcome | Parked:
        loop = asyncio.get_running_loop()
        kind = move.task.kind
        began = loop.time()
        try:
            ctx = self._context(move, self._deadline(move, began))
            ctx.on_keep, ctx.trace, ctx.awaited = keep, trace, self._awaited
            ctx.on_afterwards = partial(self._after, move.idempotency_key)
            self.afterwards.pop(move.idempotency_key, None)  # this try takes the place of the last
            outcome = await run_tool(self._tool(kind), {"kind": kind, **move.config}, ctx)
            if isinstance(outcome, Parked):
                return outcome
            data = plain(outcome.data, lambda: _tell_nan(ctx))
        except ToolError as fault:
            outcome = failed(fault)
            data = None
        took = round((loop.time() - began) * 1000, 3)
        return replace(outcome, data=data, meta={**(outcome.meta or {}), "duration_ms": took})

    def _after(self, visit: str, work: Callable[[], Awaitable[None]]) -> None:
        self.afterwards.setdefault(visit, []).append(work)

    def _tool(self, kind: str) -> Tool:
        tool = self._bench.tools.get(kind)
        if tool is None:
            message = f"this worker has no tool of kind `{kind}`"
            raise ToolError("config", "unknown_kind", message)
        return tool

    def _deadline(self, move: RunTask, now: float) -> float | None:
        """When the task must have ended, in the time of the loop."""
        given, ceiling = move.timeout_s, self._bench.ceiling_s
        if move.task.kind in _PARKING:
            given = None  # it bounds the wait, which needs no worker
        if given is not None and given > ceiling:
            message = f"/timeout: {given:g} s is over the limit of this worker, {ceiling:g} s"
            raise ToolError("config", "invalid_config", message)
        usual = about(move.task.kind).timeout_s
        if usual == DEFAULT_TIMEOUT_S:
            usual = self._bench.default_s
        limit = usual if given is None else given
        ends = None if limit is None else now + limit
        if self._command.deadline is None:
            return ends
        last = max(now, self._ends_at(self._command.deadline))
        return last if ends is None else min(ends, last)

    def _ends_at(self, moment: str) -> float:
        """A time of the server in that of the loop.

        The lease tells when the server gave the command away; the clock of this machine may be
        wrong.
        """
        command = self._command
        left = datetime.fromisoformat(moment) - datetime.fromisoformat(command.lease_until)
        return self._claimed_at + command.lease_seconds + left.total_seconds()

    def _context(self, move: RunTask, deadline: float | None) -> ToolContext:
        command, task, lines = self._command, move.task.name, self._sinks.lines
        is_code = move.task.kind == "python"
        known = _known(move.scope, command) if is_code else move.scope
        scripts = self._bench.scripts
        ctx = ToolContext(
            execution_id=command.execution_id,
            step=command.node_name,
            command_id=command.command_id,
            idempotency_key=move.idempotency_key,
            task=task,
            attempt=command.attempt,
            try_number=move.try_number,
            deadline=deadline,
            timeout_s=move.timeout_s,
            resume=move.resume,
            domain=f"{command.meta.get('tenant', '')}/{command.path}",
            input=move.input,
            scope=known,
            names=_lazy_names(command) if is_code else (),
            redactor=self._bench.redactor,
            client=self._bench.client,
            worker_id=self._bench.worker_id,
            ids=self._bench.ids,
            blobs=self._bench.blobs,
            stores=self._bench.stores,
            load=self.fetch,
            secrets=None if self.secrets is None else self.secrets.credential,
            callback=self._callback(),
            name_secret=self._name_secret,
            pool=self._bench.pool,
            fetch=lambda name: self._fetch(move.scope, name),
            on_log=lambda stream, level, text: lines.write(task, stream, level, text),
            on_progress=self._sinks.pace.tell,
        )
        if scripts is not None:
            ctx.load_script = lambda script: scripts.load(script, ctx)
        return ctx

    def _callback(self) -> Callback | None:
        """What the client of the run is told with, if one waits."""
        url, secrets = self._command.meta.get("callback"), self.secrets
        if not url or secrets is None:
            return None

        async def token() -> str | None:
            found = (await secrets.inputs()).get(named(CALLBACK))
            return found if isinstance(found, str) else None

        return Callback(url=url, token=token)

    def keeping_context(self) -> ToolContext:
        """What is needed to put a result into a bucket of the author's own."""
        command = self._command
        return ToolContext(
            execution_id=command.execution_id,
            step=command.node_name,
            command_id=command.command_id,
            idempotency_key=command.idempotency_key,
            redactor=self._bench.redactor,
            stores=self._bench.stores,
            secrets=None if self.secrets is None else self.secrets.credential,
            pool=self._bench.pool,
        )

    async def _name_secret(self, name: str, entry: Mapping[str, Any]) -> None:
        """Give a secret a name in the keychain of the run; the server reads it when it is used."""
        command = self._command
        body = KeychainPut(
            data={},
            scope_type="local",
            execution_id=command.execution_id,
            credential_type=str(entry["kind"]),
            expires_in=NAMED_S,
            renew_config=dict(entry),
        )
        await self._bench.client.put_keychain(command.catalog_id, name, body)

    async def _fetch(self, scope: Mapping[str, Any], name: str) -> tuple[bool, Any]:
        """A name of python's `context`: what was bound, else a finished step of the run."""
        if name in _EAGER:
            return True, await self.touched(lambda: plain(scope[_EAGER[name]], _ignore))
        steps = self._command.context.bindings.get("steps") or {}
        if name in steps or f"steps.{name}" in self._command.context.refs:
            return True, await self.touched(lambda: plain(scope["steps"][name], _ignore))
        try:
            found = await self._bench.client.step_result(self._command.execution_id, name)
        except Refused as fault:
            if fault.problem.status == _NOT_FOUND:
                return False, None
            raise
        return True, found


_EAGER: Final = {"workload": "workload", "variables": "ctx"}


def _aliases(config: Mapping[str, Any]) -> Iterator[str]:
    """The credentials that a rendered task names."""
    auth = config.get("auth")
    if isinstance(auth, str):
        yield auth
    elif isinstance(auth, dict) and isinstance(auth.get("credential"), str):
        yield auth["credential"]


def _known(scope: Mapping[str, Any], command: Command) -> dict[str, Any]:
    """What of python's `context` is sent along: it is small and lies here."""
    apart = _apart(command)
    return {name: scope[of] for name, of in _EAGER.items() if of not in apart}


def _lazy_names(command: Command) -> tuple[str, ...]:
    """What of python's `context` is known to exist and is fetched when it is read."""
    steps = command.context.bindings.get("steps") or {}
    apart = _apart(command)
    return (
        *(name for name, of in _EAGER.items() if of in apart),
        *(name for name, value in steps.items() if value is not None),
    )


def _apart(command: Command) -> frozenset[str]:
    return frozenset(path.partition(".")[0] for path in command.context.refs)


def _ignore() -> None:
    """A bound value is JSON already."""


def _tell_nan(ctx: ToolContext) -> None:
    ctx.log("NaN or infinity in the result became null", level="warning")
