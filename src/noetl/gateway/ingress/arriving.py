"""Deliveries as they arrive: judged in one order, handed on when they are believed, and answered.

What a stranger can cause is done first and is cheap: a look at two numbers, a bucket and a name
that is remembered. Nothing asks the server before a name is known that no one has asked for.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from noetl.api.ingress import Sent
from noetl.blobs.spool.base import SpoolError
from noetl.dsl.subscription.ingress import CloudEventsChallenge, MetaChallenge
from noetl.edge.door import BODY, SLOW
from noetl.edge.errors import Unacceptable
from noetl.edge.problems import REQUEST_ID
from noetl.errors import NoetlError
from noetl.gateway.ingress.accounts import Case
from noetl.gateway.ingress.answers import (
    LEFT,
    answer_of,
    failed,
    rejected,
    reply_of,
    response_of,
)
from noetl.gateway.ingress.challenge import (
    ChallengeRefused,
    Reply,
    cloudevents_reply,
    meta_reply,
)
from noetl.gateway.ingress.envelope import Arrival
from noetl.gateway.ingress.listeners import NAME, ConfigUnavailable
from noetl.gateway.ingress.pipeline import (
    Judging,
    admit,
    head_of,
    received,
    verify_then_plan,
)
from noetl.gateway.ingress.reading import Bodies
from noetl.gateway.ingress.refusals import (
    BAD_METHOD,
    CONFIG_UNAVAILABLE,
    DISPATCH_FAILED,
    OVERLOADED,
    RATE_LIMITED,
    SPOOL_UNAVAILABLE,
    UNKNOWN_LISTENER,
    TurnedAway,
)
from noetl.gateway.ingress.verify.signatures import ANY_TIME
from noetl.gateway.ingress.verify.verdict import wanted
from noetl.gateway.tracing import spanned
from noetl.sources import directives

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from noetl.api.ingress import SendAgain
    from noetl.clock import Clock
    from noetl.gateway.ingress.accounts import Accounts
    from noetl.gateway.ingress.answers import Answer
    from noetl.gateway.ingress.listeners import Known, Listeners
    from noetl.gateway.ingress.pipeline import Admitted, Planned, Resolve
    from noetl.gateway.ingress.ports import Desk
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.verdict import Known as Proving
    from noetl.gateway.limits import Limits
    from noetl.gateway.metrics import GatewayMetrics
    from noetl.gateway.oidc.keyrings import Keyrings
    from noetl.gateway.peers import Peers
    from noetl.gateway.tracing import Spanned
    from noetl.telemetry.traces.tracer import Tracer

SCOPE: Final = "ingress"
"""Of the buckets by listener and address."""
DESK_S: Final = 10.0
"""How long a delivery may take after it was believed; who takes it has less for himself."""
CLOSING_S: Final = 2.0
SLOW_S: Final = 1.0
"""How long the next request waits on a connection of an address that sends too much."""
HEAVY_BYTES: Final = 256 * 1024
"""A longer body is judged beside the loop, so that nobody waits for it."""
SPAN: Final = "gateway.ingress"
_PER_SEC: Final = 100.0
_POST: Final = "POST"
_log: Final = logging.getLogger(__name__)


class Arrivals:
    """Everything between a sender and whoever runs its deliveries."""

    def __init__(  # noqa: PLR0913 - its parts, met in one place
        self,
        *,
        listeners: Listeners,
        accounts: Accounts,
        keyrings: Keyrings,
        limits: Limits,
        peers: Peers,
        clock: Clock,
        metrics: GatewayMetrics,
        desk: Desk,
        most: int,
        tracer: Tracer | None = None,
        resolve: Resolve = directives.resolve,
    ) -> None:
        self.listeners = listeners
        self.accounts = accounts
        self.desk = desk
        """Who runs deliveries."""
        self._keyrings = keyrings
        self._limits = limits
        self._peers = peers
        self._clock = clock
        self._metrics = metrics
        self._most = most
        self._tracer = tracer
        self._resolve = resolve
        self._bodies = Bodies()
        self._under_way = 0
        metrics.ingress_in_flight.source = lambda: {(): float(self._under_way)}

    # ------------------------------------------------------------------ a sender

    async def answer(self, request: Request) -> Response:
        """Judge one request, and answer it."""
        name: str = request.path_params["listener"]
        case = Case(listener=name, began=self._clock.monotonic())
        case.known, case.remote_ip = self.listeners.peek(name), self._peers.address(request)
        self._under_way += 1
        try:
            self._must_have_room()
            return await self._judged(request, case)
        except TurnedAway as refusal:
            return self._turned_away(request, case, refusal)
        finally:
            self._under_way -= 1
            self._metrics.ingress_received.inc(case.label)

    async def _judged(self, request: Request, case: Case) -> Response:
        scope = request.scope
        raw_path = scope.get("raw_path") or scope["path"].encode()
        case.head = head_of(
            scope["method"], raw_path.decode("latin-1"), scope["query_string"], scope["headers"]
        )
        self._must_be_seldom(case)
        known = case.known = await self._found(case.listener)
        self.accounts.number(case)
        admitted = admit(known, case.head, _arrival(case, known))
        about = {"listener": known.listener, "http.request.method": case.head.method}
        with spanned(self._tracer, SPAN, None, about) as span:
            try:
                if case.head.method == _POST:
                    response = await self._taken(request, admitted, case, span)
                else:
                    response = reply_of(self._shaken(admitted))
            except TurnedAway as refusal:
                response = self._turned_away(request, case, refusal)
                span.tell(reason=refusal.code)
            span.tell(delivery_id=case.delivery_id)
            if case.execution_id is not None:
                span.tell(execution_id=case.execution_id)
            span.answered(response.status_code)
            return response

    async def _taken(
        self, request: Request, admitted: Admitted, case: Case, span: Spanned
    ) -> Response:
        body = case.body = await self._bodies.read(admitted, request)
        try:
            found = await self._verdict(admitted, received(admitted, body), case)
            if isinstance(found, Reply):
                return reply_of(found)
            case.planned = found
            span.join(found.plan.trace)
            answer = await self._delivered(admitted.known, found, case)
            return response_of(answer, case.delivery_id, request.scope.get(REQUEST_ID))
        finally:
            self._bodies.release(request, body)

    async def close(self) -> None:
        """Tell what is left to tell, for a moment."""
        await self.listeners.close()
        try:
            async with asyncio.timeout(CLOSING_S):
                await self.accounts.flush()
        except TimeoutError:
            _log.warning("the log of deliveries lacks the last of them")

    # ------------------------------------------------------------------ a person, for a sender

    async def again(self, listener: str, asked: SendAgain) -> Sent:
        """Judge a rejected delivery once more, without regard to its time."""
        case = Case(listener=listener, began=self._clock.monotonic(), replay_of=asked.replay_of)
        try:
            case.body = base64.b64decode(asked.body, validate=True)
        except (binascii.Error, ValueError):
            raise Unacceptable("`body` is not base64") from None
        pairs = [(_bytes(name).lower(), _bytes(value)) for name, value in asked.headers]
        kept = [pair for pair in pairs if pair[0] != b"content-length"]
        try:
            case.head = head_of(_POST, f"/ingress/{listener}", _bytes(asked.query), kept)
            known = case.known = await self._found(listener)
            self.accounts.number(case)
            # Who sent it was let in then, and asks no more: a person does.
            open_to_all = replace(known, networks=())
            admitted = admit(open_to_all, case.head, _arrival(case, known))
            raw = received(admitted, case.body)
            found = await self._verdict(admitted, raw, case, now=ANY_TIME)
            if isinstance(found, Reply):
                return Sent(status=200, outcome="handshake")
            case.planned = found
            answer = await self._delivered(known, found, case)
        except TurnedAway as refusal:
            answer = rejected(refusal.code, refusal.retry_after)
            self.accounts.rejected(case, answer)
        return Sent(
            status=answer.status,
            delivery_id=case.delivery_id or None,
            execution_id=answer.execution_id,
            outcome=answer.outcome,
            code=answer.code or None,
        )

    # ------------------------------------------------------------------ steps

    def _must_have_room(self) -> None:
        if self._under_way > self._most:
            raise TurnedAway(OVERLOADED)

    def _must_be_seldom(self, case: Case) -> None:
        """Take from the bucket of an address at a listener, before anything is looked up."""
        name = case.listener if case.known is not None or NAME.match(case.listener) else "?"
        wait_s = self._limits.wait_s(SCOPE, f"{name} {case.remote_ip}")
        if wait_s:
            raise TurnedAway(RATE_LIMITED, retry_after=wait_s)

    async def _found(self, name: str) -> Known:
        try:
            known = await self.listeners.of(name)
        except ConfigUnavailable as fault:
            raise TurnedAway(CONFIG_UNAVAILABLE, retry_after=fault.retry_after) from None
        if known is None:
            raise TurnedAway(UNKNOWN_LISTENER)
        return known

    def _shaken(self, admitted: Admitted) -> Reply:
        """The answer to a handshake that comes without a delivery."""
        known = admitted.known
        raw = received(admitted, b"")
        try:
            if isinstance(known.challenge, MetaChallenge):
                return meta_reply(known.challenge, raw, known.secrets)
            if isinstance(known.challenge, CloudEventsChallenge):
                return cloudevents_reply(known.challenge, raw, rate_of(known))
        except ChallengeRefused as refusal:
            raise TurnedAway(refusal.code) from None
        raise TurnedAway(BAD_METHOD)

    async def _verdict(
        self, admitted: Admitted, raw: Raw, case: Case, now: float | None = None
    ) -> Reply | Planned:
        judging = Judging(
            now=self._clock.now().timestamp() if now is None else now,
            proving=await self._proving(admitted.known, raw),
            resolve=self._resolve,
            replay_of=case.replay_of,
        )
        if len(raw.body) > HEAVY_BYTES:
            return await asyncio.to_thread(verify_then_plan, admitted, raw, judging)
        return verify_then_plan(admitted, raw, judging)

    async def _proving(self, known: Known, raw: Raw) -> Proving:
        """What the delivery is verified with; only issuers that publish keys are asked."""
        key = wanted(known.ingress.verify, raw)
        if key is None:
            return known.proving
        return replace(known.proving, keys=await self._keyrings.keys(key.place, key.kid))

    async def _delivered(self, known: Known, planned: Planned, case: Case) -> Answer:
        """Hand a delivery on; whatever happens, it is in the books."""
        answer = failed(DISPATCH_FAILED)
        try:
            answer = await self._handed_on(known, planned)
            case.execution_id = answer.execution_id
        except asyncio.CancelledError:
            answer = LEFT
            raise
        finally:
            self.accounts.settled(case, answer)
        _log.debug(
            "a delivery was dealt with",
            extra={
                "listener": known.listener,
                "delivery_id": case.delivery_id,
                "execution_id": answer.execution_id,
            },
        )
        return answer

    async def _handed_on(self, known: Known, planned: Planned) -> Answer:
        about = {"listener": known.listener, "delivery_id": planned.delivery_id}
        try:
            async with asyncio.timeout(DESK_S):
                return answer_of(await self.desk.deliver(known, planned))
        except TimeoutError:
            _log.warning("a delivery took too long", extra=about)
            return failed(OVERLOADED)
        except SpoolError as fault:
            _log.warning("a delivery cannot be kept", extra={**about, "code": fault.code})
            return failed(SPOOL_UNAVAILABLE)
        except NoetlError as fault:
            _log.warning("a delivery was not taken", extra={**about, "code": fault.code})
            return failed(DISPATCH_FAILED)

    def _turned_away(self, request: Request, case: Case, refusal: TurnedAway) -> Response:
        answer = rejected(refusal.code, refusal.retry_after)
        self.accounts.rejected(case, answer)
        if refusal.code == RATE_LIMITED:
            _slow_down(request, case)
        methods = case.known.methods if case.known and refusal.code == BAD_METHOD else ()
        return response_of(
            answer,
            case.delivery_id,
            request.scope.get(REQUEST_ID),
            methods=methods,
            is_whole=case.body is not None or BODY in request.scope or not _has_body(case),
        )


def rate_of(known: Known) -> float:
    """How many deliveries a listener takes in a second."""
    rate = known.ingress.rate
    if rate is not None:
        return rate.per_sec
    return known.spec.limits.max_dispatch_per_sec or _PER_SEC


def _slow_down(request: Request, case: Case) -> None:
    """Read no more of somebody who sends too much; a proxy has others behind it."""
    slow = request.scope.get(SLOW)
    if slow is not None and request.client is not None and request.client.host == case.remote_ip:
        slow(SLOW_S)


def _arrival(case: Case, known: Known) -> Arrival:
    return Arrival(
        source=known.source,
        listener=known.listener,
        delivery_id=case.delivery_id,
        received_at=case.received_at,
        remote_ip=case.remote_ip,
    )


def _has_body(case: Case) -> bool:
    """Whether more may come than the head."""
    head = case.head
    return head is None or head.method == _POST or bool(head.length)


def _bytes(text: str) -> bytes:
    return text.encode("latin-1", "replace")
