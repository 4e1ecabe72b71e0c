"""Documents as they come in and as they are read: large ones apart from the loop."""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from typing import TYPE_CHECKING, Final

from noetl.dsl.codes import CODES
from noetl.dsl.metadata import is_path
from noetl.dsl.parse import parse
from noetl.dsl.plugins import STORED
from noetl.edge.errors import TooLarge, Unacceptable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    from noetl.dsl.diagnostics import Diagnostic
    from noetl.dsl.parse import Parsed
    from noetl.dsl.plugins import Plugins
    from noetl.server.metrics import ServerMetrics

    T = TypeVar("T")

MOST_BYTES: Final = 1024 * 1024
SMALL: Final = 16 * 1024
"""Read at once; a larger document would keep all others waiting."""


def content_of(content: str, encoding: str) -> str:
    """The text of a document, which may be packed."""
    if encoding == "base64":
        try:
            content = b64decode(content, validate=True).decode()
        except (binascii.Error, ValueError):
            raise Unacceptable(
                "`content` is not text in base64",
                errors=({"pointer": "/content", "code": "bad_value"},),
            ) from None
    if len(content.encode()) > MOST_BYTES:
        raise TooLarge(f"a document has at most {MOST_BYTES} bytes")
    return content


def count(metrics: ServerMetrics, found: Iterable[Diagnostic]) -> None:
    """Count what was found in a document."""
    for item in found:
        if item.code in CODES:
            metrics.dsl_diagnostics.inc(item.code)


async def parsed_of(content: str, plugins: Plugins = STORED) -> Parsed:
    """A document, read; one that comes in is judged with the plug-ins that workers have."""
    return await aside(len(content), lambda: parse(content, plugins=plugins))


async def aside(size: int, work: Callable[[], T]) -> T:
    """What work gives; when it is much, it is done in a thread."""
    return work() if size <= SMALL else await asyncio.to_thread(work)


def must_be_path(path: str) -> str:
    """Refuse what cannot be a path, however it would be read elsewhere."""
    if not is_path(path):
        raise Unacceptable(
            f"`{path[:80]}` is not a catalog path",
            code="path_invalid",
            hint="names of letters, digits, `_`, `.` and `-`, with `/` between them",
        )
    return path
