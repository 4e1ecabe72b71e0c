"""Requests that the bucket has lost, or has forgotten in time: the server knows them by their runs.

The first event of a run holds the request that it answers, the last one how it ended, and what a
callback left first is kept beside it.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.problems import Refused
from noetl.clock import rfc3339
from noetl.gateway.requests import record as rec
from noetl.gateway.requests.outcomes import (
    MOST_INLINE,
    TERMINAL,
    Outcome,
    kept_small,
    of_deadline,
    of_row,
    of_stored,
)
from noetl.gateway.requests.record import Record

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Container

    from noetl.api.client import Client
    from noetl.clock import Clock
    from noetl.gateway.upstream import Upstream

_ABSENT: Final = 404
_ENDED: Final = ("COMPLETED", "FAILED", "CANCELLED")
PAGE: Final = 200
"""Runs that the server lists at once."""
MOST_RUNS: Final = 10_000
"""Of a client's runs of a day so many, the newest, are looked through when its records are lost."""
TOGETHER: Final = 16
"""Runs that are asked for at the same time."""
MOST_EVENTS: Final = 1_000
"""Events that the server tells at once."""
RECENT_S: Final = 1800.0
"""A client is told again what has ended within this time."""


class Rebuilds:
    """Asks the server what became of requests."""

    def __init__(self, upstream: Upstream, clock: Clock) -> None:
        self._upstream = upstream
        self._clock = clock

    async def of_request(self, request_id: str, *, is_heard: bool = False) -> Record | None:
        """A request as its run tells it; none: nobody knows it.

        `is_heard` when the events of its run come by themselves, so that its end need not be read.
        """
        if not rec.is_name(request_id):
            return None
        page = await self._upstream.service().executions(request_id=request_id, limit=1)
        if not page.items:
            return None
        return await self.of_run(page.items[0].execution_id, is_heard=is_heard)

    async def of_run(self, execution_id: str, *, is_heard: bool = False) -> Record | None:
        """The request of a run, with its end if it has one; none: nobody waits for the run."""
        found = await self._begun(execution_id)
        return None if found is None else await self._with_end(found, is_heard=is_heard)

    async def of_client(
        self, client_id: str, owner: tuple[str, str], known: Container[str] = ()
    ) -> AsyncIterator[Record]:
        """What somebody's client waits for, or was not told yet for sure, newest first.

        `known` are runs that need not be asked for.
        """
        pages = self._recent(known, MOST_RUNS // PAGE, client_id=client_id)
        async with aclosing(pages):
            async for page in pages:
                for made in page:
                    if (made.owner, made.client_id) == (owner, client_id):
                        yield made

    def of_all(self) -> AsyncGenerator[list[Record]]:
        """What anybody waits for, or was not told yet for sure, newest first and bit by bit."""
        return self._recent(request_id="*")

    async def _recent(
        self, known: Container[str] = (), most_pages: int | None = None, **filters: str
    ) -> AsyncGenerator[list[Record]]:
        """Requests of runs of the last day that go on, or have ended a short while ago."""
        since = rfc3339(self._clock.now() - timedelta(seconds=rec.KEY_LIFE_S))
        recent = rfc3339(self._clock.now() - timedelta(seconds=RECENT_S))
        asked = {"since": since, **filters}
        for number in count():
            page = await self._upstream.service().executions(limit=PAGE, **asked)
            runs = [
                item.execution_id
                for item in page.items
                if item.execution_id not in known
                and (item.completed_at is None or item.completed_at >= recent)
            ]
            for start in range(0, max(1, len(runs)), TOGETHER):
                found = await asyncio.gather(*map(self.of_run, runs[start : start + TOGETHER]))
                yield [made for made in found if made is not None]
            if page.next_cursor is None or number + 1 == most_pages:
                return
            asked["cursor"] = page.next_cursor

    async def _begun(self, execution_id: str) -> Record | None:
        """The request of a run as it was when the run began; none: there is none."""
        client = self._upstream.service(execution_id)
        try:
            page = await client.events(execution_id, limit=1)
        except Refused as refusal:
            if refusal.problem.status == _ABSENT:
                return None
            raise
        return _record_of(page.items[0]) if page.items else None

    async def _with_end(self, record: Record, *, is_heard: bool) -> Record:
        """What a callback left first counts, then the deadline, then the run itself.

        A deadline that has passed a while ago was noted, and told, while the record was there.
        """
        now = self._clock.now()
        given = await self.stored(record)
        if given is not None and not given[1]:
            return rec.finished(record, given[0], rfc3339(now)) or record
        row = None if is_heard else await self.last_row(record.execution_id)
        ended_at = rec.moment(str(row["created_at"])) if row else now
        overdue_s = (ended_at - rec.moment(record.deadline)).total_seconds()
        is_late = overdue_s > (0 if row else rec.SLACK_S)
        if is_late:
            gone = of_deadline(record.execution_id)
            record = rec.finished(record, gone, record.deadline) or record
        end = given[0] if given is not None else None
        if row is not None:
            end = await self.outcome(row, record)
        if end is None:
            return record
        note = rec.ended_late if is_late else rec.finished
        return note(record, end, rfc3339(ended_at)) or record

    async def stored(self, record: Record) -> tuple[Outcome, bool] | None:
        """What a callback left at the server, and whether it came too late."""
        client = self._upstream.service(record.execution_id)
        try:
            body = await client.get_request_result(record.request_id)
        except Refused as refusal:
            if refusal.problem.status == _ABSENT:
                return None
            raise
        outcome, is_late = of_stored(body)
        return kept_small(outcome, record.execution_id, record.request_id), is_late

    async def last_row(self, execution_id: str) -> dict[str, Any] | None:
        """The event that ended a run; none while it goes on.

        It is looked for from the end of the log: only what was reported too late is behind it.
        """
        status = await self.status(execution_id)
        if status is None or not is_ended(status):
            return None
        client = self._upstream.service(execution_id)
        ask = partial(client.events, execution_id, limit=1, event_type=TERMINAL, order="desc")
        page = await ask()
        while not page.items and page.next_cursor is not None:
            page = await ask(cursor=page.next_cursor)
        return page.items[0] if page.items else None

    async def rows(self, execution_id: str, first: int, last: int) -> AsyncIterator[dict[str, Any]]:
        """The events of a commit that was too large for its message."""
        client = self._upstream.service(execution_id)
        while first <= last:
            limit = min(MOST_EVENTS, last - first + 1)
            page = await client.events(execution_id, after=first - 1, limit=limit)
            if not page.items:
                return
            for row in page.items:
                if row["seq"] <= last:
                    yield row
            first = page.items[-1]["seq"] + 1

    async def status(self, execution_id: str) -> str | None:
        """How far a run is; none: there is no such run."""
        try:
            return (await self._upstream.service(execution_id).status(execution_id)).status
        except Refused as refusal:
            if refusal.problem.status == _ABSENT:
                return None
            raise

    async def outcome(self, row: dict[str, Any], record: Record) -> Outcome:
        """The end that a run's last event tells, with its value if streams can carry it."""
        outcome = of_row(row, record.execution_id)
        ref = outcome.result_ref
        if ref is None or ref.bytes > MOST_INLINE:
            return kept_small(outcome, record.execution_id, record.request_id)
        value = await _value(self._upstream.service(record.execution_id), ref.ref)
        return outcome if value is None else Outcome(state="completed", result=value[0])


async def _value(client: Client, ref: str) -> tuple[Any] | None:
    """A stored value, if it is JSON."""
    try:
        return (msgspec.json.decode(await client.get_result(ref)),)
    except msgspec.DecodeError:
        return None


def is_ended(status: str) -> bool:
    """Whether a run with this status has ended."""
    return status in _ENDED


def _record_of(row: dict[str, Any]) -> Record | None:
    """The request that the first event of a run tells of."""
    meta = row.get("meta") or {}
    request = meta.get("request")
    if not isinstance(request, dict) or not request.get("request_id"):
        return None
    context = row.get("context") or {}
    at = str(row["created_at"])
    told = {name: value for name, value in request.items() if value is not None}
    if not told.get("user_id") or not told.get("deadline"):
        return None  # one of the gateway's own, for which nobody waits outside
    return msgspec.convert(
        {
            **told,
            "execution_id": row["execution_id"],
            "playbook_path": str(context.get("path", "")),
            "tenant": str(meta.get("tenant_id", "default")),
            "state": "running",
            "created_at": at,
            "changed_at": at,
        },
        Record,
        strict=False,
    )
