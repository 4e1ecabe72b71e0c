"""What the platform's own chores ask for: messages to publish, events to import, room."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from noetl.api.internal import (
    Advance,
    Advanced,
    OutboxClaim,
    OutboxClaimed,
    OutboxFailed,
    OutboxMarked,
    OutboxPending,
    OutboxPublished,
    Project,
    Projected,
    Purge,
    Purged,
)
from noetl.edge.declared import Declared, Parameter
from noetl.edge.errors import Forbidden, Unacceptable
from noetl.edge.reading import json, number, read
from noetl.server.access.entry import caller_of
from noetl.server.auditing.audit import audited
from noetl.server.operations.publications import MOST_CLAIMED
from noetl.server.routes.exchange import MOST_REPORT_BYTES, internal_route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_LIMIT: Final = Parameter("limit", "How many at most.", "number", least=1, most=MOST_CLAIMED)
_SHARD: Final = Parameter("shard", "Of which shard; there is one, 0.", "number", least=0, most=0)


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    of = partial(internal_route, plane)
    return [
        of("POST", "outbox/claim", _claim, Declared(
            about="Takes messages that are to be published.", body=OutboxClaim,
            answer=OutboxClaimed, query=(_LIMIT, _SHARD))),
        of("POST", "outbox/mark-published", _published, Declared(
            about="Notes messages that were published.", body=OutboxPublished,
            answer=OutboxMarked, codes=("bad_query",))),
        of("POST", "outbox/mark-failed", _failed, Declared(
            about="Gives back a message that could not be published.", body=OutboxFailed,
            answer=OutboxMarked)),
        of("GET", "outbox/pending-count", _pending, Declared(
            about="Counts the messages that could be taken now.", answer=OutboxPending)),
        of("POST", "events/project", _project, Declared(
            about="Imports events of other installations.", body=Project, answer=Projected,
            codes=("batch_size_invalid",))),
        of("POST", "projection/advance", _advance, Declared(
            about="Makes read models anew from their logs.", body=Advance, answer=Advanced,
            codes=("batch_size_invalid",))),
        of("POST", "cleanup/purge", _purge, Declared(
            about="Deletes what is old, or says what would be.", body=Purge, answer=Purged,
            audit="cleanup.purge")),
    ]  # fmt: skip


async def _claim(plane: Plane, request: Request) -> Response:
    must_be_system(request)
    body = await read(request, OutboxClaim)
    _must_be_here(body.shard)
    limit = number(request, "limit", 100, MOST_CLAIMED, 1) if body.limit is None else body.limit
    _must_be_here(number(request, "shard", 0, 0))
    return json(await plane.publications.claim(limit))


async def _published(plane: Plane, request: Request) -> Response:
    must_be_system(request)
    body = await read(request, OutboxPublished)
    _must_be_here(body.shard)
    return json(await plane.publications.published(body))


async def _failed(plane: Plane, request: Request) -> Response:
    must_be_system(request)
    body = await read(request, OutboxFailed)
    _must_be_here(body.shard)
    return json(await plane.publications.failed(body))


async def _pending(plane: Plane, request: Request) -> Response:
    must_be_system(request)
    return json(await plane.publications.pending())


async def _project(plane: Plane, request: Request) -> Response:
    must_be_system(request)
    body = await read(request, Project, MOST_REPORT_BYTES)
    if plane.spans is None:
        return json(await plane.imports.project(body.events))
    with plane.spans.projecting(request.headers, len(body.events)):
        return json(await plane.imports.project(body.events))


async def _advance(plane: Plane, request: Request) -> Response:
    must_be_system(request)
    body = await read(request, Advance)
    return json(await plane.refreshes.advance(body.execution_ids))


async def _purge(plane: Plane, request: Request) -> Response:
    must_be_system(request)
    body = await read(request, Purge)
    done = await plane.retention.purge(body)
    audited(
        request,
        "events",
        dry_run=done.dry_run,
        commands=done.commands_purged,
        partitions=list(done.event_partitions_dropped),
    )
    return json(done)


def must_be_system(request: Request) -> None:
    """Refuse gateways and runtimes: these routes are not theirs."""
    if caller_of(request).mark("internal") != "y":
        raise Forbidden(
            "the token does not open this internal route", code="internal_token_mismatch"
        )


def _must_be_here(shard: int | None) -> None:
    if shard not in {None, 0}:
        raise Unacceptable(
            f"there is no shard {shard}",
            errors=({"pointer": "/shard", "code": "validation_failed"},),
        )
