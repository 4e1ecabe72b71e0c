"""Small documents that runtimes and gateways share: breakers and leases, by compare and set."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from noetl.api.subscriptions import CircuitDocument
from noetl.edge.declared import Declared
from noetl.edge.errors import Conflict, NotFound, Unacceptable
from noetl.edge.reading import json, read
from noetl.server.access.entry import caller_of
from noetl.server.access.listening import must_listen, telling
from noetl.server.routes.exchange import internal_route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from noetl.server.plane import Plane

SERVICES: Final = ("runtime", "gateway")
MOST_BYTES: Final = 16 * 1024
_PATH: Final = re.compile(r"[A-Za-z0-9_.=/-]{1,512}")
_ESCAPED: Final = re.compile(r"(?:=[0-9a-f]{2})+")
_TAG: Final = re.compile(r'(?:W/)?"?([0-9]{1,18})"?')
_ONE: Final = "circuits/{path:path}"


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    return [
        internal_route(plane, "GET", _ONE, _get, Declared(
            about="Tells a document that runtimes share; its revision is the tag.",
            answer=CircuitDocument, services=SERVICES, codes=("not_found",))),
        internal_route(plane, "PUT", _ONE, _put, Declared(
            about="Writes a document that is still at the revision of `If-Match`, or, with "
            "`If-None-Match: *`, that is not there yet.", body=dict[str, Any],
            answer=CircuitDocument, services=SERVICES, codes=("revision_conflict",))),
        internal_route(plane, "DELETE", _ONE, _delete, Declared(
            about="Forgets a document, if it is still at the revision of `If-Match`.",
            status=204, services=SERVICES, codes=("revision_conflict", "not_found"))),
    ]  # fmt: skip


async def _get(plane: Plane, request: Request) -> Response:
    tenant_id, path = _place(request)
    found = await plane.parts.store.circuits.get(tenant_id, path)
    if found is None:
        raise NotFound(f"there is no circuit {path}")
    return _told(CircuitDocument(path=path, state=found.state, revision=found.revision))


async def _put(plane: Plane, request: Request) -> Response:
    tenant_id, path = _place(request)
    state = await read(request, dict[str, Any], MOST_BYTES)
    revision = _revision(request)
    is_new = request.headers.get("if-none-match") == "*"
    if revision is None and not is_new:  # whoever names no revision writes over whatever is there
        found = await plane.parts.store.circuits.get(tenant_id, path)
        revision = None if found is None else found.revision
    made = await plane.parts.store.circuits.put(tenant_id, path, state, revision)
    if made is None:
        raise _changed(path)
    return _told(CircuitDocument(path=path, state=state, revision=made))


async def _delete(plane: Plane, request: Request) -> Response:
    tenant_id, path = _place(request)
    if not await plane.parts.store.circuits.remove(tenant_id, path, _revision(request)):
        if await plane.parts.store.circuits.get(tenant_id, path) is None:
            raise NotFound(f"there is no circuit {path}")
        raise _changed(path)
    return Response(status_code=204)


def _changed(path: str) -> Conflict:
    return Conflict(
        f"the circuit {path} was written meanwhile", code="revision_conflict",
        hint="read it again, and decide again",
    )  # fmt: skip


def _told(document: CircuitDocument) -> Response:
    return json(document, headers={"ETag": f'"{document.revision}"'})


def _place(request: Request) -> tuple[str, str]:
    """The tenant and the path, if the caller has to do with them.

    Keys are `<path>.<downstream>` and `drain.<path>`, with `=xx` for what a bucket does not take;
    a runtime that is given paths has theirs.
    """
    path: str = request.path_params["path"]
    if not _PATH.fullmatch(path):
        raise Unacceptable(f"`{path[:80]}` is not the key of a circuit", code="path_invalid")
    caller = caller_of(request)
    if caller.grants:
        of_lease = path.removeprefix("drain.")
        subscription = of_lease if of_lease != path else path.rpartition(".")[0] or path
        must_listen(caller, telling(caller), _ESCAPED.sub(_plain, subscription))
    return caller.tenant_id, path


def _plain(escaped: re.Match[str]) -> str:
    return bytes.fromhex(escaped[0].replace("=", "")).decode("utf-8", "replace")


def _revision(request: Request) -> int | None:
    given = request.headers.get("if-match")
    if given is None or given == "*":
        return None
    found = _TAG.fullmatch(given.strip())
    if found is None:
        raise Unacceptable("`If-Match` is not a revision")
    return int(found[1])
