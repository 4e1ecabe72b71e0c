"""What tests of sign-in share: a clock that is set by hand, and parts without a gateway."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request

from noetl.api.http import AsgiTransport
from noetl.api.identity import User, Validated
from noetl.bus.base import BusGone
from noetl.bus.memory import MemoryBus
from noetl.bus.memory_keys import MemoryKeys
from noetl.clock import rfc3339
from noetl.gateway.errors import UpstreamUnreachable
from noetl.gateway.metrics import GatewayMetrics
from noetl.gateway.sessions import Sessions, digest
from noetl.secrets.fetch import Answer, Unreached


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self._zero = datetime(2026, 1, 31, 12, tzinfo=UTC)
        self.passed = 0.0

    def now(self):
        return self._zero + timedelta(seconds=self.passed)

    def monotonic(self):
        return 1000.0 + self.passed


class People:
    """The server as sessions ask it; who is known is told by hand."""

    def __init__(self, clock) -> None:
        self._clock = clock
        self.known: dict[str, Validated] = {}
        self.asked: list[str] = []
        self.looked: list[tuple[str, bool]] = []
        self.is_down = False
        self.on_asked: Any = None

    def service(self, _=None):
        return self

    def is_service(self, authorization):
        return authorization == "Bearer internal"

    def add(self, token, *, roles=("developer",), lasts_s=3600.0, session_id="7001"):
        ends = rfc3339(self._clock.now() + timedelta(seconds=lasts_s))
        user = User(
            user_id="42", subject="ada", email="ada@example.org", display_name="Ada",
            roles=tuple(roles), tenant="default",
        )  # fmt: skip
        self.known[token] = Validated(
            valid=True, session_id=session_id, user=user, expires_at=ends, idle_until=ends
        )

    async def validate_session(self, token):
        self.asked.append(token)
        if self.is_down:
            raise UpstreamUnreachable("away")
        found = self.known.get(token, Validated(valid=False, message="no"))
        if self.on_asked is not None:
            await self.on_asked()
        return found

    async def look_at_session(self, session_id, *, is_use=False):
        self.looked.append((session_id, is_use))
        if self.is_down:
            raise UpstreamUnreachable("away")
        lasting = (one for one in self.known.values() if one.session_id == session_id)
        return next(lasting, Validated(valid=False, message="no"))


class Broken(MemoryKeys):
    """A bucket that can be taken away."""

    is_down = False

    def _must_be_open(self):
        if self.is_down:
            raise BusGone("away")
        super()._must_be_open()


class Desk:
    """Sessions on memory parts."""

    def __init__(self, hooks=None) -> None:
        self.clock = Clock()
        self.keys = Broken(self.clock)
        self.bus = MemoryBus()
        self.people = People(self.clock)
        self.metrics = GatewayMetrics()
        self.sessions = self.replica(hooks)

    def replica(self, hooks=None):
        """Sessions of one more gateway on the same bus."""
        return Sessions(
            keys=self.keys, bus=self.bus, upstream=self.people, clock=self.clock,
            metrics=self.metrics, hooks=hooks,
        )  # fmt: skip

    def count(self, outcome):
        return self.metrics.session_check.value(outcome)

    async def kept(self, token):
        return await self.keys.get(f"s.{digest(token)}")


def call(method="GET", path="/x", *, scheme="http", query="", peer="192.0.2.9", **headers):
    """A request as it comes in; `_` in the names of headers is `-`."""
    wire = [
        (name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()
    ]
    if not any(name == b"host" for name, _ in wire):
        wire.append((b"host", b"gate.example.org"))
    scope = {
        "type": "http", "method": method, "path": path, "scheme": scheme,
        "query_string": query.encode(), "headers": wire, "client": (peer, 5000),
    }  # fmt: skip
    return Request(scope)


def through(app, *, refuses=()):
    """A way to an app of this process, as issuers are asked; hosts that are refused."""
    transport = AsgiTransport(app)

    async def fetch(ask):
        parts = urlsplit(ask.url)
        fetch.asked.append(ask.url)
        if parts.hostname in refuses:
            raise Unreached("refused", is_refused=True)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        answer = await transport.request(ask.method, path, ask.body or b"", dict(ask.headers))
        return Answer(status=answer.status, headers=answer.headers, body=answer.body)

    fetch.asked = []
    return fetch
