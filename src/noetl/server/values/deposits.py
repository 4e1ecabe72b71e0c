"""Bytes that the platform's own processes leave for each other: objects, and results of requests.

What was left first stays: the same bytes again are the same deposit, others are refused.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from noetl.api.callbacks import ObjectKept, RequestResultKept
from noetl.blobs.base import JSON, InvalidKey, Stat, checked
from noetl.clock import rfc3339
from noetl.edge.errors import Conflict, NotFound, Unacceptable
from noetl.edge.moments import from_now
from noetl.server.values.spooled import HEAD_BYTES
from noetl.store.stored import RequestRow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.blobs.base import Blobs
    from noetl.clock import Clock
    from noetl.server.values.spooled import Spooled
    from noetl.server.values.stored import Bytes
    from noetl.store.base import Roles
    from noetl.store.stored import Requests

REQUEST_S: Final = 7 * 86_400.0
"""How long the result of a request is kept, unless its run is forgotten before."""
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


class Deposits:
    """Takes bytes, and gives them back."""

    def __init__(self, blobs: Blobs, requests: Requests, roles: Roles, clock: Clock) -> None:
        self._blobs = blobs
        self._requests = requests
        self._roles = roles
        self._clock = clock

    async def put_object(self, key: str, body: Spooled, media_type: str) -> tuple[ObjectKept, bool]:
        """Keep an object; whether it is new. Other bytes under the same key are refused."""
        place = _place(key, media_type)
        told = ObjectKept(key=key, size=body.size, sha256=body.sha256)
        async with self._roles.exclusive(place):  # two that come at once: one of them is the first
            found = await self._blobs.head(place)
            if found is None:
                await self._blobs.put_stream(place, body.chunks(), media_type=media_type)
                return told, True
        if found.sha256 != body.sha256:
            raise _others(f"the object {key}")
        return told, False

    async def object(self, key: str) -> tuple[Stat, Bytes]:
        """What is known of an object, and its bytes."""
        return await self._opened(_place(key), f"there is no object {key[:200]!r}")

    async def put_result(
        self, request_id: str, body: Spooled, media_type: str, execution_id: str | None
    ) -> RequestResultKept:
        """Keep the result of a request; the first one counts, another one is refused."""
        _must_name(request_id)
        now = rfc3339(self._clock.now())
        place = _result_place(request_id, body.sha256, media_type)
        is_small = body.size <= HEAD_BYTES  # one commit keeps it, however slow the disk is
        if not is_small:
            await self._blobs.put_stream(place, body.chunks(), media_type=media_type)
        row = RequestRow(
            request_id=request_id,
            sha256=body.sha256,
            execution_id=execution_id,
            created_at=now,
            expires_at=from_now(self._clock, REQUEST_S),
            body=body.head if is_small else None,
            media_type=media_type,
        )
        first = await self._requests.first(row, now)
        if first.sha256 != body.sha256:
            if not is_small:
                await self._blobs.delete(place)
            raise _others(f"the result of the request {request_id}")
        return RequestResultKept(
            request_id=request_id,
            size=body.size,
            sha256=body.sha256,
            status="stored" if first == row else "duplicate",
        )

    async def result(self, request_id: str) -> tuple[Stat, Bytes]:
        """What is known of the result of a request, and its bytes."""
        _must_name(request_id)
        absent = f"the request {request_id} has no result"
        row = await self._requests.get(request_id, rfc3339(self._clock.now()))
        if row is None:
            raise NotFound(absent)
        place = _result_place(request_id, row.sha256)
        if row.body is None:
            return await self._opened(place, absent)
        stat = Stat(
            key=place,
            size=len(row.body),
            sha256=row.sha256,
            media_type=row.media_type or JSON,
        )
        return stat, partial(_part_of, row.body)

    async def _opened(self, place: str, absent: str) -> tuple[Stat, Bytes]:
        stat = await self._blobs.head(place)
        if stat is None:
            raise NotFound(absent)
        return stat, partial(self._blobs.get_stream, place)


async def _part_of(data: bytes, first: int = 0, last: int | None = None) -> AsyncIterator[bytes]:
    """The bytes from `first` to `last`, as the object store gives them."""
    yield data[first : None if last is None else last + 1]


def _place(key: str, media_type: str = "application/octet-stream") -> str:
    try:
        return checked(f"objects/{key}", media_type)
    except InvalidKey as fault:
        raise Unacceptable(fault.message, hint=fault.hint) from None


def _result_place(request_id: str, sha256: str, media_type: str = "application/json") -> str:
    try:
        return checked(f"requests/{request_id}/{sha256}", media_type)
    except InvalidKey as fault:
        raise Unacceptable(fault.message, hint=fault.hint) from None


def _must_name(request_id: str) -> None:
    if not _REQUEST_ID.match(request_id):
        raise Unacceptable(f"{request_id[:80]!r} is not the name of a request")


def _others(what: str) -> Conflict:
    return Conflict(
        f"{what} is there already, with other bytes",
        code="digest_mismatch",
        hint="what was left first stays; use another name",
    )
