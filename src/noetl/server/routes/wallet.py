"""The wallet: its keys, who used its secrets, and what leaves for other regions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from noetl.api.credentials import (
    CrossRegion,
    Expiring,
    KeyStatus,
    Rotated,
    RotateKek,
    SealedAnswer,
    SecretAuditPage,
)
from noetl.edge.declared import CURSOR, Declared, Parameter
from noetl.edge.reading import json, moment, number, read
from noetl.ids import parse
from noetl.server.access.entry import caller_of
from noetl.server.auditing.audit import audited
from noetl.server.routes.exchange import internal_route
from noetl.server.routes.internal import must_be_system
from noetl.server.wallet.uses import Uses

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_LISTED: Final = 100
_MOST_LISTED: Final = 10_000
_DAY_S: Final = 86_400
_YEAR_S: Final = 366 * _DAY_S


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    of = partial(internal_route, plane)
    return [
        of("POST", "wallet/rotate-kek", _rotate, Declared(
            about="Wraps the keys of all records with the current key.", body=RotateKek,
            answer=Rotated, audit="secret.rotate", codes=("kek_unavailable",))),
        of("GET", "wallet/key-status", _status, Declared(
            about="Counts records by the key that wraps them.", answer=KeyStatus,
            codes=("kek_unavailable",))),
        of("GET", "secret-audit", _uses, Declared(
            about="Lists uses of secrets, newest first.", answer=SecretAuditPage, query=(
                Parameter("credential", "Of this name."),
                Parameter("execution_id", "By this run.", "id"),
                Parameter("from", "At or after.", "time"),
                Parameter("to", "Before.", "time"),
                Parameter("limit", "How many at most.", "number", least=1, most=_MOST_LISTED),
                CURSOR,
            ))),
        of("POST", "cross-region/resolve", _cross, Declared(
            about="Seals a credential of this region for a worker of another one.",
            body=CrossRegion, answer=SealedAnswer, audit="secret.seal",
            codes=("residency_denied", "worker_key_missing", "not_found", "kek_unavailable"))),
        of("GET", "credentials/expiring", _expiring, Declared(
            about="Lists secrets that end soon.", answer=Expiring, audit="secret.list", query=(
                Parameter("within_seconds", "How soon.", "number", least=0, most=_YEAR_S),
                Parameter("limit", "How many at most.", "number", least=1, most=1_000),
            ))),
    ]  # fmt: skip


async def _rotate(plane: Plane, request: Request) -> Response:
    must_be_system(request)
    body = await read(request, RotateKek)
    audited(request, "wallet")
    if plane.spans is None:
        done = await plane.secrets.rotation.rotate(body)
    else:
        with plane.spans.rotating(request.headers):
            done = await plane.secrets.rotation.rotate(body)
    counts = {table: one.rewrapped for table, one in done.tables.items()}
    audited(request, "wallet", rewrapped=counts, is_done=done.is_done)
    return json(done)


async def _status(plane: Plane, request: Request) -> Response:
    must_be_system(request)
    return json(await plane.secrets.rotation.status())


async def _uses(plane: Plane, request: Request) -> Response:
    must_be_system(request)
    asked = request.query_params
    wanted = Uses(
        tenant_id=caller_of(request).tenant_id,
        limit=number(request, "limit", _LISTED, _MOST_LISTED, 1),
        credential=asked.get("credential"),
        execution_id=parse(asked["execution_id"]) if "execution_id" in asked else None,
        since=moment(request, "from"),
        until=moment(request, "to"),
    )
    return json(await plane.secrets.audit.page(wanted, asked.get("cursor")))


async def _cross(plane: Plane, request: Request) -> Response:
    must_be_system(request)
    body = await read(request, CrossRegion)
    run = parse(body.execution_id)
    audited(request, body.name, region=body.region, worker_id=body.worker_id, execution_id=run)
    return json(await plane.secrets.regions.sealed(caller_of(request), body, run))


async def _expiring(plane: Plane, request: Request) -> Response:
    must_be_system(request)
    within = number(request, "within_seconds", _DAY_S, _YEAR_S)
    limit = number(request, "limit", _LISTED, 1_000, 1)
    return json(await plane.secrets.ending.soon(caller_of(request), within, limit))
