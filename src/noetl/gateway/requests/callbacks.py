"""Callbacks of playbooks: who may call, what they say, and that nothing is lost once answered.

A result is kept at the server first, then noted in the record, then put into the log of the client;
only then is it answered. Whatever fails before makes the caller come again.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final, Literal

from noetl.api.problems import Refused
from noetl.bus.base import BusGone
from noetl.gateway.errors import (
    CallbackTokenMissing,
    CallbackTokenWrong,
    ExecutionMismatch,
    UnknownRequest,
    UpstreamUnavailable,
)
from noetl.gateway.requests import record as rec
from noetl.gateway.requests.ends import AWAY
from noetl.gateway.requests.outcomes import kept_small, of_callback, stored
from noetl.ids import InvalidId, parse

if TYPE_CHECKING:
    from noetl.api.gateway import Callback, Progress
    from noetl.gateway.requests.outcomes import Outcome
    from noetl.gateway.requests.parts import Parts
    from noetl.gateway.requests.progress import Pace
    from noetl.gateway.requests.record import Record

Given = Literal["delivered", "queued", "duplicate"]
RETRY_S: Final = 2.0
_FAULT: Final = 500
_OTHERS: Final = "digest_mismatch"


class Callbacks:
    """Takes callbacks."""

    def __init__(self, parts: Parts, pace: Pace) -> None:
        self._parts = parts
        self._pace = pace

    async def take(self, body: Callback, token: str | None, *, is_service: bool) -> Given:
        """The end of a request, as its playbook tells it."""
        record = await self._checked(body, token, is_service=is_service)
        outcome = of_callback(body.status, body.data, body.error, record.execution_id)
        if not record.is_open and (record.state != "timeout" or record.late_result is not None):
            return "duplicate"
        try:
            outcome = await self._kept(record, outcome)
            ended = await self._parts.ends.finish(record, outcome)
        except BusGone as fault:
            raise _later() from fault
        self._pace.drop(record.request_id)
        if not ended.is_first:
            return "duplicate"
        if ended.is_live:
            return "delivered"
        self._parts.metrics.callback_undelivered.inc()
        return "queued"

    async def progress(
        self, body: Progress, token: str | None, *, is_service: bool
    ) -> Literal["sent", "ignored"]:
        """How far a request is, as its playbook tells it."""
        record = await self._checked(body, token, is_service=is_service)
        if not record.is_open:
            return "ignored"
        try:
            await self._pace.send(record, body.step, body.message, body.progress)
        except BusGone as fault:
            raise _later() from fault
        return "sent"

    async def _checked(
        self, body: Callback | Progress, token: str | None, *, is_service: bool
    ) -> Record:
        """The request that a callback is for, if it may be told so."""
        shown = token or body.callback_token
        needs_token = self._parts.needs_token and not is_service
        if needs_token and not shown:
            raise CallbackTokenMissing(
                "the callback shows no token", hint="send `X-NoETL-Callback-Token`"
            )
        record = await self._found(body.request_id)
        if not is_service and shown:
            known = record.callback_hash or "-"
            if not hmac.compare_digest(rec.digest(shown).encode(), known.encode()):
                raise CallbackTokenWrong("the token is not that of this request")
        if body.execution_id is not None and not _is(body.execution_id, record.execution_id):
            raise ExecutionMismatch("the request has another run", hint="leave `execution_id` out")
        return record

    async def _found(self, request_id: str) -> Record:
        """A request by its record, or as the server knows it."""
        parts = self._parts
        try:
            kept = await parts.records.find(request_id)
            if kept is not None:
                return kept.record
            record = await parts.rebuilds.of_request(request_id)
            if record is None:
                raise UnknownRequest("there is no such request")
            return await parts.records.restore(record)
        except (BusGone, *AWAY) as fault:
            raise _later() from fault

    async def _kept(self, record: Record, outcome: Outcome) -> Outcome:
        """Keep an end at the server; the one that was kept first is the one that counts."""
        client = self._parts.upstream.service(record.execution_id)
        data = stored(outcome, late=record.state == "timeout")
        try:
            await client.put_request_result(
                record.request_id, data, execution_id=record.execution_id
            )
            return kept_small(outcome, record.execution_id, record.request_id)
        except Refused as refusal:
            if refusal.problem.status >= _FAULT:
                raise _later() from refusal
            if refusal.code != _OTHERS:
                raise
            first = await self._parts.rebuilds.stored(record)
        except AWAY as fault:
            raise _later() from fault
        if first is None:
            raise _later()
        return first[0]


def _is(given: str | int, known: str) -> bool:
    try:
        return parse(given) == known
    except InvalidId:
        return False


def _later() -> UpstreamUnavailable:
    return UpstreamUnavailable(
        "the callback cannot be kept now", hint="send it again", retry_after=RETRY_S
    )
