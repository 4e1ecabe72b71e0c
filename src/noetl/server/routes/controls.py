"""Steering runs, and starting them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.executions import Control, Controlled, Finalize, Fork, Rerun, Started
from noetl.edge.declared import Declared
from noetl.edge.reading import json, read
from noetl.server.access.entry import caller_of
from noetl.server.access.keys import key_of
from noetl.server.access.owning import owned
from noetl.server.auditing.audit import audited
from noetl.server.routes.exchange import route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_CONTROL: Final = "execution:control"
_RUN: Final = "execution:run"


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    run = "/api/executions/{execution_id}"
    cancel = _declared("Ends a run at once.", "cancel", "already_terminal")
    pause = _declared("Lets a run issue nothing new.", "pause", "not_running")
    resume = _declared("Lets a paused run go on.", "resume", "not_paused")
    finalize = Declared(
        about="Ends a run with a status of the caller's choice.",
        body=Finalize,
        answer=Controlled,
        audit="execution.finalize",
        codes=("already_terminal", "bad_status"),
    )
    rerun = Declared(
        about="Starts a new run of the same playbook.",
        body=Rerun,
        answer=Started,
        audit="execution.rerun",
        codes=(
            "unknown_path", "invalid_input", "pool_invalid", "quota_exceeded", "rate_limited",
            "reserved_pool", "reserved_namespace", "dedup_conflict", "no_entry_step",
            "field_not_allowed",
        ),
    )  # fmt: skip
    fork = Declared(
        about="Starts a new run from a point of this one.",
        body=Fork,
        answer=Started,
        audit="execution.fork",
        codes=(
            "bad_position", "version_conflict", "unknown_path", "pool_invalid", "reserved_pool",
            "quota_exceeded", "rate_limited", "dedup_conflict",
        ),
    )  # fmt: skip
    return [
        route(plane, "POST", f"{run}/cancel", _cancel, _CONTROL, cancel),
        route(plane, "POST", f"{run}/pause", _pause, _CONTROL, pause),
        route(plane, "POST", f"{run}/resume", _resume, _CONTROL, resume),
        route(plane, "POST", f"{run}/finalize", _finalize, _CONTROL, finalize),
        route(plane, "POST", f"{run}/rerun", _rerun, _RUN, rerun),
        route(plane, "POST", f"{run}/fork", _fork, _RUN, fork),
    ]


def _declared(about: str, verb: str, code: str) -> Declared:
    return Declared(
        about=about, body=Control, answer=Controlled, audit=f"execution.{verb}", codes=(code,)
    )


async def _cancel(plane: Plane, request: Request) -> Response:
    execution_id, body = await _asked(plane, request)
    return json(await plane.controls.cancel(execution_id, body, by(request), key=key_of(request)))


async def _pause(plane: Plane, request: Request) -> Response:
    execution_id, body = await _asked(plane, request)
    return json(await plane.controls.pause(execution_id, body, by(request), key=key_of(request)))


async def _resume(plane: Plane, request: Request) -> Response:
    execution_id, body = await _asked(plane, request)
    return json(await plane.controls.resume(execution_id, body, by(request), key=key_of(request)))


async def _asked(plane: Plane, request: Request) -> tuple[str, Control]:
    execution_id = await owned(plane, request, _CONTROL)
    body = await read(request, Control)
    audited(request, execution_id, reason=body.reason or None)
    return execution_id, body


async def _finalize(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, _CONTROL)
    body = await read(request, Finalize)
    audited(request, execution_id, status=body.status, reason=body.reason or None, forced=True)
    return json(await plane.controls.finalize(execution_id, body, by(request), key=key_of(request)))


def by(request: Request) -> str:
    """Who steers a run, as its log keeps it."""
    account = caller_of(request).account
    return "user" if account == "local" else account


async def _rerun(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, _RUN)
    body = await read(request, Rerun)
    caller = caller_of(request)
    plane.quotas.pace(caller)
    started = await plane.repeats.rerun(execution_id, body, caller, key=key_of(request))
    audited(request, execution_id, started=started.execution_id)
    return json(started)


async def _fork(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, _RUN)
    body = await read(request, Fork)
    caller = caller_of(request)
    plane.quotas.pace(caller)
    started = await plane.repeats.fork(execution_id, body, caller, key=key_of(request))
    audited(request, execution_id, started=started.execution_id)
    return json(started)
