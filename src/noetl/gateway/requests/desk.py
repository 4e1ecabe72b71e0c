"""Requests of clients: one door to all that is done with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from noetl.api.executions import Control
from noetl.bus.base import BusGone
from noetl.edge.errors import Unacceptable
from noetl.gateway.errors import UpstreamUnavailable
from noetl.gateway.requests.callbacks import Callbacks
from noetl.gateway.requests.ends import Ends
from noetl.gateway.requests.feeding import Feeding
from noetl.gateway.requests.parts import Parts
from noetl.gateway.requests.progress import Pace
from noetl.gateway.requests.reading import Reads
from noetl.gateway.requests.rebuilding import Rebuilds
from noetl.gateway.requests.record import document_of
from noetl.gateway.requests.records import Records
from noetl.gateway.requests.starting import Starts
from noetl.gateway.requests.sweeping import Sweeping
from noetl.gateway.requests.wishes import Wishes
from noetl.ids import parse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from noetl.api.gateway import Accepted, Callback, Progress, RequestDocument, Wish
    from noetl.bus.clients import RequestFeed
    from noetl.bus.keys import Keys
    from noetl.clock import Clock
    from noetl.gateway.metrics import GatewayMetrics
    from noetl.gateway.person import Person
    from noetl.gateway.requests.callbacks import Given
    from noetl.gateway.requests.parts import Clients
    from noetl.gateway.upstream import Upstream
    from noetl.ids import Ids
    from noetl.telemetry.fingerprints import Fingerprints


class Requests:
    """Starts runs for people, and sees to it that each of them is told its end, once."""

    def __init__(  # noqa: PLR0913 - the parts it is made from
        self,
        *,
        keys: Keys,
        feed: RequestFeed,
        hub: Clients,
        upstream: Upstream,
        clock: Clock,
        ids: Ids,
        metrics: GatewayMetrics,
        seen: Fingerprints,
        gateway_url: str,
        ttl_s: float = 1800.0,
        deadline_s: float = 1800.0,
        needs_token: bool = True,
    ) -> None:
        records, rebuilds = Records(keys, clock, metrics, ttl_s), Rebuilds(upstream, clock)
        self.parts = Parts(
            records=records,
            rebuilds=rebuilds,
            ends=Ends(records, rebuilds, hub, upstream, metrics),
            hub=hub,
            upstream=upstream,
            clock=clock,
            ids=ids,
            metrics=metrics,
            seen=seen,
            gateway_url=gateway_url.rstrip("/"),
            deadline_s=deadline_s,
            needs_token=needs_token,
        )
        self.pace = Pace(self.parts)
        self.feeding = Feeding(self.parts, feed, self.pace)
        self.sweeping = Sweeping(self.parts, self.feeding)
        self._starts = Starts(self.parts, Wishes(self.parts))
        self._callbacks = Callbacks(self.parts, self.pace)
        self._reads = Reads(self.parts)

    def loops(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What is to run as long as the gateway does, by name."""
        return {"requests.feed": self.feed, "requests.sweep": self.sweep}

    async def feed(self) -> None:
        """Hear of runs, for ever."""
        await self.feeding.run()

    async def sweep(self) -> None:
        """Look after requests of which nothing is heard, for ever."""
        try:
            await self.sweeping.run()
        finally:
            self.pace.close()

    # ---------------------------------------------------------------- runs

    async def start(self, person: Person, wish: Wish) -> Accepted:
        """Run a playbook; the answer means that its end will be told."""
        return await self._starts.start(person, wish)

    async def rerun(
        self,
        person: Person,
        execution_id: str,
        variables: dict[str, Any] | None = None,
        client_id: str | None = None,
    ) -> Accepted:
        """Run a playbook again, with other variables or the same."""
        return await self._starts.rerun(person, execution_id, variables, client_id)

    async def cancel(
        self,
        person: Person,
        *,
        request_id: str = "",
        execution_id: str = "",
        cascade: bool = True,
        reason: str = "",
    ) -> tuple[str, str]:
        """End a run; its id and its status. Its request ends when the run has."""
        if request_id:
            execution_id = (await self._reads.owned(person, request_id)).execution_id
        elif execution_id:
            execution_id = parse(execution_id)
        else:
            raise Unacceptable("name either `requestId` or `executionId`")
        client = self.parts.upstream.acting_for(person, execution_id)
        done = await client.cancel(execution_id, Control(reason=reason, cascade=cascade))
        return done.execution_id, done.status

    # ---------------------------------------------------------------- what is told

    async def document(
        self, person: Person, request_id: str, wait_s: float = 0.0
    ) -> RequestDocument:
        """A request of somebody, when it has ended or after a while."""
        record = await self._reads.owned(person, request_id)
        return document_of(await self._reads.waited(record, wait_s))

    async def followed(self, person: Person, request_id: str) -> AsyncIterator[RequestDocument]:
        """A request of somebody, now and each time it has changed; the last one is its end."""
        async for record in self._reads.followed(person, request_id):
            yield document_of(record)

    async def of_execution(self, person: Person, execution_id: str) -> RequestDocument:
        """The request of a run."""
        return document_of(await self._reads.of_execution(person, parse(execution_id)))

    async def ended(self, request_id: str, wait_s: float) -> RequestDocument:
        """A request when it has ended, or after a while as it is then."""
        record = await self._reads.found(request_id)
        return document_of(await self._reads.waited(record, wait_s))

    async def listed(self, person: Person, limit: int = 50) -> list[RequestDocument]:
        """The newest requests of somebody."""
        try:
            return await self._reads.listed(person, limit)
        except BusGone as fault:
            raise UpstreamUnavailable("requests cannot be listed now") from fault

    async def result(self, person: Person, request_id: str) -> tuple[AsyncIterator[bytes], str]:
        """The whole result of a request as it comes, and its media type."""
        return await self._reads.result(person, request_id)

    # ---------------------------------------------------------------- clients that come back

    async def restored(self, person: Person, client_id: str) -> None:
        """Know again what a client waits for, after the bucket may have been lost."""
        await self._reads.restored(person, client_id)

    async def pending(self, person: Person, client_id: str) -> list[dict[str, Any]]:
        """What a client of somebody waits for, as `init` tells it."""
        return await self._reads.pending(person, client_id)

    def undelivered(
        self, person: Person, client_id: str, *, is_known: bool = False
    ) -> AsyncGenerator[RequestDocument]:
        """What has ended without the client having said that it knows, oldest first.

        `is_known` when it was told something before: then also what goes to several clients.
        """
        return self._reads.undelivered(person, client_id, is_known=is_known)

    async def owe(self, client_id: str) -> None:
        """Note that a client is to be told again what has ended."""
        await self.parts.records.owe(client_id)

    async def owes(self, client_id: str) -> bool:
        """Whether a client was to be told again what has ended, and was not, or not all."""
        return await self.parts.records.owes(client_id)

    async def owe_nothing(self, client_id: str) -> None:
        """A client was told all."""
        await self.parts.records.owe_nothing(client_id)

    async def acknowledged(self, client_id: str, request_id: str) -> None:
        """A client has a result."""
        await self._reads.acknowledged(client_id, request_id)

    # ---------------------------------------------------------------- playbooks

    async def callback(
        self, body: Callback, token: str | None = None, *, is_service: bool = False
    ) -> Given:
        """The end of a request, as its playbook tells it."""
        return await self._callbacks.take(body, token, is_service=is_service)

    async def progress(
        self, body: Progress, token: str | None = None, *, is_service: bool = False
    ) -> Literal["sent", "ignored"]:
        """How far a request is, as its playbook tells it."""
        return await self._callbacks.progress(body, token, is_service=is_service)
