"""Claims, beats and releases of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.callbacks import ContainerCallback, ContainerTaken
from noetl.api.commands import (
    Beat,
    Claim,
    Claimed,
    Claimer,
    Command,
    CommandState,
    Extended,
    Heartbeat,
    HeldOne,
    Release,
    Released,
)
from noetl.edge.declared import Declared
from noetl.edge.errors import UnknownCommand
from noetl.edge.reading import json, read
from noetl.server.access.entry import caller_of, must_serve
from noetl.server.fleet.plain import id_of_command
from noetl.server.routes.exchange import route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane


_CLAIM: Final = "command:claim"
_RELEASED: Final = Declared(
    about="Takes back commands of a worker.",
    body=Release,
    answer=Released,
    codes=("pool_forbidden",),
)
_RELEASED_ONE: Final = Declared(
    about="Takes back one command of a worker.",
    body=HeldOne,
    answer=Released,
    codes=("stale_attempt",),
)


def routes(plane: Plane) -> list[Route]:
    """Every route of this file; the fixed paths stand before the one with a name in it."""
    one = "/api/commands/{event_id}"
    claim = Declared(
        about="Gives a worker commands of its pool, and waits for some if it likes.",
        body=Claim,
        answer=Claimed,
        codes=("pool_forbidden", "batch_size_invalid"),
    )
    beat = Declared(about="Keeps the commands of a worker for it.", body=Heartbeat, answer=Beat)
    command = Declared(about="Tells one command.", answer=CommandState, codes=("unknown_command",))
    claim_one = Declared(
        about="Gives a worker one command.",
        body=Claimer,
        answer=Command,
        codes=("active_claim", "already_terminal", "execution_cancelled", "execution_paused"),
    )
    beat_one = Declared(
        about="Keeps one command for a worker.",
        body=HeldOne,
        answer=Extended,
        codes=("stale_attempt", "already_terminal", "execution_cancelled"),
    )
    container = Declared(
        about="The container of a command has ended, as the worker saw that watches over it.",
        body=ContainerCallback,
        answer=ContainerTaken,
        status=202,
        codes=("unknown_command", "pool_forbidden", "bad_time"),
    )
    return [
        route(plane, "POST", "/api/commands/claim", _claim, _CLAIM, claim),
        route(plane, "POST", "/api/commands/heartbeat", _heartbeat, _CLAIM, beat),
        route(plane, "POST", "/api/commands/release", _release, _CLAIM, _RELEASED),
        route(plane, "GET", one, _command, _CLAIM, command),
        route(plane, "POST", f"{one}/claim", _claim_one, _CLAIM, claim_one),
        route(plane, "POST", f"{one}/heartbeat", _heartbeat_one, _CLAIM, beat_one),
        route(plane, "POST", f"{one}/release", _release_one, _CLAIM, _RELEASED_ONE),
        route(plane, "POST", f"{one}/container-callback", _container, _CLAIM, container),
    ]


async def _id(plane: Plane, request: Request) -> str:
    """The command that a path names, if its run is there for the caller."""
    found: str = request.path_params["event_id"]
    caller = caller_of(request)
    must_serve(caller)
    if caller.is_bound:
        row = await plane.parts.store.commands.get(id_of_command(found))
        if row is not None and not await plane.owners.sees(caller, row.execution_id):
            raise UnknownCommand(f"there is no command {found}")
    return found


async def _claim(plane: Plane, request: Request) -> Response:
    must_serve(caller_of(request))
    body = await read(request, Claim)
    clock = plane.parts.clock
    began = clock.monotonic()
    claimed = await plane.claims.claim(body, caller_of(request))
    if body.wait_seconds <= 0:
        plane.metrics.command_claim_duration.observe(clock.monotonic() - began)
    return json(claimed)


async def _command(plane: Plane, request: Request) -> Response:
    return json(await plane.claims.command(await _id(plane, request), caller_of(request)))


async def _claim_one(plane: Plane, request: Request) -> Response:
    body = await read(request, Claimer)
    caller, name = caller_of(request), await _id(plane, request)
    return json(await plane.claims.claim_one(name, body.worker_id, caller))


async def _heartbeat(plane: Plane, request: Request) -> Response:
    caller = caller_of(request)
    must_serve(caller)
    body = await read(request, Heartbeat)
    is_draining = await plane.workers.is_draining(body.worker_id)
    return json(await plane.claims.heartbeat(body, caller, is_draining=is_draining))


async def _heartbeat_one(plane: Plane, request: Request) -> Response:
    body = await read(request, HeldOne)
    name = await _id(plane, request)
    return json(await plane.claims.heartbeat_one(name, body, caller_of(request)))


async def _release(plane: Plane, request: Request) -> Response:
    caller = caller_of(request)
    must_serve(caller)
    await plane.claims.release(await read(request, Release), caller)
    return json(Released())


async def _release_one(plane: Plane, request: Request) -> Response:
    body = await read(request, HeldOne)
    await plane.claims.release_one(await _id(plane, request), body, caller_of(request))
    return json(Released())


async def _container(plane: Plane, request: Request) -> Response:
    """The callback of containers, for workers: each tells of commands of its own pool."""
    body = await read(request, ContainerCallback)
    about = await plane.claims.command(await _id(plane, request), caller_of(request))
    body = msgspec.structs.replace(body, command_id=about["command_id"])
    return json(await plane.containers.take(about["execution_id"], about["node_name"], body), 202)
