"""Steering many runs at once, and single steps of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.reading import Bulk, Bulked, Retried, Retry
from noetl.edge.declared import Declared
from noetl.edge.errors import Unacceptable
from noetl.edge.moments import moment_of
from noetl.edge.reading import json, read
from noetl.ids import parse
from noetl.server.access.entry import caller_of
from noetl.server.access.keys import key_of
from noetl.server.access.owning import owned
from noetl.server.auditing.audit import audited
from noetl.server.ingest.wanted import version_of
from noetl.server.reading.bulk import MOST
from noetl.server.routes.controls import by
from noetl.server.routes.exchange import route
from noetl.server.routes.executions import label_of, status_of
from noetl.store.base import Listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.api.reading import BulkFilter
    from noetl.server.access.caller import Caller
    from noetl.server.plane import Plane

_CONTROL: Final = "execution:control"
_READ: Final = "execution:read"


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    bulk = Declared(
        about=f"Cancels, pauses, resumes or repeats up to {MOST} runs, each on its own.",
        body=Bulk,
        answer=Bulked,
        audit="execution.bulk",
        codes=("bad_status", "bad_time"),
    )
    retry = Declared(
        about="Lets a failed step be visited again while other branches of its run go on.",
        body=Retry,
        answer=Retried,
        audit="execution.retry",
        codes=("not_retryable",),
    )
    step = "/api/executions/{execution_id}/steps/{step}/retry"
    return [
        route(plane, "POST", "/api/executions/bulk", _bulk, _CONTROL, bulk),
        route(plane, "POST", step, _retry, _CONTROL, retry),
    ]


async def _retry(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, _CONTROL)
    body = await read(request, Retry)
    step = request.path_params["step"]
    audited(request, execution_id, step=step, reason=body.reason or None)
    key = key_of(request)
    return json(await plane.controls.retry(execution_id, step, by(request), key=key))


async def _bulk(plane: Plane, request: Request) -> Response:
    body, caller = await read(request, Bulk), caller_of(request)
    asked = body.filter
    found: Listing | Sequence[str]
    if asked.execution_ids:
        if asked != type(asked)(execution_ids=asked.execution_ids):
            raise Unacceptable("`execution_ids` and other filters exclude each other")
        found = [parse(name) for name in dict.fromkeys(asked.execution_ids)]
    else:
        if asked == type(asked)():
            raise Unacceptable(
                "`filter` names no run", hint='every run is {"path": "*"}, and may be meant'
            )
        found = _listing(asked, caller)
    done = await plane.bulks.do(body, caller, found, by(request), key_of(request))
    audited(
        request, "executions", action=body.action, matched=done.matched, done=done.done,
        failed=done.failed, dry_run=body.dry_run, reason=body.reason or None,
    )  # fmt: skip
    return json(done)


def _listing(asked: BulkFilter, caller: Caller) -> Listing:
    """The runs that a filter means, as far as the caller may see them."""
    allowed, denied = caller.reach(_READ)
    statuses = (asked.status,) if isinstance(asked.status, str) else asked.status
    labels = (asked.label,) if isinstance(asked.label, str) else asked.label
    parent = asked.parent_execution_id
    return Listing(
        tenant_id=caller.tenant_id,
        allowed=allowed,
        denied=denied,
        status=tuple(sorted({status_of(word) for word in statuses})),
        path=asked.path,
        catalog_id=None if asked.catalog_id is None else parse(asked.catalog_id),
        version=version_of(asked.version),
        parent_execution_id="none"
        if parent == "none"
        else None
        if parent is None
        else parse(parent),
        labels=dict(map(label_of, labels)),
        pool=asked.pool,
        created_by=asked.created_by,
        since=None if asked.since is None else moment_of(asked.since, "filter/since"),
        until=None if asked.until is None else moment_of(asked.until, "filter/until"),
        has_error=asked.has_error,
        request_id=asked.request_id,
        client_id=asked.client_id,
        q=asked.q,
    )
