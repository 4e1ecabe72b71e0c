"""From a wish to a run: the request is kept before the server is asked to start anything."""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.executions import Execute, Rerun
from noetl.api.gateway import Accepted, Wish
from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.bus.base import BusGone
from noetl.clock import rfc3339
from noetl.edge.errors import Unacceptable
from noetl.gateway.errors import (
    ClientNotYours,
    UpstreamTimeout,
    UpstreamUnavailable,
    rpc_of,
)
from noetl.gateway.requests import record as rec
from noetl.gateway.requests.record import Record
from noetl.ids import parse, random_uuid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.gateway.person import Person
    from noetl.gateway.requests.parts import Parts
    from noetl.gateway.requests.wishes import Wishes

MOST_DEADLINE_S: Final = 86_400
RETRY_S: Final = 10.0
"""How long a start whose fate is not known is tried again."""
ALLOWED_S: Final = 5.0
"""How long the server's word that somebody may run a playbook is believed before it is asked."""
MOST_ALLOWED: Final = 10_000
_FIRST_S: Final = 0.1
_LONGEST_S: Final = 1.0
_TOKEN_BYTES: Final = 32
_UNSURE: Final = frozenset({408, 500, 502, 503, 504})
_INJECTED: Final = ("request_id", "gateway_url", "callback_token")


class Starts:
    """Starts runs for people."""

    def __init__(self, parts: Parts, wishes: Wishes) -> None:
        self._parts = parts
        self._wishes = wishes
        self._allowed: dict[tuple[str, ...], float] = {}

    async def start(self, person: Person, wish: Wish) -> Accepted:
        """Start a run; the answer means that its end will be told."""
        await self._must_be_fit(person, wish)
        await self._must_be_allowed(person, wish)
        draft = self._drafted(person, wish)
        if wish.idempotency_key is None:
            return await self._begun(person, wish, draft)
        taken = await self._wishes.taken(person.owner, wish, draft)
        if isinstance(taken, Accepted):
            return taken
        try:
            return await self._begun(person, wish, taken)
        except UpstreamUnavailable as fault:
            if fault.execution_id is None:  # nothing was started: the key is free again
                await self._wishes.freed(person.owner, wish)
            raise
        except Refused:
            await self._wishes.freed(person.owner, wish)
            raise

    async def _must_be_fit(self, person: Person, wish: Wish) -> None:
        if not wish.name.strip():
            raise _unfit("name", "is empty")
        given: Any = wish.variables
        if given is not None and not isinstance(given, dict):
            raise _unfit("variables", "is not an object")
        if wish.timeout_secs is not None and not 1 <= wish.timeout_secs <= MOST_DEADLINE_S:
            raise _unfit("timeoutSecs", f"is not in 1..{MOST_DEADLINE_S}")
        if wish.idempotency_key is not None and not 1 <= len(wish.idempotency_key) <= 200:  # noqa: PLR2004 - as the server has it
            raise _unfit("idempotencyKey", "has 1..200 characters")
        if wish.client_id is None:
            if wish.delivery == "client":
                raise _unfit("clientId", "is missing: the result is to go to one client")
        elif not await self._parts.hub.owns(person, wish.client_id):
            raise ClientNotYours("the client belongs to another session, or is not known")

    async def _must_be_allowed(self, person: Person, wish: Wish) -> None:
        """Ask the server whether somebody may run a playbook, unless it has just said so."""
        now = self._parts.clock.monotonic()
        name = (person.user_id, person.tenant, *person.roles, "", wish.name, str(wish.version))
        if self._allowed.get(name, now) > now:
            return
        asked = Execute(path=wish.name, version=wish.version, resource_kind=wish.resource_kind)
        try:
            await self._parts.upstream.acting_for(person).rehearse(asked)
        except (NoAnswer, UpstreamTimeout) as fault:
            raise UpstreamUnavailable("the server cannot be asked now") from fault
        if len(self._allowed) >= MOST_ALLOWED:
            self._allowed.clear()
        self._allowed[name] = now + ALLOWED_S

    def _drafted(self, person: Person, wish: Wish) -> Record:
        parts, now = self._parts, self._parts.clock.now()
        seconds = wish.timeout_secs or parts.deadline_s
        delivery = wish.delivery or ("client" if wish.client_id else "session")
        return Record(
            request_id=random_uuid(),
            execution_id=parts.ids.new(),
            playbook_path=wish.name.partition("@")[0],
            user_id=person.user_id,
            session_id=person.session_id,
            client_id=wish.client_id or "",
            tenant=person.tenant,
            delivery=delivery,
            on_timeout=wish.on_timeout,
            created_at=rfc3339(now),
            changed_at=rfc3339(now),
            deadline=rfc3339(now + timedelta(seconds=seconds)),
        )

    async def _begun(self, person: Person, wish: Wish, draft: Record) -> Accepted:
        record, added = draft, dict[str, Any]()
        if wish.client_id or wish.delivery:
            record, added = self._injected(draft)
        body = Execute(
            execution_id=record.execution_id,
            path=wish.name,
            version=wish.version,
            workload={**(wish.variables or {}), **added},
            resource_kind=wish.resource_kind,
            request=request_of(record),
        )
        client = self._parts.upstream.acting_for(person, record.execution_id)
        return await self._run(record, lambda: client.execute(body))

    async def rerun(
        self,
        person: Person,
        execution_id: str,
        variables: dict[str, Any] | None,
        client_id: str | None,
    ) -> Accepted:
        """Run a playbook again, with other variables or the same."""
        upstream, first = self._parts.upstream, parse(execution_id)
        item = await upstream.acting_for(person, first).execution(first, with_state=False)
        wish = Wish(name=item.path, client_id=client_id, variables=variables)
        await self._must_be_fit(person, wish)
        record, added = self._drafted(person, wish), dict[str, Any]()
        if client_id:
            record, added = self._injected(record)
        body = Rerun(
            payload=variables,
            execution_id=record.execution_id,
            request=request_of(record),
            added=added,
        )
        client = upstream.acting_for(person, record.execution_id)
        return await self._run(record, lambda: client.rerun(first, body))

    def _injected(self, draft: Record) -> tuple[Record, dict[str, Any]]:
        """A request whose playbook can call back, and what the playbook is told for that."""
        callback_token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._parts.seen.add(callback_token)
        record = msgspec.structs.replace(draft, callback_hash=rec.digest(callback_token))
        told = (record.request_id, self._parts.gateway_url, callback_token)
        return record, dict(zip(_INJECTED, told, strict=True))

    async def _run(self, record: Record, call: Callable[[], Awaitable[object]]) -> Accepted:
        """Keep a request, then start its run by a call that may be repeated."""
        records = self._parts.records
        try:
            await records.add(record)
        except BusGone as fault:
            raise UpstreamUnavailable("the request cannot be kept now; nothing started") from fault
        try:
            await self._started(record, call)
        except Refused as refusal:
            await self._refused(record, refusal)
            raise
        try:
            now = records.now()
            await records.change(record.request_id, lambda each: rec.running(each, now))
        except BusGone:
            pass  # it runs; whoever hears of it first notes it
        return Accepted(request_id=record.request_id, execution_id=record.execution_id)

    async def _started(self, record: Record, call: Callable[[], Awaitable[object]]) -> None:
        """Start a run under its id, again and again while nobody can say whether it was."""
        wait_s, is_unknown = _FIRST_S, False
        try:
            async with asyncio.timeout(RETRY_S):
                while True:
                    try:
                        await call()
                    except (NoAnswer, UpstreamTimeout, UpstreamUnavailable):
                        is_unknown = True
                    except Refused as refusal:
                        if not is_unsure(refusal):
                            if is_unknown and await self._is_there(record):
                                return  # what was not answered had been done
                            raise
                        is_unknown = True
                    else:
                        return
                    await asyncio.sleep(wait_s)
                    wait_s = min(_LONGEST_S, wait_s * 2)
        except TimeoutError:
            raise UpstreamUnavailable(
                "the server does not say whether the run was started",
                hint="ask for the run, or wait for its result",
                execution_id=record.execution_id,
            ) from None

    async def _is_there(self, record: Record) -> bool:
        return await self._parts.rebuilds.status(record.execution_id) is not None

    async def _refused(self, record: Record, refusal: Refused) -> None:
        """Note that nothing was started; nobody waits for it."""
        records, why = self._parts.records, rpc_of(refusal)
        now = records.now()
        try:
            found = await records.change(
                record.request_id, lambda each: rec.rejected(each, why, now)
            )
            if found is not None and found[1]:
                await records.close(record)
        except BusGone:
            pass  # the caller is told; whoever sweeps finds that there is no run


def request_of(record: Record) -> dict[str, Any]:
    """What the run keeps of its request, so that it can be found again."""
    told: dict[str, Any] = {
        "request_id": record.request_id,
        "user_id": record.user_id,
        "session_id": record.session_id,
        "client_id": record.client_id or None,
        "delivery": record.delivery,
        "deadline": record.deadline,
        "callback_hash": record.callback_hash or None,
    }
    if record.on_timeout != "leave":
        told["on_timeout"] = record.on_timeout
    return told


def is_unsure(refusal: Refused) -> bool:
    """Whether a refusal leaves open what was done."""
    problem = refusal.problem
    return problem.status in _UNSURE or problem.code == "version_conflict"


def _unfit(name: str, what: str) -> Unacceptable:
    return Unacceptable(
        f"`{name}` {what}", errors=({"pointer": f"/{name}", "code": "validation_failed"},)
    )
