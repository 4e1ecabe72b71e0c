"""What is told of requests: to whoever asks, to clients that come back, and the whole results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.problems import Refused
from noetl.bus.base import BusGone
from noetl.edge.errors import NotFound
from noetl.gateway.errors import UnknownRequest, UpstreamUnavailable
from noetl.gateway.requests import record as rec
from noetl.gateway.requests.outcomes import LONGEST_HEAD, head_of, is_callback_ref

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from noetl.api.gateway import RequestDocument
    from noetl.gateway.person import Person
    from noetl.gateway.requests.parts import Parts
    from noetl.gateway.requests.record import Record

JSON: Final = "application/json"
LOOK_S: Final = 0.5
"""How often a request is looked at that may end at another gateway, while there is no bus."""
LOST_S: Final = 15.0
"""After this time a request that is followed is looked at without a word of its change."""
_HIDDEN: Final = frozenset({403, 404})
_encode: Final = msgspec.json.Encoder().encode

Body = AsyncIterator[bytes]


class Reads:
    """Tells of requests."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def found(self, request_id: str) -> Record:
        """A request, by its record or by its run."""
        parts = self._parts
        try:
            kept = await parts.records.find(request_id)
            if kept is not None:
                return kept.record
        except BusGone:  # the server knows it as well
            record = await parts.rebuilds.of_request(request_id)
        else:
            record = await parts.rebuilds.of_request(request_id)
            if record is not None:
                return await parts.records.restore(record)
        if record is None:
            raise _unknown()
        return record

    async def owned(self, person: Person, request_id: str) -> Record:
        """A request of somebody, or one of a run that he may read."""
        record = await self.found(request_id)
        await self._must_see(person, record)
        return record

    async def of_execution(self, person: Person, execution_id: str) -> Record:
        """The request of a run."""
        records = self._parts.records
        listed = records.below(rec.of_execution(execution_id))
        found = [record async for record in listed if record.execution_id == execution_id]
        if not found:
            made = await self._parts.rebuilds.of_run(execution_id)
            if made is None:
                raise _unknown()
            found = [await records.restore(made)]
        await self._must_see(person, found[0])
        return found[0]

    async def _must_see(self, person: Person, record: Record) -> None:
        if record.owner == person.owner:
            return
        client = self._parts.upstream.acting_for(person, record.execution_id)
        try:
            await client.status(record.execution_id)
        except Refused as refusal:
            if refusal.problem.status in _HIDDEN:
                raise _unknown() from None
            raise

    async def waited(self, record: Record, wait_s: float) -> Record:
        """The request when it has ended, or after a while as it is then."""
        limit = asyncio.timeout(wait_s)
        try:
            async with limit:
                while record.is_open:
                    record = await self._changed(record)
        except TimeoutError:
            if not limit.expired():
                raise
        return record

    async def _changed(self, record: Record) -> Record:
        """A request that was open, when it has ended or the bus tells no more of it."""
        parts = self._parts
        try:
            async with (
                parts.records.keys.watch(rec.key_of(record.request_id)) as changes,
                aclosing(_looks(changes)) as looks,
            ):
                async for _ in looks:
                    record = await self.found(record.request_id)
                    if not record.is_open:
                        break
        except BusGone:  # this gateway hears of ends at other ones when it looks
            await parts.ends.wait(record.request_id, LOOK_S)
            record = await self.found(record.request_id)
        return record

    async def followed(self, person: Person, request_id: str) -> AsyncIterator[Record]:
        """A request as it is now, then each time it has changed; the last one is its end.

        Whether he may see it is looked at each time.
        """
        record = await self.owned(person, request_id)
        yield record
        keys, told = self._parts.records.keys, record
        while told.is_open:
            async with (
                keys.watch(rec.key_of(told.request_id)) as changes,
                aclosing(_looks(changes)) as looks,
            ):
                async for _ in looks:
                    record = await self.owned(person, request_id)
                    if rec.document_of(record) != rec.document_of(told):
                        yield record
                    told = record
                    if not told.is_open:
                        break

    async def listed(self, person: Person, limit: int) -> list[RequestDocument]:
        """The newest requests of somebody."""
        found: list[RequestDocument] = []
        async with aclosing(self._parts.records.below(rec.of_user(person.user_id))) as listed:
            async for record in listed:
                if record.owner == person.owner:
                    found.append(rec.document_of(record))
                if len(found) >= limit:
                    break
        return found

    # ---------------------------------------------------------------- clients that come back

    async def pending(self, person: Person, client_id: str) -> list[dict[str, Any]]:
        """What a client of somebody waits for."""
        return [
            {
                "requestId": record.request_id,
                "executionId": record.execution_id,
                "playbookPath": record.playbook_path,
                "deadline": record.deadline,
            }
            async for record in self._parts.records.below(rec.of_client(client_id))
            if record.is_open and _is_of(record, person, client_id)
        ]

    async def restored(self, person: Person, client_id: str) -> None:
        """Know again what a client waits for, after the bucket may have been lost."""
        records, rebuilds = self._parts.records, self._parts.rebuilds
        known = {each.execution_id async for each in records.below(rec.of_client(client_id))}
        async for record in rebuilds.of_client(client_id, person.owner, known):
            await records.restore(record)

    async def undelivered(
        self, person: Person, client_id: str, *, is_known: bool = False
    ) -> AsyncGenerator[RequestDocument]:
        """What has ended without the client having said that it knows, oldest first.

        A client that was told something before (`is_known`) was told what goes to all clients
        of its session or its user as well.
        """
        above = rec.of_user(person.user_id) if is_known else rec.of_client(client_id)
        async with aclosing(self._parts.records.below(above, is_ascending=True)) as listed:
            async for record in listed:
                is_his = _is_of(record, person, client_id) or (
                    is_known and _is_shared(record, person)
                )
                is_ended = not record.is_open and record.state != "rejected"
                if is_his and is_ended and client_id not in record.delivered_at:
                    yield rec.document_of(record)

    async def acknowledged(self, client_id: str, request_id: str) -> None:
        """A client has a result."""
        now = self._parts.records.now()
        await self._parts.records.change(
            request_id, lambda each: rec.acknowledged(each, client_id, now)
        )

    # ---------------------------------------------------------------- whole results

    async def result(self, person: Person, request_id: str) -> tuple[Body, str]:
        """The whole result of a request as it comes, and its media type."""
        record = await self.owned(person, request_id)
        if record.is_open or record.error is not None:
            raise NotFound("the request has no result", hint="look at its state")
        ref = record.result_ref
        if ref is None:
            return _once(_encode(record.result)), JSON
        client = self._parts.upstream.service(record.execution_id)
        if is_callback_ref(ref.ref, record.request_id):
            return await _begun(_cut(client.get_request_result_stream(record.request_id))), JSON
        return await _begun(client.get_result_stream(ref.ref)), JSON


def _is_of(record: Record, person: Person, client_id: str) -> bool:
    """Whether a client asked for it while it was somebody's; names of indexes may be alike."""
    return (record.client_id, record.owner) == (client_id, person.owner)


def _is_shared(record: Record, person: Person) -> bool:
    """Whether an end goes to every client of somebody's session, or of himself."""
    if record.client_id or record.delivery not in {"session", "user"}:
        return False
    if record.owner != person.owner:
        return False
    return record.delivery == "user" or record.session_id == person.session_id


async def _looks(changes: AsyncIterator[object]) -> AsyncGenerator[None]:
    """When to look: at once, after each change, and now and then, since a word may be lost."""
    yield None
    coming = asyncio.ensure_future(_heard(changes))
    try:
        while True:
            await asyncio.wait((coming,), timeout=LOST_S)
            if coming.done():
                if not coming.result():
                    break  # the bus was closed
                coming = asyncio.ensure_future(_heard(changes))
            yield None
    finally:
        coming.cancel()


async def _heard(changes: AsyncIterator[object]) -> bool:
    return await anext(changes, None) is not None


async def _once(data: bytes) -> Body:
    yield data


async def _begun(body: Body) -> Body:
    """A body whose first bytes have come: what is refused is refused before an answer begins."""
    first = await anext(aiter(body), b"")

    async def rest() -> Body:
        yield first
        async for chunk in body:
            yield chunk

    return rest()


async def _cut(chunks: Body) -> Body:
    """The value out of what a callback left: all behind the head, but for the last byte."""
    waiting, is_begun = b"", False
    async for chunk in chunks:
        waiting += chunk
        if not is_begun and len(waiting) >= LONGEST_HEAD:
            begin = head_of(waiting)
            if begin is None:
                raise UpstreamUnavailable("what the callback left has no value")
            waiting, is_begun = waiting[begin:], True
        if is_begun and len(waiting) > 1:
            yield waiting[:-1]
            waiting = waiting[-1:]
    if not is_begun:
        begin = head_of(waiting)
        if begin is None:
            raise UpstreamUnavailable("what the callback left has no value")
        yield waiting[begin:-1]


def _unknown() -> UnknownRequest:
    return UnknownRequest("there is no such request")
