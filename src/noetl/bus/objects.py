"""A store of objects on NATS, message by message: what `noetl.blobs.spool` builds objects of.

What lies here may be the only copy. So a stream that keeps silent is never made anew, and every
answer comes from the leader of its stream, which knows the newest.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from noetl.bus import streams
from noetl.bus.base import BusGone, Letter
from noetl.bus.publishing import publish

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.bus.broker import Broker

_NO_MESSAGE: Final = 10037
_CHANGED: Final = frozenset({10071, 10164})
"""The broker has another last message of that subject."""


class NatsObjects:
    """The messages of one store; it is made when it is missing."""

    def __init__(self, broker: Broker, bucket: str) -> None:
        self.bucket = bucket
        self._broker = broker
        self._stream = streams.objects(bucket)

    async def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> int | None:
        """Keep a message; its sequence, or none when a header expects another last one."""
        letter = Letter(subject, payload, "", tuple((headers or {}).items()))
        try:
            kept, homeless = await publish(self._broker.here(), (letter,))
            if homeless:
                await self._make()
                kept, homeless = await publish(self._broker.here(), (letter,))
        except streams.ApiFault as fault:
            if fault.err_code in _CHANGED:
                return None
            raise
        if homeless:
            raise BusGone(f"no stream of the broker takes objects of {self.bucket}")
        return kept[0].seq

    async def last(self, subject: str) -> tuple[int, bytes] | None:
        """The newest message of a subject with its sequence."""
        return await self._get({"last_by_subj": subject})

    async def next(self, subject: str, seq: int) -> tuple[int, bytes] | None:
        """The first message of a subject from a sequence on."""
        return await self._get({"seq": seq, "next_by_subj": subject})

    async def subjects(self, pattern: str) -> list[str]:
        """The subjects with messages that fall under a pattern, in no order."""
        found: dict[str, int] = {}
        while True:
            asked = {"subjects_filter": pattern, "offset": len(found)}
            try:
                page = await self._broker.here().call(f"STREAM.INFO.{self._stream.name}", asked)
            except streams.ApiFault as fault:
                if fault.err_code == streams.NO_STREAM:
                    return []
                raise
            more = page["state"].get("subjects") or {}
            found |= more
            if not more or len(found) >= page.get("total", 0):
                return list(found)

    async def purge(self, subject: str) -> None:
        """Forget all messages of a subject."""
        try:
            verb = f"STREAM.PURGE.{self._stream.name}"
            await self._broker.here().call(verb, {"filter": subject})
        except streams.ApiFault as fault:
            if fault.err_code != streams.NO_STREAM:
                raise

    async def copies(self) -> int:
        """How many brokers keep each message of the store, which is made when it is missing."""
        asked = f"STREAM.INFO.{self._stream.name}"
        try:
            found = await self._broker.here().call(asked)
        except streams.ApiFault as fault:
            if fault.err_code != streams.NO_STREAM:
                raise
            await self._make()
            found = await self._broker.here().call(asked)
        return int(found["config"]["num_replicas"])

    async def _get(self, asked: Mapping[str, Any]) -> tuple[int, bytes] | None:
        try:
            verb = f"STREAM.MSG.GET.{self._stream.name}"
            found = await self._broker.here().call(verb, asked)
        except streams.ApiFault as fault:
            if fault.err_code in {_NO_MESSAGE, streams.NO_STREAM}:
                return None
            raise
        message = found["message"]
        return message["seq"], base64.b64decode(message.get("data", ""))

    async def _make(self) -> None:
        """Make the stream with as many copies as there are brokers, three at most."""
        link = self._broker.here()
        for copies in range(streams.MOST_COPIES, 0, -1):
            wanted = self._stream.config() | {"num_replicas": copies}
            try:
                await link.call(f"STREAM.CREATE.{self._stream.name}", wanted)
            except streams.ApiFault as fault:
                if fault.err_code == streams.NAME_TAKEN:
                    return  # somebody else just made it
                if copies == 1:
                    raise
            else:
                return
