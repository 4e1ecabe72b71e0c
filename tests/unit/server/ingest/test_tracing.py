"""The spans of a server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from noetl.api.catalog import Register
from noetl.api.executions import Execute
from noetl.api.http import AsgiTransport
from noetl.api.internal import Project
from noetl.api.problems import Refused
from noetl.clock import LoopClock
from noetl.telemetry.traces.tracer import Tracer
from tests.unit.server.fleet.test_containers import begun, park
from tests.unit.server.operations.test_imports import log_of
from tests.unit.server.rig import HEAD, ONE_STEP, PYTHON, START, TWO_STEPS, rig, virtually

if TYPE_CHECKING:
    from noetl.telemetry.traces.span import Span

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
WAITS = f"""
workflow:
  - step: start
    tool: {{kind: wait, seconds: 5}}
    next: {{arcs: [{{step: end}}]}}
  - step: end
    tool: {PYTHON}
"""


class Seen(list):
    """The spans that were told."""

    def named(self, name: str) -> list[Span]:
        return [span for span in self if span.name == name]

    def one(self, name: str) -> Span:
        (span,) = self.named(name)
        return span


@asynccontextmanager
async def traced(**more):
    spans = Seen()
    clock = LoopClock(asyncio.get_running_loop(), START)
    async with rig(clock=clock, tracer=Tracer(clock, spans.append), **more) as r:
        yield r, spans


async def ask(r, method: str, path: str, body: bytes = b"", **headers: str):
    return await AsgiTransport(r.server.asgi).request(method, path, body, headers)


@virtually
async def test_a_run_is_below_its_start_and_its_start_below_the_caller() -> None:
    async with traced() as (r, spans):
        run = await r.start(TWO_STEPS, trace={"traceparent": PARENT, "baggage": "a=b"})
        start = spans.one("execute")
        assert start.parent_id == "b7ad6b7169203331"
        assert start.attributes == {
            "trigger": "api", "execution_id": run, "path": "demo/it", "version": 1,
            "outcome": "started",
        }  # fmt: skip
        (command,) = await r.claim()
        below = {"traceparent": start.context.traceparent, "baggage": "a=b"}
        assert command.trace == below
        assert (await r.client.execution(run)).trace == below
        claim = spans.one("command.claim")
        assert claim.parent_id == start.context.span_id
        assert claim.attributes["worker_id"] == "w"
        await r.done(command)
        ingests = spans.named("event.ingest")
        assert [span.parent_id for span in ingests] == [start.context.span_id] * 2
        assert ingests[1].attributes["first_seq"] == ingests[0].attributes["last_seq"] + 2
        assert {span.parent_id for span in spans.named("engine.decide")} == {
            span.context.span_id for span in ingests
        }
        assert {span.context.trace_id for span in spans} == {PARENT[3:35]}


@virtually
async def test_a_refused_start_is_a_span_with_the_code() -> None:
    async with traced() as (r, spans):
        inputs = "inputs: {n: {type: integer, required: true}}\n"
        await r.client.register(Register(content=HEAD + inputs + ONE_STEP.lstrip()))
        with pytest.raises(Refused):
            await r.client.execute(Execute(path="demo/it", payload={"n": "canary"}))
        assert spans.one("execute").error == "invalid_input"
        assert "canary" not in repr(list(spans))


@virtually
async def test_a_batch_is_the_parent_of_its_starts_when_its_caller_has_a_trace() -> None:
    async with traced() as (r, spans):
        await r.client.register(Register(content=HEAD + ONE_STEP))
        body = b'{"executions": [{"path": "demo/it"}, {"path": "demo/it"}]}'
        await ask(r, "POST", "/api/execute/batch", body, traceparent=PARENT)
        batch = spans.one("execute.batch")
        assert batch.attributes == {"executions": 2}
        assert {span.parent_id for span in spans.named("execute")} == {batch.context.span_id}
        spans.clear()
        await ask(r, "POST", "/api/execute/batch", body)
        assert {span.parent_id for span in spans.named("execute")} == {""}


@virtually
async def test_a_schedule_is_the_root_of_its_runs() -> None:
    async with traced() as (r, spans):
        trigger = "triggers:\n  - {name: often, interval: 10s, overlap: allow}\n"
        await r.client.register(Register(content=HEAD + trigger + ONE_STEP.lstrip()))
        await asyncio.sleep(11)
        fire, start = spans.one("schedule.fire"), spans.one("execute")
        assert fire.parent_id == ""
        assert start.parent_id == fire.context.span_id
        assert start.attributes["trigger"] == "schedule"


@virtually
async def test_timers_and_lost_leases_are_spans_of_their_run() -> None:
    async with traced(lease_s=5.0) as (r, spans):
        await r.start(WAITS)
        await asyncio.sleep(6)
        run = spans.one("execute").context.span_id
        assert spans.one("timer.fire").parent_id == run
        (command,) = await r.claim()
        await asyncio.sleep(20)
        lost = spans.named("command.lease_lost")[0]
        assert lost.parent_id == run
        assert lost.attributes["step"] == command.node_name


@virtually
async def test_values_that_lie_apart_are_spans_of_their_run() -> None:
    async with traced(inline_bytes=1024) as (r, spans):
        run = await r.start(TWO_STEPS)
        (command,) = await r.claim()
        await r.done(command, "x" * 5_000)
        put = spans.named("result_store.put")[0]
        assert put.parent_id == spans.one("execute").context.span_id
        assert put.attributes["execution_id"] == run
        assert put.attributes["bytes"] > 5_000


@virtually
async def test_who_reads_a_run_is_in_his_own_trace_or_in_the_runs() -> None:
    async with traced() as (r, spans):
        run = await r.start(ONE_STEP)
        (command,) = await r.claim()
        path = f"/api/executions/{run}/events/stream"
        reading = [
            asyncio.create_task(ask(r, "GET", path)),
            asyncio.create_task(ask(r, "GET", path, traceparent=PARENT)),
        ]
        await asyncio.sleep(1)
        await r.done(command)
        await asyncio.gather(*reading)
        parents = {span.parent_id for span in spans.named("stream.open")}
        assert parents == {spans.one("execute").context.span_id, "b7ad6b7169203331"}


@virtually
async def test_imports_and_ends_of_containers_are_spans() -> None:
    rows = await log_of(TWO_STEPS)
    async with traced() as (r, spans):
        await r.client.project(Project(events=tuple(rows)))
        assert spans.one("events.project").attributes == {"events": len(rows)}
        run, work = await begun(r)
        await park(r, work)
        body = b'{"state": "succeeded", "job_name": "job-1", "job_uid": "u-1"}'
        answer = await ask(r, "POST", f"/api/internal/container-callback/{run}/job", body)
        assert answer.status == 202, answer.body
        told = spans.one("container.callback")
        assert told.parent_id == spans.one("execute").context.span_id
        assert told.attributes == {
            "execution_id": run, "step": "job", "state": "succeeded",
            "outcome": "accepted_in_flight",
        }  # fmt: skip


@virtually
async def test_a_run_that_began_without_a_tracer_has_no_spans() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        kept = r.store
        assert r.plane.spans is None
    async with traced(store=kept) as (r, spans):
        (command,) = await r.claim()
        assert command.trace is None
        await r.done(command)
        assert spans == []
