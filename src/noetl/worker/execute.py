"""One command from its claim to its report: drive the step's pipeline, run its tasks."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace
from functools import partial
from traceback import format_exception
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.api.commands import Held as HeldCommand
from noetl.api.commands import Release
from noetl.dsl.views import Outcome, Reference
from noetl.engine.events import Error
from noetl.engine.pipeline import Done, Failed, Park, Pipeline, RunTask
from noetl.telemetry.failpoint import armed, failpoint
from noetl.telemetry.traces.context import trace_id_of
from noetl.telemetry.traces.span import CONSUMER
from noetl.telemetry.traces.tracer import code_of
from noetl.tools.base import Parked, ToolError, classify
from noetl.worker.keeping import keeping_of, output_of, rendered_keeping
from noetl.worker.logs import SHOWN_BYTES, Pace
from noetl.worker.meters import Meters
from noetl.worker.patience import is_passing
from noetl.worker.results import APART, encoded, selected
from noetl.worker.stepper import Stepper
from noetl.worker.tasks import Sinks, Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from noetl.api.commands import Command
    from noetl.telemetry.traces.tracer import Tracer
    from noetl.tools.base import ToolContext
    from noetl.worker.held import Held, Run
    from noetl.worker.keeping import Keeping
    from noetl.worker.logs import Logs
    from noetl.worker.playbooks import Playbooks
    from noetl.worker.report import Reporter
    from noetl.worker.results import Results
    from noetl.worker.tasks import Bench

_log = logging.getLogger("noetl.worker")


class NotOurs(Exception):
    """The command is another worker's by now: nothing of it is reported."""


@dataclass(frozen=True, slots=True)
class End:
    """What is reported of a command; its values are JSON text already."""

    event_type: str
    payload: dict[str, Any]
    size_bytes: int
    error_kind: str | None = None
    reason: str = ""
    """Why it is parked."""
    afterwards: tuple[Callable[[], Awaitable[None]], ...] = ()
    """What is done when it was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What commands are executed with."""

    bench: Bench
    playbooks: Playbooks
    results: Results
    reporter: Reporter
    logs: Logs
    worker_id: str
    may_start: asyncio.Event
    """Cleared while the leases are in doubt: then no further task is started."""
    meters: Meters = field(default_factory=Meters)


class Executor:
    """Runs commands; it raises nothing but its own cancellation."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def run(self, run: Run, held: Held) -> None:
        """Execute one command and report it."""
        desk, command = self._desk, run.command
        loop = asyncio.get_running_loop()
        began = loop.time()
        lines = desk.logs.of(command)
        pace = Pace(lambda told: _progress(desk.reporter, command, told))
        sinks = Sinks(lines=lines, pace=pace)
        try:
            if desk.bench.tracer is None:
                end = await self._end(run, sinks, command.trace)
            else:
                end = await self._traced(run, sinks, desk.bench.tracer)
            if run.is_stopped:  # the tool swallowed its end
                raise NotOurs  # noqa: TRY301 - the same end as below
        except (asyncio.CancelledError, NotOurs) as reason:
            desk.reporter.forget(command)
            lines.close()
            if isinstance(reason, NotOurs):
                return
            raise
        except Exception as fault:  # noqa: BLE001 - the border: any fault is what came of the command
            if is_passing(fault) and not run.is_started:
                await self._give_back(command, fault)
                return
            end = self._broken(fault, command)
        finally:
            pace.stop()
        if (told := lines.close()) is not None:
            end.payload["logs"] = told
        held.reported(run)
        took_s = loop.time() - began
        took = round(took_s * 1000, 3)
        self._measure(end, command, took_s)
        report = desk.reporter.made(command, end.event_type, end.payload, took)
        size = end.size_bytes if told is None else end.size_bytes + SHOWN_BYTES
        desk.reporter.end(report, size, end.afterwards)

    def _measure(self, end: End, command: Command, took_s: float) -> None:
        meters = self._desk.meters
        meters.ended(command.action, took_s, end.error_kind)
        if end.event_type == "command.parked":
            meters.parked(end.reason)

    # ------------------------------------------------------------------ the pipeline

    async def _traced(self, run: Run, sinks: Sinks, tracer: Tracer) -> End:
        """The same, as a span of the run's trace."""
        command, error = run.command, "cancelled"
        about = {**_ids(command), "tool_kind": command.action, "attempt": command.attempt}
        span = tracer.begin("command.execute", command.trace, about, CONSUMER)
        try:
            end = await self._end(run, sinks, tracer.below(command.trace, span))
            error = end.error_kind or ""
        except Exception as fault:
            error = code_of(fault)
            raise
        finally:
            tracer.end(span, error)
        return end

    async def _end(self, run: Run, sinks: Sinks, trace: Mapping[str, Any] | None) -> End:
        """What came of the step's pipeline."""
        desk, command = self._desk, run.command
        known = desk.playbooks.kept(command.catalog_id)
        if known is None:
            known = await desk.playbooks.get(command.catalog_id)
        name = command.node_name
        step = known.claim(name) if command.is_claim else known.step(name)
        tasks = Tasks(desk.bench, command, sinks, run.claimed_at)
        tasks.trace = trace
        try:
            command = await tasks.whole(known.secret)
            stepper = Stepper(step, command, known.defaults, tasks, desk.bench.most_runs)
            stepper.output = output_of(step, known.results)
            pipeline = stepper.begin(await self._checkpoint(command))
            end = await self._driven(run, pipeline, stepper, tasks)
        finally:
            if tasks.secrets is not None:  # an error that goes out now is still told without them
                asyncio.get_running_loop().call_soon(tasks.secrets.close)
        works = [work for visit in tasks.afterwards.values() for work in visit]
        is_well = end.event_type != "call.error"
        return replace(end, afterwards=tuple(works)) if works and is_well else end

    async def _driven(self, run: Run, pipeline: Pipeline, stepper: Stepper, tasks: Tasks) -> End:
        """Run task after task."""
        command, step = stepper.command, stepper.step
        awaited, visit = await self._awaited(command), ""
        while True:
            move = await tasks.following(pipeline)
            match move:
                case RunTask():
                    visit = move.idempotency_key
                    if awaited is not None:
                        outcome = await tasks.settled(move, pipeline.keep, awaited)
                        awaited = None
                    else:
                        outcome = await self._outcome(run, move, tasks, pipeline)
                    if isinstance(outcome, Parked):
                        return await self._parked(outcome, move, pipeline, command)
                    pipeline = await stepper.settle(pipeline, outcome)
                    if len(step.tools) > 1 and tasks.has_effects(move.task.kind):
                        run.checkpoint = self._clean_checkpoint(pipeline)
                        run.is_saved = False
                case Park():
                    tasks.afterwards.pop(visit, None)  # what came of this try is not kept
                    return await self._retried(move, command)
                case Done():
                    keeping = await rendered_keeping(stepper.output, pipeline, tasks.touched)
                    return await self._done(move, stepper, keeping, tasks)
                case Failed():
                    return await self._failed(move, stepper)

    async def _outcome(
        self, run: Run, move: RunTask, tasks: Tasks, pipeline: Pipeline
    ) -> Outcome | Parked:
        """Run a task; the first one is announced."""
        desk, command = self._desk, run.command
        await desk.may_start.wait()
        if not run.is_started:
            if command.idempotent:
                desk.reporter.begin(command)
            else:
                receipt = await desk.reporter.begin_stored(command)
                if receipt == "late":
                    raise NotOurs
                if receipt == "rejected":
                    message = "the start of the tool could not be recorded"
                    raise ToolError("internal", "report_rejected", message)
            run.is_started = True
            desk.meters.started(asyncio.get_running_loop().time() - run.claimed_at)
        if armed:
            await failpoint("worker.tool.start")
        outcome = await tasks.run(move, partial(self._keep, run, pipeline))
        if armed:
            await failpoint("worker.tool.end")
        return outcome

    def _keep(self, run: Run, pipeline: Pipeline, state: object) -> None:
        """Keep where the running task is; the next beat tells the server, should we be lost."""
        pipeline.keep(state)
        run.checkpoint = self._clean_checkpoint(pipeline)
        run.is_saved = False

    async def _checkpoint(self, command: Command) -> Mapping[str, Any] | None:
        checkpoint = command.context.checkpoint
        if checkpoint is None or APART not in checkpoint:
            return checkpoint
        found: Mapping[str, Any] = await self._fetched(checkpoint[APART])
        return found

    async def _awaited(self, command: Command) -> Outcome | None:
        """What the task that waited is told to have returned."""
        told = command.context.awaited
        if told is None:
            return None
        apart = told.get("reference")
        data = told.get("data") if apart is None else await self._fetched(apart)
        return Outcome(status=told.get("status", "ok"), data=data, error=told.get("error"))

    async def _fetched(self, reference: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON
        return await self._desk.bench.objects.get(msgspec.convert(reference, Reference))

    def _clean_checkpoint(self, pipeline: Pipeline) -> Any:  # noqa: ANN401 - see Run.checkpoint
        redactor = self._desk.bench.redactor
        return lambda: redactor.redact_value(pipeline.checkpoint())

    # ------------------------------------------------------------------ its ends

    async def _done(self, done: Done, stepper: Stepper, keeping: Keeping, tasks: Tasks) -> End:
        told = {
            "ctx": done.ctx,
            "iter": done.iter,
            "of_step": {**selected(stepper.step, stepper.output, done.result), **done.of_step},
            "ends_loop": done.ends_loop,
            "tasks": done.tasks,
        }
        kept = (done.result, keeping)
        context = tasks.keeping_context
        return await self._with_result("call.done", told, kept, stepper.command, context)

    async def _failed(self, failed: Failed, stepper: Stepper) -> End:
        """What there is of a failed step lies where any result does."""
        told = {"error": msgspec.to_builtins(failed.error), "tasks": failed.tasks}
        kept = (failed.result, keeping_of(stepper.output, {}))
        end = await self._with_result("call.error", told, kept, stepper.command)
        return replace(end, error_kind=failed.error.kind)

    async def _with_result(
        self,
        event_type: str,
        told: dict[str, Any],
        result: tuple[Any, Keeping],
        command: Command,
        context: Callable[[], ToolContext] | None = None,
    ) -> End:
        payload, size = self._sealed(told)
        value, keeping = result
        kept, own = await self._desk.results.kept(value, command, keeping, context)
        return End(event_type, {**payload, **kept}, size + own)

    async def _retried(self, park: Park, command: Command) -> End:
        fields: dict[str, Any] = {
            "reason": "retry", "delay_ms": park.delay_ms, "task": park.task,
        }  # fmt: skip
        if park.error is not None:
            fields["error"] = msgspec.to_builtins(park.error)
        return await self._park(fields, park.checkpoint, command)

    async def _parked(
        self, parked: Parked, move: RunTask, pipeline: Pipeline, command: Command
    ) -> End:
        request = dict(parked.request)
        fields = {"reason": parked.reason, "task": move.task.name, "request": request}
        if "wait_ms" in request:
            fields["delay_ms"] = request["wait_ms"]
        return await self._park(fields, pipeline.checkpoint(), command)

    async def _park(
        self, fields: Mapping[str, Any], checkpoint: dict[str, Any], command: Command
    ) -> End:
        clean = self._desk.bench.redactor.redact_value(checkpoint)
        kept, own = await self._desk.results.checkpoint(clean, command)
        payload, size = self._sealed(fields)
        end = End("command.parked", {**payload, "checkpoint": kept}, size + own)
        return replace(end, reason=str(fields["reason"]))

    def _broken(self, fault: Exception, command: Command) -> End:
        """The end of a command that something besides its tools failed."""
        told = classify(fault)
        if told["kind"] == "internal":
            trace = self._desk.bench.redactor.redact("".join(format_exception(fault)))
            _log.error("a command failed in the worker", extra={**_told(command), "stack": trace})
        error = Error(
            kind=told["kind"],
            code=told["code"],
            message=told["message"].encode("utf-8", "replace").decode(),
            retryable=told["retryable"],
            step=command.node_name,
            index=command.iteration,
        )
        end = End("call.error", *self._sealed({"error": msgspec.to_builtins(error)}))
        return replace(end, error_kind=error.kind)

    def _sealed(self, fields: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """The fields that say something, redacted and encoded, and their size."""
        clean = self._desk.bench.redactor.redact_value({k: v for k, v in fields.items() if v})
        raw = {name: msgspec.Raw(encoded(value)) for name, value in clean.items()}
        return dict(raw), sum(map(len, raw.values()))

    async def _give_back(self, command: Command, fault: Exception) -> None:
        """What the tool needs cannot be had here now; another worker may be luckier."""
        told = _told(command)
        _log.warning("a command is given back", extra={**told, "reason": str(fault)})
        own = HeldCommand(command_id=command.command_id, attempt=command.attempt, is_started=False)
        body = Release(worker_id=self._desk.worker_id, commands=(own,), reason="unavailable")
        try:
            await self._desk.bench.client.release(body)
        except Exception as second:  # noqa: BLE001 - the border: the lease runs out and brings it back
            more = {**told, "reason": str(second)}
            _log.warning("a command could not be given back", extra=more)


def _ids(command: Command) -> dict[str, Any]:
    """Which command it is, for spans and lines of the log."""
    return {
        "execution_id": command.execution_id,
        "command_id": command.command_id,
        "step": command.node_name,
    }


def _told(command: Command) -> dict[str, Any]:
    """Which command a line of the log is about, and which trace."""
    trace_id = trace_id_of(command.trace)
    more = {} if trace_id is None else {"trace_id": trace_id}
    return {**_ids(command), "attempt": command.attempt, **more}


def _progress(reporter: Reporter, command: Command, told: dict[str, Any]) -> None:
    reporter.tell(reporter.made(command, "step.progress", told))
