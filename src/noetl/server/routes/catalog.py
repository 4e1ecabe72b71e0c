"""Documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from noetl.api.catalog import (
    CasesRun,
    CatalogPage,
    CatalogQuery,
    CheckedDocument,
    Difference,
    DocumentGraph,
    Entry,
    Form,
    Promote,
    Promoted,
    Register,
    Registered,
    Removal,
    Resource,
    RunTests,
    Settled,
    Validate,
    VersionPage,
)
from noetl.edge.declared import CURSOR, LIMIT, UNCHANGED, Declared, Parameter
from noetl.edge.errors import Unacceptable
from noetl.edge.reading import boolean, json, number, read
from noetl.server.access.entry import caller_of
from noetl.server.auditing.audit import audited
from noetl.server.routes.etags import tagged
from noetl.server.routes.exchange import route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

READ: Final = "catalog:read"
WRITE: Final = "catalog:write"
DELETE: Final = "catalog:delete"
MOST_LISTED: Final = 200
# A path holds slashes. What is asked of it stands last, so that the document `a/versions` has its
# versions under `/api/catalog/a/versions/versions`.
_AT: Final = "/api/catalog/{path:path}"

_VERSION: Final = Parameter("version", "A number, or `latest`.")
_LIST: Final = (
    Parameter("resource_type", "Only documents of this kind."),
    Parameter("path_prefix", "Only paths that begin so."),
    Parameter("q", "A part of the path, the name, the description or a tag."),
    Parameter("include_archived", "Archived ones, too.", "flag"),
    Parameter("versions", "What each path means, or every version.", words=("latest", "all")),
    Parameter("content", "With the text of each.", "flag"),
    Parameter("may", "Only what the caller may do this with.", words=("view", "execute", "modify")),
    LIMIT,
    CURSOR,
)
_ONE: Final = (
    Parameter("catalog_id", "The id of a version; it wins.", "id"),
    Parameter("path", "The path of a document."),
    _VERSION,
)
_NOT_THERE: Final = ("unknown_path", "path_invalid")
_RESERVED: Final = ("reserved_namespace", "path_invalid")


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    return [*_readers(plane), *_writers(plane)]


def _readers(plane: Plane) -> list[Route]:
    return [
        route(plane, "GET", "/api/catalog/resource", _resource, READ, Declared(
            about="One version of a document.", answer=Entry, query=_ONE,
            also=UNCHANGED, codes=_NOT_THERE)),
        route(plane, "POST", "/api/catalog/resource", _resource_posted, READ, Declared(
            about="One version of a document.", body=Resource, answer=Entry,
            also=UNCHANGED, codes=_NOT_THERE)),
        route(plane, "GET", "/api/catalog", _list, READ, Declared(
            about="Documents, by path.", answer=CatalogPage, query=_LIST,
            also=UNCHANGED, codes=("bad_cursor",))),
        route(plane, "POST", "/api/catalog/list", _list_posted, READ, Declared(
            about="Documents, by path.", body=CatalogQuery, answer=CatalogPage,
            codes=("bad_cursor",))),
        route(plane, "POST", "/api/catalog/validate", _validate, READ, Declared(
            about="Everything that is found in a document, which is not kept.", body=Validate,
            answer=CheckedDocument, codes=("body_too_large",))),
        route(plane, "GET", f"{_AT}/versions", _versions, READ, Declared(
            about="The versions of a document, newest first.", answer=VersionPage, also=UNCHANGED,
            query=(LIMIT, CURSOR), codes=(*_NOT_THERE, "bad_cursor"))),
        route(plane, "GET", f"{_AT}/diff", _diff, READ, Declared(
            about="Two versions side by side.", answer=Difference, also=UNCHANGED, codes=_NOT_THERE,
            query=(Parameter("from", "The older version; the one before."),
                   Parameter("to", "The newer version; what the path means.")))),
        route(plane, "GET", f"{_AT}/ui_schema", _form, READ, Declared(
            about="The run form of a playbook.", answer=Form, also=UNCHANGED, query=(_VERSION,),
            codes=_NOT_THERE)),
        route(plane, "GET", f"{_AT}/graph", _graph, READ, Declared(
            about="The steps and arcs of a playbook.", answer=DocumentGraph,
            also=UNCHANGED, query=(_VERSION,), codes=_NOT_THERE)),
    ]  # fmt: skip


def _writers(plane: Plane) -> list[Route]:
    return [
        route(plane, "POST", "/api/catalog/register", _register, WRITE, Declared(
            about="Keep a document; 200 when it equals the newest version.", body=Register,
            answer=Registered, status=201, also={200: Registered}, audit="catalog.register",
            codes=("invalid_playbook", "version_conflict", "test_gate", "reserved_pool",
                   *_RESERVED))),
        route(plane, "POST", f"{_AT}/promote", _promote, WRITE, Declared(
            about="Make a version what its path means.", body=Promote, answer=Promoted,
            audit="catalog.promote", codes=("unknown_path", "test_gate", *_RESERVED))),
        route(plane, "POST", "/api/catalog/delete", _delete, DELETE, Declared(
            about="Remove versions; those with executions are archived.", body=Removal,
            answer=Settled, audit="catalog.delete", codes=_RESERVED)),
        route(plane, "POST", "/api/catalog/archive", _archive, DELETE, Declared(
            about="Put versions away; they run by their id only.", body=Removal, answer=Settled,
            audit="catalog.archive", codes=_RESERVED)),
        route(plane, "POST", "/api/catalog/restore", _restore, DELETE, Declared(
            about="Bring archived versions back.", body=Removal, answer=Settled,
            audit="catalog.restore", codes=_RESERVED)),
        route(plane, "POST", "/api/playbook-tests/{path:path}/run", _test, "execution:run",
              Declared(
            about="Play tests of a playbook: mocked tools, virtual time.", body=RunTests,
            answer=CasesRun, codes=(*_NOT_THERE, "not_executable"))),
    ]  # fmt: skip


def _path(request: Request) -> str:
    path: str = request.path_params["path"]
    return path


# ------------------------------------------------------------------------------ readers


async def _resource(plane: Plane, request: Request) -> Response:
    asked = request.query_params
    return await _found(
        plane,
        request,
        Resource(
            catalog_id=asked.get("catalog_id"),
            path=asked.get("path"),
            version=asked.get("version"),
        ),
    )


async def _resource_posted(plane: Plane, request: Request) -> Response:
    return await _found(plane, request, await read(request, Resource))


async def _found(plane: Plane, request: Request, wanted: Resource) -> Response:
    return tagged(request, await plane.documents.find(wanted, caller_of(request)))


async def _list(plane: Plane, request: Request) -> Response:
    asked = request.query_params
    versions = asked.get("versions", "latest")
    if versions not in {"latest", "all"}:
        raise Unacceptable("`versions` is neither `latest` nor `all`")
    query = CatalogQuery(
        resource_type=asked.get("resource_type"),
        path_prefix=asked.get("path_prefix"),
        q=asked.get("q"),
        include_archived=boolean(request, "include_archived"),
        versions=cast("Any", versions),
        content=boolean(request, "content"),
        may=cast("Any", _may(asked.get("may"))),
        limit=number(request, "limit", 50, MOST_LISTED, 1),
        cursor=asked.get("cursor"),
    )
    return tagged(request, await plane.documents.listed(query, caller_of(request)))


def _may(word: str | None) -> str | None:
    if word not in {None, "view", "execute", "modify"}:
        raise Unacceptable("`may` is none of `view`, `execute`, `modify`")
    return word


async def _list_posted(plane: Plane, request: Request) -> Response:
    query = await read(request, CatalogQuery)
    return json(await plane.documents.listed(query, caller_of(request)))


async def _validate(plane: Plane, request: Request) -> Response:
    return json(await plane.documents.validated(await read(request, Validate)))


async def _versions(plane: Plane, request: Request) -> Response:
    limit = number(request, "limit", 50, MOST_LISTED, 1)
    cursor = request.query_params.get("cursor")
    caller = caller_of(request)
    return tagged(request, await plane.documents.versions(caller, _path(request), limit, cursor))


async def _diff(plane: Plane, request: Request) -> Response:
    asked, caller = request.query_params, caller_of(request)
    older, newer = asked.get("from"), asked.get("to")
    return tagged(request, await plane.documents.compared(caller, _path(request), older, newer))


async def _form(plane: Plane, request: Request) -> Response:
    version = request.query_params.get("version")
    form = await plane.documents.form(caller_of(request), _path(request), version)
    about = (form.path, form.version, form.fields, form.title, form.description_markdown)
    return tagged(request, form, about)


async def _graph(plane: Plane, request: Request) -> Response:
    version = request.query_params.get("version")
    return tagged(request, await plane.documents.graph(caller_of(request), _path(request), version))


# ------------------------------------------------------------------------------ writers


async def _register(plane: Plane, request: Request) -> Response:
    body = await read(request, Register)
    made = await plane.registration.register(body, caller_of(request))
    audited(request, f"{made.path}@{made.version}", digest=made.digest, changed=made.changed)
    return json(made, 201 if made.changed else 200, {"ETag": f'"{made.digest}"'})


async def _promote(plane: Plane, request: Request) -> Response:
    path, body = _path(request), await read(request, Promote)
    audited(request, f"{path}@{body.version}")
    made = await plane.registration.promote(caller_of(request), path, body)
    audited(request, f"{path}@{made.version}", previous=made.previous, changed=made.changed)
    return json(made)


async def _delete(plane: Plane, request: Request) -> Response:
    body = await read(request, Removal)
    audited(request, body.path)
    return _settled(request, await plane.registration.remove(caller_of(request), body))


async def _archive(plane: Plane, request: Request) -> Response:
    body = await read(request, Removal)
    audited(request, body.path)
    return _settled(request, await plane.registration.archive(caller_of(request), body))


async def _restore(plane: Plane, request: Request) -> Response:
    body = await read(request, Removal)
    audited(request, body.path)
    return _settled(request, await plane.registration.restore(caller_of(request), body))


def _settled(request: Request, made: Settled) -> Response:
    audited(
        request, made.path, deleted=made.deleted, archived=made.archived, restored=made.restored
    )
    return json(made)


async def _test(plane: Plane, request: Request) -> Response:
    body = await read(request, RunTests)
    return json(await plane.trials.run(caller_of(request), _path(request), body))
