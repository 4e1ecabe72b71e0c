"""The web pages and the browser client, as `make ui` builds them.

Pages hold no script and no style of their own: what they need is loaded from this origin, and the
content policy says so. Files whose name tells their content are kept by browsers for ever.
"""

from __future__ import annotations

import mimetypes
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse, Response

from noetl.edge.errors import NotFound
from noetl.edge.tags import is_known
from noetl.gateway.cookies import Jar
from noetl.gateway.declaring import PUBLIC, Declared, route
from noetl.gateway.routes.auth import by_ticket

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from noetl.gateway.gate import Gate

STATIC: Final = Path(__file__).parents[1] / "static"
PAGE: Final = "index.html"
_UNKEPT: Final = {"Cache-Control": "no-store"}
_PLAIN: Final = {"X-Content-Type-Options": "nosniff"}
_HTML: Final = "text/html; charset=utf-8"
_FOREVER: Final = "public, max-age=31536000, immutable"
_ASKED_AGAIN: Final = "public, no-cache"
_TYPES: Final = {".js": "text/javascript", ".ts": "text/plain", ".css": "text/css"}
_UNBUILT: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>NoETL</title>"
    "<h1>The pages are not built</h1>"
    "<p>The gateway works; its pages are missing. Run <code>make ui</code>, then load this page "
    "again.</p></html>"
)
_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class Held:
    """A file in memory."""

    body: bytes
    media_type: str
    tag: str


class Shelf:
    """The built files, read once; one that was not there is looked for again."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._folder = folder
        self._files: dict[str, Held] = {}

    def find(self, name: str) -> Held | None:
        """A file by its path below the folder."""
        if PAGE not in self._files:
            self._files = self._read()
        return self._files.get(name)

    def page(self) -> Response:
        """The one page; the path tells it what to show."""
        found = self.find(PAGE)
        if found is None:
            return Response(_UNBUILT, 503, _UNKEPT, _HTML)
        return Response(found.body, 200, _UNKEPT, _HTML)

    def file(self, request: Request, name: str, caching: str) -> Response:
        """A file, unless the caller has it."""
        found = self.find(name)
        if found is None:
            raise NotFound(f"there is no {name}", hint="`make ui` builds the pages")
        headers = {**_PLAIN, "ETag": found.tag, "Cache-Control": caching}
        if is_known(request.headers.get("if-none-match", ""), found.tag):
            return Response(None, 304, headers)
        return Response(found.body, 200, headers, found.media_type)

    def _read(self) -> dict[str, Held]:
        found = sorted(path for path in self._folder.rglob("*") if path.is_file())
        return {
            path.relative_to(self._folder).as_posix(): _held(path)
            for path in found
            if not path.name.startswith(".")
        }


def _held(path: Path) -> Held:
    body = path.read_bytes()
    guessed = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    media_type = _TYPES.get(path.suffix, guessed)
    return Held(body, media_type, f'"{sha256(body).hexdigest()[:_DIGITS]}"')


def routes(gate: Gate, folder: Path = STATIC) -> list[BaseRoute]:
    """Every route of this file."""
    shelf = Shelf(folder)

    async def home(gate: Gate, request: Request) -> Response:
        """The playground; whoever has no session is shown where to sign in."""
        session = Jar.of(request, gate.settings.public_url).session(request)
        if not session and not gate.settings.is_auth_bypassed:
            return RedirectResponse("/login", 302, headers=_UNKEPT)
        return shelf.page()

    async def login(gate: Gate, request: Request) -> Response:
        return await by_ticket(gate, request) if "ticket" in request.query_params else shelf.page()

    async def asset(_: Gate, request: Request) -> Response:
        return shelf.file(request, f"ui/{request.path_params['path']}", _FOREVER)

    async def client(_: Gate, request: Request) -> Response:
        return shelf.file(request, request.url.path.removeprefix("/"), _ASKED_AGAIN)

    shown = Declared(
        about="A page of the web UI.", media_type="text/html", takes_any_query=True, span="ui"
    )
    kept = Declared(
        about="A file of the web UI, the same for ever.",
        media_type="application/octet-stream",
        also={304: None},
        span="ui",
    )
    return [
        route(gate, "GET", "/", home, PUBLIC, replace(shown, also={302: None})),
        route(gate, "GET", "/playground", home, PUBLIC, replace(shown, also={302: None})),
        route(gate, "GET", "/login", login, PUBLIC, replace(shown, also={302: None})),
        route(gate, "GET", "/ui/{path:path}", asset, PUBLIC, kept),
        route(gate, "GET", "/client/noetl-client.js", client, PUBLIC, replace(
            kept, about="The browser client.", media_type="text/javascript")),
        route(gate, "GET", "/client/noetl-client.d.ts", client, PUBLIC, replace(
            kept, about="The types of the browser client.", media_type="text/plain")),
    ]  # fmt: skip
