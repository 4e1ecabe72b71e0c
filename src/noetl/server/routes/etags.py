"""Answers that a caller need not read twice."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response

from noetl.edge.reading import JSON
from noetl.edge.tags import is_known

if TYPE_CHECKING:
    from starlette.requests import Request

_DIGITS: Final = 32
_encode: Final = msgspec.json.Encoder().encode


def tagged(request: Request, value: object, about: object = None) -> Response:
    """An answer with its tag; 304 when the caller has it.

    The tag is that of the whole answer, or of what it is made from when the answer tells the time.
    """
    body = _encode(value)
    return tagged_bytes(request, body, body if about is None else _encode(about))


def tagged_bytes(request: Request, body: bytes, about: bytes, media_type: str = JSON) -> Response:
    """An answer that is written already."""
    tag = f'"{sha256(about).hexdigest()[:_DIGITS]}"'
    headers = {"ETag": tag}
    if is_known(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)
