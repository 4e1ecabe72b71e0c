"""Processes make themselves known, workers above all; and which shard a run belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api.commands import Heartbeat
from noetl.api.runtime import Joined, Left, PoolHeartbeat, WorkerEntry
from noetl.errors import NoetlError
from noetl.ids import InvalidId, parse
from noetl.server.access import caller_of, own_pool
from noetl.server.errors import Unacceptable
from noetl.server.routes.exchange import json, known, read, route
from noetl.server.shards import HASH, MOST_SHARDS, SEED, shard_of
from noetl.server.workers import WORKER, pool_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane


class BadQuery(NoetlError):
    """A query that cannot be answered."""

    code = "bad_query"
    status = 400


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    pool = "/api/worker/pool"
    return [
        route(plane, "POST", f"{pool}/register", _join, "runtime:write"),
        route(plane, "POST", "/api/runtime/register", _join, "runtime:write"),
        route(plane, "POST", f"{pool}/heartbeat", _beat, "runtime:write"),
        route(plane, "POST", "/api/runtime/heartbeat", _beat, "runtime:write"),
        route(plane, "POST", f"{pool}/deregister", _leave, "runtime:write"),
        route(plane, "DELETE", f"{pool}/deregister", _leave, "runtime:write"),
        route(plane, "POST", "/api/runtime/deregister", _leave, "runtime:write"),
        route(plane, "DELETE", "/api/runtime/deregister", _leave, "runtime:write"),
        route(plane, "GET", "/api/worker/pools", _pools, "runtime:read"),
        route(plane, "GET", "/api/runtime/shard-info", _shard, "public"),
    ]


async def _join(plane: Plane, request: Request) -> Response:
    body = await read(request, WorkerEntry)
    if (body.kind or body.component_type) == WORKER:
        own_pool(caller_of(request), pool_of(body))
    row = await plane.workers.join(body)
    parts = plane.parts
    return json(
        Joined(
            name=row.name,
            lease_seconds=parts.lease_s,
            runtime_id=row.runtime_id,
            machine_id=row.machine_id,
            servers=parts.servers or ((parts.server_url,) if parts.server_url else ()),
        )
    )


async def _beat(plane: Plane, request: Request) -> Response:
    body = await read(request, PoolHeartbeat)
    kind = body.component_type or body.kind
    is_draining = await plane.workers.beat(kind, body.name, body.free_slots)
    held = Heartbeat(worker_id=body.name, commands=body.commands, free_slots=body.free_slots or 0)
    return json(await plane.claims.heartbeat(held, is_draining=is_draining))


async def _leave(plane: Plane, request: Request) -> Response:
    body = await read(request, Left)
    kind = body.component_type or body.kind
    if not body.name:
        raise Unacceptable("`name` is empty")
    await plane.workers.leave(kind, body.name)
    released = await plane.claims.release_all(body.name) if kind == WORKER else 0
    return json({"status": "ok", "released": released})


async def _pools(plane: Plane, request: Request) -> Response:
    known(request, "kind", "status", "name")
    asked = request.query_params
    return json(
        await plane.workers.pools(
            kind=asked.get("kind"), status=asked.get("status"), name=asked.get("name")
        )
    )


async def _shard(plane: Plane, request: Request) -> Response:
    known(request, "execution_id", "shard_count")
    asked = request.query_params
    given = asked.get("shard_count", "1")
    count = int(given) if given.isascii() and given.isdigit() and len(given) <= 4 else 0  # noqa: PLR2004 - digits of the largest count
    if not 1 <= count <= MOST_SHARDS:
        raise BadQuery(f"`shard_count` is not in 1..{MOST_SHARDS}")
    try:
        execution_id = parse(asked.get("execution_id", ""))
    except InvalidId as fault:
        raise BadQuery(fault.message) from None
    return json({
        "execution_id": execution_id,
        "shard_count": count,
        "shard_index": shard_of(execution_id, count),
        "source": "query" if "shard_count" in asked else "server",
        "hash_function": HASH,
        "seed": SEED,
        "server_config": {"shard_count": 1, "servers": list(plane.parts.servers)},
    })  # fmt: skip
