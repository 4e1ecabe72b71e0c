"""Processes make themselves known, workers above all; and which shard a run belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.commands import Beat, Heartbeat
from noetl.api.runtime import (
    Drain,
    Drained,
    Gone,
    Joined,
    Left,
    PoolHeartbeat,
    Pools,
    ShardInfo,
    WorkerEntry,
)
from noetl.edge.declared import Declared, Parameter
from noetl.edge.errors import Forbidden, Unacceptable
from noetl.edge.reading import json, read
from noetl.errors import NoetlError
from noetl.ids import MOST_SHARDS, SHARD_HASH, SHARD_SEED, InvalidId, parse, shard_of
from noetl.server.access.caller import free_pool
from noetl.server.access.entry import caller_of, own_pool
from noetl.server.access.permissions import PUBLIC
from noetl.server.auditing.audit import audited
from noetl.server.fleet.gateways import KIND as GATEWAY
from noetl.server.fleet.workers import KINDS, WORKER, pool_of
from noetl.server.routes.exchange import route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.access.entry import Caller
    from noetl.server.parts import ServerParts
    from noetl.server.plane import Plane


class BadQuery(NoetlError):
    """A query that cannot be answered."""

    code = "bad_query"
    status = 400


_ENTRY: Final = Declared(
    about="Makes a process known, or known again.",
    body=WorkerEntry,
    answer=Joined,
    codes=("pool_forbidden",),
)
_BEAT: Final = Declared(
    about="Says that a process is alive, and extends the leases that it names.",
    body=PoolHeartbeat,
    answer=Beat,
    codes=("unknown_worker", "pool_forbidden"),
)
_LEFT: Final = Declared(
    about="Forgets a process; what a worker held is given to others at once.",
    body=Left,
    answer=Gone,
    codes=("pool_forbidden",),
)
_POOLS: Final = Declared(
    about="Lists processes, and what each pool can do, does, and has to do.",
    answer=Pools,
    query=(
        Parameter("kind", "Only processes of this kind.", words=tuple(sorted(KINDS))),
        Parameter("status", "Only those of this status (`ready`, `stale`, `offline`, ...)."),
        Parameter("name", "Only the one of this name."),
    ),
)
_DRAIN: Final = Declared(
    about="Tells the workers of a pool, or one of them, to take on nothing more.",
    body=Drain,
    answer=Drained,
    audit="pool.drain",
    codes=("unknown_worker",),
)
_SHARD: Final = Declared(
    about="Tells which shard a run belongs to.",
    answer=ShardInfo,
    query=(
        Parameter("execution_id", "The run.", "id", is_required=True),
        Parameter("shard_count", "Among how many.", "number", least=1, most=MOST_SHARDS),
    ),
    codes=("bad_query",),
)
_OWN: Final = {"worker": WORKER, "gateway": "gateway", "runtime": "subscription"}
"""As what the processes of a role make themselves known."""


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    pool, write = "/api/worker/pool", "runtime:write"
    return [
        route(plane, "POST", f"{pool}/register", _join, write, _ENTRY),
        route(plane, "POST", "/api/runtime/register", _join, write, _ENTRY),
        route(plane, "POST", f"{pool}/heartbeat", _beat, write, _BEAT),
        route(plane, "POST", "/api/runtime/heartbeat", _beat, write, _BEAT),
        route(plane, "POST", f"{pool}/deregister", _leave, write, _LEFT),
        route(plane, "DELETE", f"{pool}/deregister", _leave, write, _LEFT),
        route(plane, "POST", "/api/runtime/deregister", _leave, write, _LEFT),
        route(plane, "DELETE", "/api/runtime/deregister", _leave, write, _LEFT),
        route(plane, "GET", "/api/worker/pools", _pools, "runtime:read", _POOLS),
        route(plane, "POST", "/api/worker/pools/{pool}/drain", _drain, write, _DRAIN),
        route(plane, "GET", "/api/runtime/shard-info", _shard, PUBLIC, _SHARD),
    ]


async def _join(plane: Plane, request: Request) -> Response:
    body = await read(request, WorkerEntry)
    caller, kind = caller_of(request), body.kind or body.component_type
    _own_kind(caller, kind)
    if kind == GATEWAY and caller.is_bound:  # the server sends secrets to where it says it is
        raise Forbidden("a gateway makes itself known with a token of the platform")
    if kind == WORKER:
        own_pool(caller, pool_of(body))
    row = await plane.workers.join(body, caller)
    parts = plane.parts
    return json(
        Joined(
            name=row.name,
            lease_seconds=parts.lease_s,
            runtime_id=row.runtime_id,
            machine_id=row.machine_id,
            servers=_servers(parts),
        )
    )


def _servers(parts: ServerParts) -> tuple[str, ...]:
    """The addresses that a worker may be told to claim at."""
    known = (*(parts.servers or (parts.server_url,)), parts.public_url)
    return tuple(dict.fromkeys(filter(None, known)))


def _own_kind(caller: Caller, kind: str) -> None:
    """Refuse a kind of process that those of the caller's roles are not."""
    if caller.mark("runtime:write") == "o" and kind not in map(_OWN.get, caller.roles):
        raise Forbidden(f"a process of {', '.join(caller.roles)} is no {kind[:80]!r}")


async def _beat(plane: Plane, request: Request) -> Response:
    body = await read(request, PoolHeartbeat)
    caller, kind = caller_of(request), body.component_type or body.kind
    _own_kind(caller, kind)
    is_draining = await plane.workers.beat(kind, body.name, body.free_slots, caller)
    held = Heartbeat(worker_id=body.name, commands=body.commands, free_slots=body.free_slots or 0)
    return json(await plane.claims.heartbeat(held, caller, is_draining=is_draining))


async def _leave(plane: Plane, request: Request) -> Response:
    body = await read(request, Left)
    caller, kind = caller_of(request), body.component_type or body.kind
    if not body.name:
        raise Unacceptable("`name` is empty")
    _own_kind(caller, kind)
    await plane.workers.leave(kind, body.name, caller)
    released = await plane.claims.release_all(body.name, caller) if kind == WORKER else 0
    return json(Gone(released=released))


async def _pools(plane: Plane, request: Request) -> Response:
    asked = request.query_params
    return json(
        await plane.workers.pools(
            kind=asked.get("kind"), status=asked.get("status"), name=asked.get("name")
        )
    )


async def _drain(plane: Plane, request: Request) -> Response:
    pool: str = request.path_params["pool"]
    caller = caller_of(request)
    if caller.mark("runtime:write") == "o":
        raise Forbidden("a process of the platform drains no others")
    free_pool(caller, pool)
    body = await read(request, Drain)
    workers = await plane.workers.drain(pool, body.worker)
    audited(request, pool, workers=workers)
    return json(Drained(pool=pool, workers=tuple(workers)))


async def _shard(plane: Plane, request: Request) -> Response:
    asked = request.query_params
    own = max(1, len(plane.parts.servers))
    given = asked.get("shard_count", str(own))
    count = int(given) if given.isascii() and given.isdigit() and len(given) <= 4 else 0  # noqa: PLR2004 - digits of the largest count
    if not 1 <= count <= MOST_SHARDS:
        raise BadQuery(f"`shard_count` is not in 1..{MOST_SHARDS}")
    try:
        execution_id = parse(asked.get("execution_id", ""))
    except InvalidId as fault:
        raise BadQuery(fault.message) from None
    return json(
        ShardInfo(
            execution_id=execution_id,
            shard_count=count,
            shard_index=shard_of(execution_id, count),
            source="query" if "shard_count" in asked else "server",
            hash_function=SHARD_HASH,
            seed=SHARD_SEED,
            server_config={"shard_count": own, "servers": list(plane.parts.servers)},
        )
    )
