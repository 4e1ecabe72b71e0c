"""Subscriptions, and the small documents that their processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from noetl.api.client.calls import INTERNAL, JSON, Calls, decoded, encode, query, segment
from noetl.api.ingress import (
    DeliveriesReplayed,
    IngressListener,
    IngressListeners,
    ReplayDelivery,
    Replayed,
    Sent,
)
from noetl.api.subscriptions import (
    CircuitDocument,
    DeadLetter,
    DeadLetters,
    Deliveries,
    DeliveriesKept,
    Delivery,
    LettersRequested,
    LettersWanted,
    Outcomes,
    PutDeadLetter,
    PutDeliveries,
    RegisterSubscription,
    Subscription,
    SubscriptionAction,
    Subscriptions,
    SubscriptionStats,
)

if TYPE_CHECKING:
    from noetl.api.ingress import ReplayDeliveries, TestDelivery
    from noetl.api.subscriptions import Action

_ALL = "/api/subscriptions"
_NO_DOCUMENT = 404
_UNCHANGED = 304


class Listens(Calls):
    """Subscriptions, and the small documents that their processes share."""

    async def register_subscription(self, path: str, reason: str = "") -> Subscription:
        """Make a subscription of the catalog known; a known one is answered as it is."""
        body = RegisterSubscription(path=path, reason=reason)
        return await self._post(f"{_ALL}/register", body, Subscription)

    async def subscriptions(
        self, state: str | None = None, path: str | None = None
    ) -> Subscriptions:
        """Every subscription, or those of one state, or the one of a path."""
        return await self._get(query(_ALL, {"state": state, "path": path}), Subscriptions)

    async def subscription(self, subscription_id: str) -> Subscription:
        """One subscription, with its document."""
        return await self._get(_one(subscription_id), Subscription)

    async def steer_subscription(
        self, subscription_id: str, action: Action, reason: str = ""
    ) -> Subscription:
        """Activate, pause, resume, drain or deactivate one."""
        path = _one(subscription_id, action)
        return await self._post(path, SubscriptionAction(reason=reason), Subscription)

    async def subscription_stats(self, subscription_id: str) -> SubscriptionStats:
        """Figures of one subscription."""
        return await self._get(_one(subscription_id, "stats"), SubscriptionStats)

    async def outcomes(
        self,
        subscription_id: str,
        cursor: str | None = None,
        *,
        wait_ms: int = 2_000,
        limit: int = 500,
    ) -> Outcomes:
        """How runs of messages ended since a cursor; waits a while for the first one."""
        asked = {"cursor": cursor, "wait_ms": wait_ms, "limit": limit}
        return await self._get(query(_one(subscription_id, "outcomes"), asked), Outcomes)

    async def dead_letters(
        self,
        subscription_id: str,
        cursor: str | None = None,
        limit: int | None = None,
        *,
        include_item: bool = False,
    ) -> DeadLetters:
        """A page of messages that are not tried any more, with those that the server keeps."""
        asked = {"cursor": cursor, "limit": limit, "include_item": "true" if include_item else None}
        return await self._get(query(_one(subscription_id, "dead-letters"), asked), DeadLetters)

    async def put_dead_letter(self, subscription_id: str, body: PutDeadLetter) -> DeadLetter:
        """Let the server keep a message that no spool can keep."""
        return await self._post(_one(subscription_id, "dead-letters"), body, DeadLetter)

    async def redrive(self, subscription_id: str, body: LettersWanted) -> LettersRequested:
        """Have dead letters sent again."""
        path = _one(subscription_id, "dead-letters/redrive")
        return await self._post(path, body, LettersRequested)

    async def discard(self, subscription_id: str, body: LettersWanted) -> LettersRequested:
        """Have dead letters dropped."""
        path = _one(subscription_id, "dead-letters/discard")
        return await self._post(path, body, LettersRequested)

    async def deliveries(self, subscription_id: str, **filters: str | int | None) -> Deliveries:
        """A page of what senders delivered; filters are the names of the query."""
        return await self._get(query(_one(subscription_id, "deliveries"), filters), Deliveries)

    async def put_deliveries(self, subscription_id: str, body: PutDeliveries) -> DeliveriesKept:
        """Keep what senders delivered."""
        return await self._post(_one(subscription_id, "deliveries"), body, DeliveriesKept)

    async def delivery(self, subscription_id: str, delivery_id: str) -> Delivery:
        """What became of one request of a sender."""
        return await self._get(_delivered(subscription_id, segment(delivery_id)), Delivery)

    async def replay_delivery(
        self, subscription_id: str, delivery_id: str, reason: str = ""
    ) -> Replayed:
        """Run what a sender delivered once more."""
        path = _delivered(subscription_id, f"{segment(delivery_id)}/replay")
        return await self._post(path, ReplayDelivery(reason=reason), Replayed)

    async def replay_deliveries(
        self, subscription_id: str, body: ReplayDeliveries
    ) -> DeliveriesReplayed:
        """Run deliveries once more, oldest first."""
        return await self._post(_delivered(subscription_id, "replay"), body, DeliveriesReplayed)

    async def test_delivery(self, subscription_id: str, body: TestDelivery) -> Sent:
        """Have a delivery signed as its sender would, and sent through a gateway."""
        return await self._post(_delivered(subscription_id, "test"), body, Sent)

    async def ingress_listener(
        self, name: str, process: str, etag: str | None = None
    ) -> IngressListener | None:
        """What a gateway needs to judge deliveries of a listener, sealed to its own key.

        None when nothing has changed since it was told this tag.
        """
        path = query(f"{INTERNAL}/ingress/{segment(name)}", {"process": process})
        known = {} if etag is None else {"if-none-match": f'"{etag}"'}
        answer = await self.raw("GET", path, headers={**JSON, **known})
        if answer.status == _UNCHANGED:
            return None
        refusal = self.refusal(answer)
        if refusal is not None:
            raise refusal
        return decoded(answer, IngressListener)

    async def ingress_listeners(self) -> IngressListeners:
        """The names of listeners for which deliveries may wait."""
        return await self._get(f"{INTERNAL}/ingress", IngressListeners)

    async def circuit(self, path: str) -> CircuitDocument | None:
        """A shared document; none when there is none."""
        answer = await self.raw("GET", _circuit(path))
        if answer.status == _NO_DOCUMENT:
            return None
        refusal = self.refusal(answer)
        if refusal is not None:
            raise refusal
        return decoded(answer, CircuitDocument)

    async def put_circuit(
        self, path: str, state: dict[str, Any], revision: int | None
    ) -> CircuitDocument:
        """Write a shared document that is still at a revision; none: there is none yet.

        `Refused` with the code `revision_conflict` when somebody else was faster.
        """
        held = {"if-none-match": "*"} if revision is None else {"if-match": f'"{revision}"'}
        answer = await self._call("PUT", _circuit(path), encode(state), {**JSON, **held})
        return decoded(answer, CircuitDocument)

    async def delete_circuit(self, path: str, revision: int | None = None) -> None:
        """Forget a shared document, if it is still at a revision."""
        held = {} if revision is None else {"if-match": f'"{revision}"'}
        await self._call("DELETE", _circuit(path), b"", {**JSON, **held})


def _one(subscription_id: str, part: str = "") -> str:
    path = f"{_ALL}/{segment(subscription_id)}"
    return f"{path}/{part}" if part else path


def _delivered(subscription_id: str, part: str) -> str:
    return _one(subscription_id, f"deliveries/{part}")


def _circuit(path: str) -> str:
    return f"{INTERNAL}/circuits/{quote(path)}"
