"""Idempotency keys: the same wish of the same user twice is one run.

A key is taken before anything else is done. Whoever comes second waits until the first start is
known to have happened; a start that was left behind half done is done by him, under the same ids.
"""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from noetl.api.gateway import Accepted, Wish
from noetl.bus.base import BusGone
from noetl.bus.keys import KeyChanged
from noetl.edge.errors import Conflict
from noetl.gateway.errors import UpstreamUnavailable
from noetl.gateway.requests import record as rec

if TYPE_CHECKING:
    from noetl.gateway.requests.parts import Parts
    from noetl.gateway.requests.record import Record

LEFT_S: Final = 15.0
"""After this time the first start is not under way any more."""
LOOK_S: Final = 0.2
PATIENCE_S: Final = 20.0
"""How long the second waits for the first."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What stands under a key."""

    request_id: str
    execution_id: str
    body_sha256: str
    at: float
    """When it was taken, by the clock of the day."""


_decode: Final = msgspec.json.Decoder(Taken).decode
_encode: Final = msgspec.json.Encoder().encode


class Wishes:
    """The keys `i.*` of the bucket of requests."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def taken(self, owner: tuple[str, str], wish: Wish, draft: Record) -> Record | Accepted:
        """The request to start now, or what was started under the key before."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    found = await self._once(owner, wish, draft)
                    if found is not None:
                        return found
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise UpstreamUnavailable("a start under the same key is not done yet") from None
        except BusGone as fault:
            raise UpstreamUnavailable("the request cannot be kept now; nothing started") from fault

    async def freed(self, owner: tuple[str, str], wish: Wish) -> None:
        """Nothing was started: the key can be used again."""
        try:
            await self._parts.records.keys.delete(rec.wish_key(owner, str(wish.idempotency_key)))
        except BusGone:  # whoever uses it again finds that nothing was started
            self._parts.metrics.kv_errors.inc("requests", "delete")

    async def _once(
        self, owner: tuple[str, str], wish: Wish, draft: Record
    ) -> Record | Accepted | None:
        keys, key = self._parts.records.keys, rec.wish_key(owner, str(wish.idempotency_key))
        now = self._parts.clock.now().timestamp()
        ours = Taken(
            request_id=draft.request_id,
            execution_id=draft.execution_id,
            body_sha256=digest_of(wish),
            at=now,
        )
        entry = await keys.get(key)
        if entry is None:
            try:
                await keys.create(key, _encode(ours), rec.KEY_LIFE_S)
            except KeyChanged:
                return None
            return draft
        first = _decode(entry.value)
        if first.body_sha256 != ours.body_sha256:
            raise Conflict(
                "the key was used for another wish",
                code="dedup_conflict",
                hint="use a new key for a new wish",
            )
        state = await self._state_of(first)
        if state == "started":
            return Accepted(request_id=first.request_id, execution_id=first.execution_id)
        if state != "rejected" and now < first.at + LEFT_S:
            return None
        again = msgspec.structs.replace(first, at=now)
        try:
            await keys.update(key, _encode(again), entry.revision, rec.KEY_LIFE_S)
        except KeyChanged:
            return None
        await keys.delete(rec.key_of(first.request_id))  # of the start that was left behind
        return msgspec.structs.replace(
            draft, request_id=first.request_id, execution_id=first.execution_id
        )

    async def _state_of(self, first: Taken) -> Literal["started", "rejected", "unknown"]:
        """Whether the run of a key is there; its record may have been forgotten since."""
        kept = await self._parts.records.find(first.request_id)
        state = None if kept is None else kept.record.state
        if state not in {None, "accepted", "rejected"}:
            return "started"
        if await self._parts.rebuilds.status(first.execution_id) is not None:
            return "started"
        return "rejected" if state == "rejected" else "unknown"


def digest_of(wish: Wish) -> str:
    """All that is wished, but for the key itself."""
    body = msgspec.structs.replace(wish, idempotency_key=None)
    return sha256(msgspec.json.encode(body, order="sorted")).hexdigest()
