"""Bytes as an answer: as a whole, as the part that was asked for, or not at all when known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from starlette.responses import Response, StreamingResponse

from noetl.blobs.base import CHUNK_BYTES

if TYPE_CHECKING:
    from starlette.requests import Request

    from noetl.server.values.stored import Resolved

_RANGE: Final = re.compile(r"(\d{0,18})-(\d{0,18})", re.ASCII)
_UNIT: Final = "bytes="


async def answer_with(request: Request, found: Resolved) -> Response:
    """The bytes, or those that a header asks for; more than one range is refused."""
    tag = f'"{found.sha256}"'
    headers = {"ETag": tag, "Accept-Ranges": "bytes" if found.has_ranges else "none"}
    if _is_known(request.headers.get("if-none-match"), tag):
        return Response(status_code=304, headers=headers)
    asked = request.headers.get("range") if found.has_ranges else None
    if request.headers.get("if-range", tag) != tag:
        asked = None
    part = _part(asked, found.size or 0)
    if part is not None:
        return _partial(found, headers, *part)
    data = await _whole(found)
    if data is not None:
        return Response(data, media_type=found.media_type, headers=headers)
    if found.size is not None:
        headers["Content-Length"] = str(found.size)
    stream = found.bytes(0, None)
    return StreamingResponse(stream, media_type=found.media_type, headers=headers)


async def _whole(found: Resolved) -> bytes | None:
    """The bytes of a small value, which need no stream; none for a large one."""
    if found.size is None or found.size > CHUNK_BYTES:
        return None
    return b"".join([chunk async for chunk in found.bytes(0, None)])


def _partial(found: Resolved, headers: dict[str, str], first: int, last: int) -> Response:
    if not 0 <= first <= last:
        headers["Content-Range"] = f"bytes */{found.size}"
        return Response(status_code=416, headers=headers)
    headers["Content-Range"] = f"bytes {first}-{last}/{found.size}"
    headers["Content-Length"] = str(last - first + 1)
    stream = found.bytes(first, last)
    return StreamingResponse(stream, status_code=206, media_type=found.media_type, headers=headers)


def _is_known(given: str | None, tag: str) -> bool:
    """Whether the caller has these bytes; a weak tag is as good for that."""
    if given is None:
        return False
    tags = [one.strip().removeprefix("W/") for one in given.split(",")]
    return tag in tags or "*" in tags


def _part(asked: str | None, size: int) -> tuple[int, int] | None:
    """First and last byte of a range; none when the whole is wanted, (-1, -1) when it is unfit.

    What is no range of bytes is ignored, as HTTP wants it.
    """
    if asked is None or not asked.startswith(_UNIT):
        return None
    if "," in asked:
        return -1, -1
    found = _RANGE.fullmatch(asked.removeprefix(_UNIT).strip())
    if found is None or found[0] == "-":
        return None
    if not found[1]:
        count = int(found[2])
        return (max(0, size - count), size - 1) if count else (-1, -1)
    last = int(found[2]) if found[2] else size - 1
    return int(found[1]), min(last, size - 1)
