"""The way to the server: as the gateway itself, or for somebody whom the gateway vouches for."""

from __future__ import annotations

import hmac
from collections import OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from noetl.api.client import Client
from noetl.api.http import NO_HEADERS, AsgiTransport, Asked, ExchangeTransport, NoAnswer
from noetl.api.sockets import SocketTransport
from noetl.api.sse import StreamTransport, UploadTransport
from noetl.gateway.errors import UpstreamUnreachable
from noetl.gateway.shards import Shards
from noetl.gateway.tracing import onward_headers
from noetl.ids import random_key
from noetl.secrets.signed import HEADER, key_of, sign

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence

    from noetl.api.http import Answer, App, Transport
    from noetl.clock import Clock
    from noetl.gateway.person import Person

    Vouch = Callable[[], Mapping[str, str]]

VOUCHED_S: Final = 30.0
"""How long a signed word is sent again; it counts for a minute."""
MOST_VOUCHED: Final = 10_000
CONNECTIONS: Final = 128
_SCHEME: Final = "bearer "


class Upstream:
    """The servers by the shards that they own; the first address is for everything else."""

    def __init__(
        self,
        ways: Sequence[Transport],
        token: str,
        clock: Clock,
        shards: Shards | None = None,
        previous: str = "",
    ) -> None:
        self._ways = tuple(ways)
        """The server for everything, then one per shard in the order of the shards."""
        self._token = token
        self._previous = previous
        """One that settings name for a rotation: taken from our own processes, never sent."""
        self._shards = shards or Shards()
        self._key = key_of(token)
        self._clock = clock
        self._words: OrderedDict[tuple[Person, bool], tuple[float, str]] = OrderedDict()

    @classmethod
    def to(  # noqa: PLR0913 - where they are, and what they know us by
        cls,
        server_url: str,
        token: str,
        clock: Clock,
        shards: Shards,
        *,
        previous: str = "",
        timeout_s: float = 120.0,
    ) -> Upstream:
        """Servers at these addresses."""
        made = [
            SocketTransport(url, timeout_s=timeout_s, connections=CONNECTIONS)
            for url in (server_url, *shards.servers)
        ]
        return cls(made, token, clock, shards, previous)

    @classmethod
    def over(cls, app: App, token: str, clock: Clock) -> Upstream:
        """A server of this process."""
        return cls([AsgiTransport(app)], token, clock)

    def renew(self, token: str) -> None:
        """Use another internal token from now on."""
        if token != self._token:
            self._token, self._key = token, key_of(token)
            self._words.clear()

    def is_service(self, authorization: str) -> bool:
        """Whether a header is the bearer of our own processes, or one that is being replaced."""
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            return False
        given, found = authorization[len(_SCHEME) :].strip().encode(), False
        for ours in filter(None, (self._token, self._previous)):
            found |= hmac.compare_digest(ours.encode(), given)  # so that time tells nothing
        return found

    def service(self, execution_id: str | None = None) -> Client:
        """The server as the gateway itself calls it; the one that has a run."""
        return Client(Vouched(self.base_for(execution_id), self.service_headers))

    def acting_for(self, person: Person, execution_id: str | None = None) -> Client:
        """The server as somebody calls it through us.

        What is sent is ours: it may say which run and which request we mean.
        """
        return Client(
            Vouched(self.base_for(execution_id), lambda: self.headers_for(person, is_own=True))
        )

    def base_for(self, execution_id: str | None) -> Transport:
        """The bare way to the server that has a run, or to the one for everything."""
        if execution_id is None:
            return self._ways[0]
        index = self._shards.index_of(execution_id)
        return self._ways[1 + index] if len(self._ways) > 1 else self._ways[0]

    def service_headers(self) -> dict[str, str]:
        """What a call of the gateway itself carries."""
        return {"authorization": f"Bearer {self._token}", **onward_headers()}

    def headers_for(self, person: Person, *, is_own: bool = False) -> dict[str, str]:
        """What a call for somebody carries; `is_own` when the body is ours and not one of his."""
        return {**self.service_headers(), HEADER.lower(): self._word(person, is_own=is_own)}

    async def close(self) -> None:
        """End every connection."""
        for way in self._ways:
            if isinstance(way, SocketTransport):
                await way.close()

    def _word(self, person: Person, *, is_own: bool) -> str:
        now, key = self._clock.monotonic(), (person, is_own)
        known = self._words.get(key)
        if known is not None and now < known[0] + VOUCHED_S:
            return known[1]
        claims = {**person.claims(), "own": is_own}
        word = sign(claims, self._key, self._clock.now().timestamp(), random_key())
        self._words[key] = (now, word)
        self._words.move_to_end(key)
        while len(self._words) > MOST_VOUCHED:
            self._words.popitem(last=False)
        return word


class Vouched:
    """A transport that says on whose behalf; who is not there is `UpstreamUnreachable`."""

    def __init__(self, way: Transport, vouch: Vouch) -> None:
        self._way = way
        self._vouch = vouch

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS
    ) -> Answer:
        """The answer."""
        try:
            return await self._way.request(method, path, body, {**headers, **self._vouch()})
        except NoAnswer as fault:
            raise UpstreamUnreachable("the server did not answer") from fault

    async def upload(
        self,
        method: str,
        path: str,
        chunks: AsyncIterable[bytes],
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Answer:
        """The answer to a body that comes bit by bit."""
        way = self._way
        if not isinstance(way, UploadTransport):  # an app of this process: bit by bit or at once
            return await self.request(method, path, b"".join([c async for c in chunks]), headers)
        try:
            return await way.upload(method, path, chunks, {**headers, **self._vouch()})
        except NoAnswer as fault:
            raise UpstreamUnreachable("the server did not answer") from fault

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str] = NO_HEADERS
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """The status, and the body as it comes."""
        way, sent = self._way, {**headers, **self._vouch()}
        try:
            if isinstance(way, StreamTransport):
                async with way.stream(path, sent) as found:
                    yield found
            elif isinstance(way, ExchangeTransport):  # an app of this process
                asked = Asked(method="GET", path=path, headers=_wire(sent))
                exchange = await way.exchange(asked)
                try:
                    yield exchange.status, exchange.parts()
                finally:
                    await exchange.close()
            else:
                raise TypeError(f"{type(way).__name__} carries no streams")
        except NoAnswer as fault:
            raise UpstreamUnreachable("the server did not answer") from fault


def _wire(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    named = headers.items()
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in named]
