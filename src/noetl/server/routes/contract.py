"""What a client may rely on, told by the server itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl import __version__
from noetl.api.events import MOST_EVENTS, MOST_LINES
from noetl.api.health import Contract
from noetl.api.operations import CONTRACT_VERSION, OPERATIONS
from noetl.edge.declared import Declared
from noetl.edge.reading import MOST_BYTES, json
from noetl.engine.events import KINDS
from noetl.ids import MOST_SHARDS
from noetl.server.access.permissions import PUBLIC
from noetl.server.ingest.wanted import MOST_DEPTH, MOST_PRIORITY, MOST_WINDOW_S
from noetl.server.operations.imports import MOST_EVENTS as MOST_PROJECTED
from noetl.server.operations.publications import MOST_CLAIMED
from noetl.server.operations.schedules import MOST_SCHEDULES
from noetl.server.routes.exchange import (
    MOST_BATCH_BYTES,
    MOST_REPORT_BYTES,
    MOST_RESULT_BYTES,
    route,
)
from noetl.server.runs.starts import MOST_LABELS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_LIMITS: Final = {
    "body_bytes": MOST_BYTES,
    "report_bytes": MOST_REPORT_BYTES,
    "batch_bytes": MOST_BATCH_BYTES,
    "result_bytes": MOST_RESULT_BYTES,
    "events_per_batch": MOST_EVENTS,
    "lines_per_batch": MOST_LINES,
    "projected_events": MOST_PROJECTED,
    "outbox_claim": MOST_CLAIMED,
    "schedules_per_tenant": MOST_SCHEDULES,
    "labels": MOST_LABELS,
    "priority": MOST_PRIORITY,
    "child_depth": MOST_DEPTH,
    "dedup_window_seconds": MOST_WINDOW_S,
    "shards": MOST_SHARDS,
    "page": 200,
    "events_page": 1_000,
}


def routes(plane: Plane, known: Callable[[], Sequence[Route]]) -> list[Route]:
    """Every route of this file; `known` are those of the whole server."""

    async def contract(plane: Plane, request: Request) -> Response:
        del request
        return json(_contract(plane, known()))

    return [
        route(plane, "GET", "/api/runtime/contract", contract, PUBLIC, Declared(
            about="Tells versions, routes, limits and features.", answer=Contract)),
    ]  # fmt: skip


def _contract(plane: Plane, known: Sequence[Route]) -> Contract:
    named: dict[str, list[str]] = {"public": [], "protected": []}
    for each in known:
        permission: Any = getattr(each, "permission", "")
        place = "public" if permission == PUBLIC else "protected"
        named[place] += [
            f"{method} {each.path}" for method in each.methods or () if method != "HEAD"
        ]
    parts = plane.parts
    return Contract(
        version=__version__,
        contract_version=CONTRACT_VERSION,
        routes={place: tuple(sorted(paths)) for place, paths in named.items()},
        cli_operation_mapping=OPERATIONS,
        limits=_LIMITS | {"inline_bytes": parts.inline_bytes},
        features={
            "publishes_events": parts.publishes,
            "outbox_publisher": parts.publisher,
            "shard_count": 1,
            "retention_days": parts.retention_days,
            "lease_seconds": parts.lease_s,
        },
        event_types=tuple(sorted(KINDS)),
    )
