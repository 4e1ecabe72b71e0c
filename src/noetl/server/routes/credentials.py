"""Credentials, and how workers get them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, cast, get_args

from noetl.api.credentials import (
    CredentialPage,
    CredentialPut,
    CredentialRemoved,
    CredentialShown,
    CredentialTested,
    SealedAnswer,
    SealedKind,
)
from noetl.edge.declared import CURSOR, LIMIT, Declared, Parameter
from noetl.edge.errors import Unacceptable
from noetl.edge.reading import boolean, json, number, read
from noetl.ids import parse
from noetl.server.access.entry import caller_of
from noetl.server.auditing.audit import audited
from noetl.server.routes.exchange import route
from noetl.server.wallet.credentials import shown
from noetl.server.wallet.delivery import Asked
from noetl.store.secrets import CredentialListing

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_KINDS: Final = get_args(SealedKind)
_SEALED: Final = (
    Parameter(
        "worker_id", "The worker, or the listening process, that is to open it.", is_required=True
    ),
    Parameter("execution_id", "The run that needs it.", "id"),
    Parameter("command_id", "The command that the worker holds.", "id"),
    Parameter("subscription_id", "With `subscription`: the one that is listened for.", "id"),
    Parameter("kind", "What it is (`credential`).", words=_KINDS),
)
_LISTENING: Final = "subscription"
_SEAL: Final = "secret.seal"
_SOURCES: Final = ("kek_unavailable", "record_damaged", "residency_denied", "secret_missing",
                   "secret_refused", "secret_unavailable")  # fmt: skip


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    every, one = "/api/credentials", "/api/credentials/{name:path}"
    reads, writes, uses = "credential:read", "credential:write", "credential:use"
    return [
        route(plane, "POST", every, _put, writes, Declared(
            about="Keeps a credential; one of that name gets the new fields.",
            body=CredentialPut, answer=CredentialShown, audit="secret.put",
            codes=("kek_unavailable", "revision_conflict", "reserved_namespace"))),
        route(plane, "GET", every, _page, reads, Declared(
            about="Lists credentials by name, without their fields.", answer=CredentialPage,
            audit="secret.list", query=(
                LIMIT, CURSOR, Parameter("type", "Only those of this type."),
                Parameter("q", "A part of the name or the description."),
            ))),
        route(plane, "GET", f"{one}/sealed", _sealed, uses, Declared(
            about="Gives a secret to the worker that holds the command, sealed for it alone.",
            answer=SealedAnswer, query=_SEALED, audit=_SEAL,
            codes=("worker_key_missing", "not_found", "unknown_execution", "pool_forbidden",
                   "unknown_subscription", *_SOURCES))),
        route(plane, "POST", f"{one}/test", _test, uses, Declared(
            about="Starts a run that tries a credential on a worker.", answer=CredentialTested,
            audit="secret.test", codes=("not_found", "not_testable", "reserved_namespace"))),
        route(plane, "GET", one, _one, reads, Declared(
            about="Shows a credential by its name or its id.", answer=CredentialShown,
            audit="secret.read", codes=("not_found", "kek_unavailable", "record_damaged"), query=(
                Parameter("include_data", "The fields too; asks for `credential:reveal`.", "flag"),
            ))),
        route(plane, "DELETE", one, _delete, writes, Declared(
            about="Forgets a credential that no document names.", answer=CredentialRemoved,
            audit="secret.delete", codes=("not_found", "in_use", "reserved_namespace"), query=(
                Parameter("force", "Also one that documents name.", "flag"),
            ))),
    ]  # fmt: skip


async def _put(plane: Plane, request: Request) -> Response:
    body = await read(request, CredentialPut)
    audited(request, body.name, type=body.type)
    return json(await plane.secrets.credentials.put(body, caller_of(request)))


async def _page(plane: Plane, request: Request) -> Response:
    asked = request.query_params
    listing = CredentialListing(
        limit=number(request, "limit", 50, 200, 1), type=asked.get("type"), q=asked.get("q")
    )
    page = await plane.secrets.credentials.page(caller_of(request), listing, asked.get("cursor"))
    return json(page)


async def _one(plane: Plane, request: Request) -> Response:
    name, caller = _name(request), caller_of(request)
    reveals = boolean(request, "include_data")
    audited(request, name, include_data=reveals or None)
    if not reveals:
        return json(shown(await plane.secrets.credentials.find(caller, name)))
    found = await plane.secrets.credentials.revealed(caller, name)
    if not plane.parts.is_open:
        await plane.audits.did(request, "secret.reveal")
    return json(found, headers={"Cache-Control": "no-store"})


async def _sealed(plane: Plane, request: Request) -> Response:
    asked = request.query_params
    kind = asked.get("kind", "credential")
    if kind not in _KINDS:
        raise Unacceptable(f"`kind` is one of {', '.join(_KINDS)}")
    if kind == _LISTENING:
        return await _sealed_for_listener(plane, request)
    wanted = Asked(
        name=_name(request),
        worker_id=_needed(request, "worker_id"),
        execution_id=parse(_needed(request, "execution_id")),
        command_id=parse(_needed(request, "command_id")),
        kind=cast("SealedKind", kind),
    )
    audited(
        request,
        wanted.name,
        kind=kind,
        worker_id=wanted.worker_id,
        execution_id=wanted.execution_id,
        command_id=wanted.command_id,
    )
    given = None if plane.parts.is_open else partial(plane.audits.does, request, _SEAL)
    sealed = plane.secrets.deliveries.sealed(wanted, caller_of(request), given)
    if plane.spans is None:
        return json(await sealed)
    with plane.spans.sealing(request.headers, wanted.execution_id, kind):
        return json(await sealed)


async def _sealed_for_listener(plane: Plane, request: Request) -> Response:
    name, process = _name(request), _needed(request, "worker_id")
    subscription_id = parse(_needed(request, "subscription_id"))
    audited(request, name, kind=_LISTENING, worker_id=process, subscription_id=subscription_id)
    caller = caller_of(request)
    return json(await plane.secrets.listening.sealed(name, process, subscription_id, caller))


async def _test(plane: Plane, request: Request) -> Response:
    name = _name(request)
    started = await plane.secrets.probes.start(caller_of(request), name)
    audited(request, name, execution_id=started.execution_id)
    return json(started)


async def _delete(plane: Plane, request: Request) -> Response:
    name, force = _name(request), boolean(request, "force")
    audited(request, name, force=force or None)
    return json(await plane.secrets.credentials.delete(caller_of(request), name, force=force))


def _name(request: Request) -> str:
    found: str = request.path_params["name"]
    return found


def _needed(request: Request, name: str) -> str:
    found = request.query_params.get(name)
    if not found:
        raise Unacceptable(
            f"`{name}` is needed", errors=({"pointer": f"/{name}", "code": "validation_failed"},)
        )
    return found
