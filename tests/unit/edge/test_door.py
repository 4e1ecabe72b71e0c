"""From a request to its route."""

from __future__ import annotations

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from noetl.edge.door import Door, UndeclaredRoute
from tests.security.asking import sent


def route(path: str, *methods: str) -> Route:
    """A route that tells which one it is, and what its names stand for."""

    async def answer(request):
        named = ",".join(f"{key}={value}" for key, value in request.path_params.items())
        return PlainTextResponse(f"{path} {named}".strip())

    made = Route(path, answer, methods=list(methods or ("GET",)))
    made.permission = "public"
    return made


DOOR = Door([
    route("/api/things"),
    route("/api/things/new"),
    route("/api/things/{name}"),
    route("/api/things/{name}/parts/{part}"),
    route("/api/things/{name}", "DELETE"),
    route("/api/files/{path:path}"),
    route("/far/{path:path}"),
    route("/{name}"),
])  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "found"),
    [
        ("GET", "/api/things", "/api/things"),
        ("GET", "/api/things/new", "/api/things/new"),
        ("GET", "/api/things/old", "/api/things/{name} name=old"),
        ("DELETE", "/api/things/old", "/api/things/{name} name=old"),
        ("GET", "/api/things/a/parts/b", "/api/things/{name}/parts/{part} name=a,part=b"),
        ("GET", "/api/files/a/b/c/d", "/api/files/{path:path} path=a/b/c/d"),
        ("GET", "/far/a/b", "/far/{path:path} path=a/b"),
        ("GET", "/far/a", "/far/{path:path} path=a"),
        ("GET", "/far//a", "/far/{path:path} path=/a"),
        ("GET", "/docs", "/{name} name=docs"),
    ],
)
async def test_every_kind_of_path_is_found(method, path, found) -> None:
    told = await sent(DOOR, method, path, {})
    assert (told.status, told.body) == (200, found.encode())


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/things/a/b", 404),
        ("GET", "/api/things/", 404),
        ("POST", "/api/things/a", 405),
        ("GET", "/api/nothing/a", 404),
    ],
)
async def test_what_is_not_there_is_refused_by_the_router(method, path, status) -> None:
    assert (await sent(DOOR, method, path, {})).status == status


def test_a_route_without_a_permission_cannot_exist() -> None:
    with pytest.raises(UndeclaredRoute):
        Door([Route("/api/things/{name}", lambda _request: None)])
