"""Starting runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.executions import Execute, Executes, Rehearsed, Started, StartedBatch
from noetl.edge.declared import Declared
from noetl.edge.reading import json, read
from noetl.server.access.entry import caller_of
from noetl.server.routes.exchange import MOST_BATCH_BYTES, route
from noetl.telemetry.traces.context import of_headers as trace_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_RUN: Final = "execution:run"
_EXECUTE: Final = Declared(
    about="Starts a run of a playbook.",
    body=Execute,
    answer=(Started, Rehearsed),
    codes=(
        "unknown_path", "invalid_input", "no_entry_step", "dedup_conflict", "quota_exceeded",
        "rate_limited", "reserved_namespace", "reserved_pool", "field_not_allowed",
        "concurrency_limit", "already_terminal", "not_executable", "requirement_missing",
        "pool_invalid", "unknown_execution", "child_depth",
    ),
)  # fmt: skip
_EXECUTES: Final = Declared(
    about="Starts many runs; each is started or refused on its own.",
    body=Executes,
    answer=StartedBatch,
    codes=("batch_size_invalid", "rate_limited"),
)


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    return [
        route(plane, "POST", "/api/execute", _execute, _RUN, _EXECUTE),
        route(plane, "POST", "/api/run/playbook", _execute, _RUN, _EXECUTE),
        route(plane, "POST", "/api/execute/batch", _batch, _RUN, _EXECUTES),
    ]


async def _execute(plane: Plane, request: Request) -> Response:
    body = await read(request, Execute)
    caller = caller_of(request)
    if body.dry_run:
        return json(await plane.starts.rehearse(body, caller))
    headers = request.headers
    try:
        started = await plane.starts.execute(
            body, caller, key=headers.get("idempotency-key"), trace=trace_of(headers)
        )
    except Exception:
        plane.metrics.execute_outcomes.inc("api", "error")
        raise
    plane.metrics.execute_outcomes.inc("api", started.status)
    return json(started)


async def _batch(plane: Plane, request: Request) -> Response:
    body = await read(request, Executes, MOST_BATCH_BYTES)
    trace = trace_of(request.headers)
    started = await plane.batches.execute(body.executions, caller_of(request), trace)
    plane.metrics.batch(started.started, started.duplicates, started.failed)
    return json(started)
