"""The document of the server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from noetl.edge.openapi import OF_SERVER, Book, document_of
from noetl.server.routes.openapi.codes import codes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.edge.openapi import Named

_BOOK: Final = Book(
    about=(
        "The control plane of NoETL. Errors are `application/problem+json` with a stable `code`; "
        "ids are decimal strings; lists are read in pages with `limit` and `cursor`."
    ),
    codes_of=codes_of,
    always=OF_SERVER,
    bare_tag="health",
)


def server_document(routes: Sequence[Named], url: str = "") -> dict[str, Any]:
    """Every route of the server, as OpenAPI; `url` is where it is seen from outside."""
    return document_of(routes, replace(_BOOK, url=url or _BOOK.url))
