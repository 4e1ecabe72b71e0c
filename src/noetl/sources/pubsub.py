"""Messages of a subscription of Google Pub/Sub, pulled."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import grpc  # type: ignore[import-untyped] # it has no types
import msgspec
from google.api_core import exceptions
from google.auth import default
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.oauth2 import credentials as tokens
from google.oauth2 import service_account
from google.pubsub_v1 import SubscriberAsyncClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from noetl.clock import rfc3339
from noetl.sources.base import Facts, PolledMessage, SourceError, body_of, lowered, report_of
from noetl.sources.places import as_written, invalid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from google.auth.credentials import Credentials
    from google.pubsub_v1.types import ReceivedMessage, Subscription

    from noetl.clock import Clock
    from noetl.sources.base import AckReport
    from noetl.sources.places import Addresses, PubsubPlace

HOST: Final = "pubsub.googleapis.com:443"
ANSWER_S: Final = 10.0
LEAST_MS: Final = 250
"""The least deadline of a pull: what waits already needs that long to come."""
EXTEND_S: Final = 60
DEADLINE_S: Final = 10
"""How long messages may be held when the subscription does not tell: the least that it can be."""
AT_ONCE: Final = 1000
"""Ids in one request."""
_MAX_BYTES: Final = 64 * 1024 * 1024
_SCOPES: Final = ("https://www.googleapis.com/auth/pubsub",)
_GONE: Final = "PERMANENT_FAILURE_INVALID_ACK_ID"
_UNSETTLED: Final = {
    "timeout": "ack_timeout",
    "connection": "connection",
    "rate_limit": "connection",
    "client_error": "stale",
}
"""Why ids were not settled, by the kind of the fault."""


class PubsubSource:
    """The messages of one subscription."""

    def __init__(
        self, client: SubscriberAsyncClient, place: PubsubPlace, clock: Clock, facts: Facts
    ) -> None:
        self._client = client
        self._place = place
        self._clock = clock
        self._facts = facts

    @classmethod
    async def open(
        cls, place: PubsubPlace, clock: Clock, *, addresses: Addresses = as_written
    ) -> PubsubSource:
        """The source, after a look at its subscription where we may look."""
        client = SubscriberAsyncClient(transport=await _transport(place, addresses))
        source = cls(client, place, clock, Facts(ack_wait_s=DEADLINE_S))
        try:
            source._facts = facts_of(
                await client.get_subscription(
                    subscription=place.subscription, timeout=ANSWER_S, retry=None
                )
            )
        except exceptions.PermissionDenied:
            pass  # who may pull need not be one who may look
        except (exceptions.GoogleAPIError, GoogleAuthError) as fault:
            await source.close()
            raise fault_of(fault, place) from fault
        except BaseException:
            await source.close()
            raise
        return source

    async def poll(self, batch: int, timeout_ms: int) -> list[PolledMessage]:
        """What waits now, else what comes until the deadline of the request."""
        asked = {"subscription": self._place.subscription, "max_messages": batch}
        wait_s = max(timeout_ms, LEAST_MS) / 1000
        try:
            answer = await self._client.pull(asked, timeout=wait_s, retry=None)
        except exceptions.DeadlineExceeded:
            return []
        except (exceptions.GoogleAPIError, GoogleAuthError) as fault:
            raise fault_of(fault, self._place) from fault
        received = rfc3339(self._clock.now())
        name = self._place.subscription
        return [message_of(each, name, received) for each in answer.received_messages]

    async def ack(self, ack_ids: Sequence[str]) -> AckReport:
        """They need no further delivery."""
        return await self._settled(ack_ids, self._client.acknowledge)

    async def nack(self, ack_ids: Sequence[str], delay_ms: int = 0) -> AckReport:
        """Deliver them again, after so many whole seconds."""
        return await self._until(ack_ids, math.ceil(delay_ms / 1000))

    async def term(self, ack_ids: Sequence[str]) -> AckReport:
        """Never deliver them again."""
        return await self._settled(ack_ids, self._client.acknowledge)

    async def extend(self, ack_ids: Sequence[str]) -> AckReport:
        """Somebody still works at them: a minute more."""
        return await self._until(ack_ids, EXTEND_S)

    async def backlog(self) -> int | None:
        """Pub/Sub tells its monitoring alone."""
        return None

    def facts(self) -> Facts:
        """As the subscription says."""
        return self._facts

    async def close(self) -> None:
        """End the connection; what was not settled is delivered again."""
        await self._client.transport.close()  # type: ignore[no-untyped-call] # it has no types

    async def _until(self, ack_ids: Sequence[str], seconds: int) -> AckReport:
        async def modify(**asked: Any) -> None:  # noqa: ANN401 - as the client has it
            await self._client.modify_ack_deadline(ack_deadline_seconds=seconds, **asked)

        return await self._settled(ack_ids, modify)

    async def _settled(
        self, ack_ids: Sequence[str], ask: Callable[..., Awaitable[None]]
    ) -> AckReport:
        faults: dict[str, tuple[str, str]] = {}
        for start in range(0, len(ack_ids), AT_ONCE):
            part = ack_ids[start : start + AT_ONCE]
            try:
                await ask(
                    subscription=self._place.subscription,
                    ack_ids=list(part),
                    timeout=ANSWER_S,
                    retry=None,
                )
            except (exceptions.GoogleAPIError, GoogleAuthError) as fault:
                faults |= _unsettled(part, fault, self._place)
        return report_of(ack_ids, faults)


async def _transport(place: PubsubPlace, addresses: Addresses) -> SubscriberGrpcAsyncIOTransport:
    host = place.endpoint or HOST
    name, _, port = host.rpartition(":")
    found = await addresses(name.strip("[]"), int(port))
    options = [("grpc.max_receive_message_length", _MAX_BYTES)]
    if place.is_open:
        at = f"[{found[0]}]" if ":" in found[0] else found[0]
        channel = grpc.aio.insecure_channel(f"{at}:{port}", options=options)
        return SubscriberGrpcAsyncIOTransport(
            host=host,
            channel=channel,
            credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call] # as above
        )
    return SubscriberGrpcAsyncIOTransport(host=host, credentials=_credentials(place))


def _credentials(place: PubsubPlace) -> Credentials:
    """A token, a service account, or who we are on this machine."""
    if place.token:
        return tokens.Credentials(token=place.token)  # type: ignore[no-untyped-call] # as above
    if place.account:
        known: Any = msgspec.json.decode(place.account)
        try:
            made: Credentials = service_account.Credentials.from_service_account_info(  # type: ignore[no-untyped-call] # as above
                known, scopes=_SCOPES
            )
        except (ValueError, KeyError):
            raise invalid("service_account", "is no key file of a service account") from None
        return made
    try:
        found, _ = default(scopes=_SCOPES)
    except GoogleAuthError:
        message = "the credential names no token and no service account, and this machine has none"
        raise SourceError("auth", "bad_login", message) from None
    return found


def facts_of(subscription: Subscription) -> Facts:
    """What a subscription says of its patience."""
    dead = subscription.dead_letter_policy
    kept = subscription.message_retention_duration
    return Facts(
        max_deliver=dead.max_delivery_attempts or None,
        max_age_s=kept.total_seconds() if kept else None,
        ack_wait_s=float(subscription.ack_deadline_seconds or DEADLINE_S),
    )


def message_of(received: ReceivedMessage, subscription: str, now: str) -> PolledMessage:
    """A delivery as playbooks see it."""
    message = received.message
    attributes = dict(message.attributes)
    published = message.publish_time
    return PolledMessage(
        id=message.message_id,
        headers=lowered(attributes.items()),
        attributes=attributes,
        metadata={
            "source": "pubsub",
            "received_at": now,
            "size_bytes": len(message.data),
            "messageId": message.message_id,
            "publishTime": rfc3339(published) if published else None,
            "deliveryAttempt": received.delivery_attempt or None,
            "subscription": subscription,
        },
        ordering_key=message.ordering_key or None,
        ack_id=received.ack_id,
        **body_of(message.data),
    )


def _unsettled(
    ack_ids: Sequence[str], fault: Exception, place: PubsubPlace
) -> dict[str, tuple[str, str]]:
    """Which ids were not settled: those that the answer names, else all of them."""
    named: dict[str, str] = {}
    for detail in getattr(fault, "details", ()):
        named |= dict(getattr(detail, "metadata", {}))
    told = fault_of(fault, place)
    code = _UNSETTLED.get(told.kind, "refused")
    found = {
        ack_id: ("stale" if named[ack_id] == _GONE else "connection", told.message)
        for ack_id in ack_ids
        if ack_id in named
    }
    return found or dict.fromkeys(ack_ids, (code, told.message))


def fault_of(fault: Exception, place: PubsubPlace) -> SourceError:
    """A fault of the client in our words."""
    said = getattr(fault, "message", "") or str(fault) or type(fault).__name__
    where = place.endpoint or HOST
    if isinstance(fault, exceptions.NotFound):
        message = f"there is no subscription {place.subscription}"
        return SourceError("not_found", "subscription_not_found", message)
    if isinstance(fault, exceptions.Unauthenticated | GoogleAuthError):
        message = f"{where} does not know us: is the credential right? ({said})"
        return SourceError("auth", "bad_login", message)
    if isinstance(fault, exceptions.PermissionDenied):
        message = f"we may not read {place.subscription}: {said}"
        return SourceError("auth", "subscription_forbidden", message)
    if isinstance(fault, exceptions.DeadlineExceeded):
        message = f"{where} did not answer: {said}"
        return SourceError("timeout", "tool_timeout", message, retryable=True)
    if isinstance(fault, exceptions.TooManyRequests):
        return SourceError("rate_limit", "source_busy", f"{where}: {said}", retryable=True)
    if isinstance(fault, exceptions.ServerError | exceptions.RetryError):
        message = f"{where} cannot be reached: {said}"
        return SourceError("connection", "CONN_RESET", message, retryable=True)
    return SourceError("client_error", "source_refused", f"{where} refuses: {said}")
