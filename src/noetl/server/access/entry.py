"""The door: whose request it is, and whether the caller may make it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from noetl.edge.errors import (
    AuthRequired,
    Draining,
    Forbidden,
    InternalTokenUnset,
    RateLimited,
)
from noetl.edge.problems import header
from noetl.secrets.signed import BadIdentity
from noetl.server.access.acting import SERVICE, Acting
from noetl.server.access.bearers import KEPT_S, Bearers, InternalToken
from noetl.server.access.caller import (
    LOCAL,
    NOBODY,
    SYSTEM,
    Caller,
    admit,
    caller_of,
    free_pool,
    must,
    must_hold,
    must_serve,
    own_pool,
)
from noetl.server.access.permissions import PUBLIC
from noetl.server.signals import sleep_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from noetl.server.parts import ServerParts

__all__ = (
    "KEPT_S",
    "LOCAL",
    "NOBODY",
    "OUTCOMES",
    "SYSTEM",
    "Access",
    "Caller",
    "admit",
    "caller_of",
    "free_pool",
    "must",
    "must_hold",
    "must_serve",
    "own_pool",
)

LOOK_S: Final = 0.05
OUTCOMES: Final = (
    "ok", "auth_required", "token_expired", "session_expired", "forbidden", "rate_limited",
    "bad_identity", "internal",
)  # fmt: skip

_SCHEME: Final = "bearer "


class Access:
    """Lets requests in, and knows who is inside."""

    def __init__(self, parts: ServerParts) -> None:
        self._parts = parts
        self._bearers = Bearers(parts)
        self._internal = InternalToken(parts)
        self._acting = Acting(parts, self._internal)
        self.outcomes: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        """How many requests were let in, or refused for which reason."""
        self.in_flight = 0
        """Writes that were let in and are not answered yet."""
        self.closing = asyncio.Event()
        """Set when the server is to stop: streams end, and nothing new begins."""
        self._left = asyncio.Event()

    def begin(self) -> None:
        """Let a write in, unless the server is about to stop."""
        if self.closing.is_set():
            raise Draining("the server is stopping", hint="another server takes it")
        self.in_flight += 1

    def end(self) -> None:
        """A write was answered."""
        self.in_flight -= 1
        self._left.set()

    async def emptied(self, waiting: Callable[[], int]) -> None:
        """Come back when nobody is inside but those who wait for work to come."""
        while self.in_flight > waiting():  # who has come in may settle down to wait, too
            await sleep_until(self._left, LOOK_S)

    async def caller(
        self, request: Request, permission: str, services: tuple[str, ...] = ()
    ) -> Caller:
        """Whose request it is; refused unless the permission is given, at least on some path."""
        if self._parts.is_open:
            return LOCAL
        if permission == PUBLIC:
            return NOBODY
        try:
            caller = await self._recognised(request, permission, KEPT_S, services)
        except (
            AuthRequired, RateLimited, Forbidden, InternalTokenUnset, BadIdentity,
        ) as refusal:  # fmt: skip
            word = refusal.code if refusal.code in self.outcomes else "internal"
            self.outcomes[word] += 1
            raise
        self.outcomes["ok"] += 1
        return caller

    async def again(self, request: Request, permission: str, most_age: float) -> Caller:
        """Whose request it still is, by what was looked up at most so many seconds ago."""
        if self._parts.is_open or permission == PUBLIC:
            return caller_of(request)
        return await self._recognised(request, permission, most_age)

    async def _recognised(
        self, request: Request, permission: str, most_age: float, services: tuple[str, ...] = ()
    ) -> Caller:
        if permission == "internal" and not self._internal.is_set:
            raise InternalTokenUnset(
                "the server has no internal token", hint="set NOETL_INTERNAL_API_TOKEN"
            )
        token = _bearer(request)
        if token is None and permission == "internal":
            raise Forbidden("the internal token is missing", code="internal_token_mismatch")
        if token is None:
            raise AuthRequired(
                "the request carries no token", hint="send `Authorization: Bearer <token>`"
            )
        address = request.client.host if request.client else ""
        try:
            if self._internal.fits(token):
                holder = SYSTEM
            else:
                holder = await self._bearers.holder(token, address, most_age)
            if SERVICE in holder.roles:
                holder = await self._spoken_for(request, holder, address, most_age)
            return _let_in(request, holder, permission, services)
        except (AuthRequired, Forbidden, BadIdentity) as refusal:
            if permission != "internal":
                raise
            raise Forbidden(
                "the token does not open internal routes", code="internal_token_mismatch"
            ) from refusal

    async def _spoken_for(
        self, request: Request, gateway: Caller, address: str, most_age: float
    ) -> Caller:
        """Whom a gateway speaks for; itself when it names nobody."""
        admit(request.scope, gateway)  # a word that does not count was brought by somebody
        caller = await self._acting.caller(request, most_age)
        if caller is None:
            return gateway
        self._bearers.is_of_gateway(address)
        return caller


def _let_in(
    request: Request, caller: Caller, permission: str, services: tuple[str, ...] = ()
) -> Caller:
    """Who is refused is known by name, too."""
    admit(request.scope, caller)
    must_hold(caller, permission)
    is_marked = permission != "internal" or caller.mark(permission) == "y"
    if not is_marked and not set(services) & set(caller.roles):
        raise Forbidden(f"the route is not one of {caller.account!r}")
    return caller


def _bearer(request: Request) -> str | None:
    given = header(request, b"authorization") or ""
    if given[: len(_SCHEME)].lower() != _SCHEME:
        return None
    return given[len(_SCHEME) :].strip() or None
