"""Who calls: the first credential that a request shows decides, and nothing else does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from noetl.errors import NoetlError
from noetl.gateway.cookies import Jar, host_of, is_loopback
from noetl.gateway.errors import CsrfRejected, MissingToken, QueryTokenDisabled
from noetl.gateway.person import Person

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from noetl.gateway.cors import Cors
    from noetl.gateway.metrics import GatewayMetrics
    from noetl.gateway.sessions import Sessions
    from noetl.gateway.tickets import Tickets
    from noetl.gateway.upstream import Upstream

HEADER: Final = "x-session-token"
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_IN_QUERY: Final = frozenset({"events", "ws"})
NOBODY: Final = Person(
    user_id="dev@localhost",
    subject="dev@localhost",
    email="dev@localhost",
    display_name="Developer",
    roles=("developer",),
    session_id="bypass",
    via="bypass",
)
"""Who everybody is while sign-in is switched off."""


class Access:
    """Finds the person behind a request."""

    def __init__(  # noqa: PLR0913 - all ways in
        self,
        *,
        sessions: Sessions,
        tickets: Tickets,
        upstream: Upstream,
        cors: Cors,
        metrics: GatewayMetrics,
        public_url: str = "",
        takes_query: bool = False,
        is_bypassed: bool = False,
    ) -> None:
        self._sessions = sessions
        self._tickets = tickets
        self._upstream = upstream
        self._cors = cors
        self._metrics = metrics
        self._public_url = public_url
        self._takes_query = takes_query
        self._is_bypassed = is_bypassed

    async def person(self, connection: HTTPConnection, *, purpose: str = "") -> Person:
        """Who calls; tickets and tokens of the query are looked at for a purpose alone."""
        try:
            found = await self._found(connection, purpose)
        except NoetlError as fault:
            self._metrics.authz.inc(fault.code)
            raise
        self._metrics.authz.inc("allowed")
        return found

    def is_service(self, connection: HTTPConnection) -> bool:
        """Whether one of our own processes calls."""
        return self._upstream.is_service(connection.headers.get("authorization", ""))

    async def _found(self, connection: HTTPConnection, purpose: str) -> Person:
        if self._is_bypassed:
            self._must_be_asked_here(connection)
            self._must_be_ours(connection, is_strict=False)
            self._metrics.session_check.inc("bypass")
            return NOBODY
        bearer = bearer_of(connection)
        if bearer:
            return replace(await self._sessions.of(bearer), via="bearer")
        header = connection.headers.get(HEADER, "")
        if header:
            return replace(await self._sessions.of(header), via="header")
        cookie = Jar.of(connection, self._public_url).session(connection)
        if cookie:
            self._must_be_ours(connection, is_strict=True)
            return replace(await self._sessions.of(cookie), via="cookie")
        return await self._in_query(connection, purpose)

    async def _in_query(self, connection: HTTPConnection, purpose: str) -> Person:
        query = connection.query_params
        if purpose and query.get("ticket"):
            found = await self._tickets.redeem(query["ticket"], purpose)
            self._metrics.session_check.inc("ticket")
            return found
        if purpose in _IN_QUERY and "session_token" in query:
            if not self._takes_query:
                raise QueryTokenDisabled(
                    "a session is not taken from the address", hint="use a header or a ticket"
                )
            return replace(await self._sessions.of(query["session_token"]), via="query")
        raise MissingToken("the request says not whose it is", hint="sign in")

    def _must_be_asked_here(self, connection: HTTPConnection) -> None:
        """Refuse a page whose own name was led to this machine: it would be a page of ours."""
        if "host" not in connection.headers:
            return  # no browser
        host, own = host_of(connection), urlsplit(self._public_url).hostname
        if not is_loopback(host) and host != own:
            raise CsrfRejected("the gateway is not called so", hint="ask for it as `localhost`")

    def _must_be_ours(self, connection: HTTPConnection, *, is_strict: bool) -> None:
        """Refuse that a page of somebody else acts with what a browser sends by itself."""
        if connection.scope.get("method", "GET") in _SAFE:
            return
        origin = connection.headers.get("origin")
        if origin is None and not is_strict:
            return
        if origin is None or not self._cors.trusts(connection, origin):
            raise CsrfRejected(
                "the page that asks is none of ours", hint="send the session in a header"
            )


def bearer_of(connection: HTTPConnection) -> str:
    """The bearer of a request; empty without one, whatever else stands in the header."""
    scheme, _, text = connection.headers.get("authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""
