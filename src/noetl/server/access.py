"""The door: whose request it is, and whether the caller may make it."""

from __future__ import annotations

import asyncio
import hmac
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.clock import rfc3339
from noetl.server.errors import AuthRequired, Draining, Forbidden, InternalTokenUnset, RateLimited
from noetl.server.permissions import PUBLIC, allows
from noetl.server.signals import sleep_until
from noetl.server.tokens import digest, is_token

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from starlette.requests import Request

    from noetl.server.parts import ServerParts
    from noetl.server.permissions import Mark
    from noetl.store.base import TokenRow

KEPT_S: Final = 5.0
"""How long a looked-up token is believed: a revoked one ends within this time."""
MOST_KEPT: Final = 10_000
MOST_FAILURES: Final = 10
FAILURES_S: Final = 60.0
LOOK_S: Final = 0.05
SYSTEM_PREFIX: Final = "system/"
OUTCOMES: Final = ("ok", "auth_required", "token_expired", "forbidden", "rate_limited", "internal")

_KEY: Final = "noetl.caller"
_SCHEME: Final = "bearer "


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request."""

    account: str
    roles: tuple[str, ...]
    pool: str | None = None
    """The only pool that a worker's token may join and claim for."""
    tenant_id: str = "default"

    def mark(self, permission: str) -> Mark:
        """How far a permission goes for this caller."""
        return allows(self.roles, permission)


LOCAL: Final = Caller("local", ("admin", "system", "worker"))
NOBODY: Final = Caller("", ())
SYSTEM: Final = Caller("system", ("system",))


class Access:
    """Recognises bearers, and remembers for a moment whom it has seen."""

    def __init__(self, parts: ServerParts) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._internal = tuple(token.encode() for token in parts.internal_tokens if token)
        self._kept: OrderedDict[str, tuple[float, TokenRow]] = OrderedDict()
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()
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

    async def caller(self, request: Request, permission: str) -> Caller:
        """Whose request it is; refused unless the permission is given."""
        if self._parts.is_open:
            return LOCAL
        if permission == PUBLIC:
            return NOBODY
        try:
            caller = await self._recognised(request, permission)
        except (AuthRequired, RateLimited, Forbidden, InternalTokenUnset) as refusal:
            word = refusal.code if refusal.code in self.outcomes else "internal"
            self.outcomes[word] += 1
            raise
        self.outcomes["ok"] += 1
        return caller

    async def _recognised(self, request: Request, permission: str) -> Caller:
        if permission == "internal" and not self._internal:
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
        if self._is_internal(token):
            return _permitted(SYSTEM, permission)
        try:
            return _permitted(await self._holder(request, token), permission)
        except (AuthRequired, Forbidden) as refusal:
            if permission != "internal":
                raise
            raise Forbidden(
                "the token does not open internal routes", code="internal_token_mismatch"
            ) from refusal

    def _is_internal(self, token: str) -> bool:
        given = token.encode()
        found = False
        for ours in self._internal:  # each is compared, so that time tells nothing
            found |= hmac.compare_digest(ours, given)
        return found

    async def _holder(self, request: Request, token: str) -> Caller:
        name = digest(token)
        now = self._clock.monotonic()
        kept = self._kept.get(name)
        if kept is None or kept[0] <= now:
            address = request.client.host if request.client else ""
            if kept is None:  # one that was good is never shut out by its neighbours
                self._must_be_calm(address, now)
            row = await self._parts.store.tokens.find(name) if is_token(token) else None
            if row is None or row.revoked_at is not None:
                self._kept.pop(name, None)
                self._failed(address, now)
                raise AuthRequired(
                    "the token is not known" if row is None else "the token was revoked"
                )
            self._keep(name, now, row)
        else:
            row = kept[1]
        if row.expires_at is not None and row.expires_at <= rfc3339(self._clock.now()):
            raise AuthRequired("the token has expired", code="token_expired")
        return Caller(row.account, row.roles, row.pool, row.tenant_id)

    def _keep(self, name: str, now: float, row: TokenRow) -> None:
        self._kept[name] = (now + KEPT_S, row)
        self._kept.move_to_end(name)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    def _must_be_calm(self, address: str, now: float) -> None:
        until, count = self._failures.get(address, (0.0, 0))
        if count >= MOST_FAILURES and now < until:
            raise RateLimited(
                f"{count} attempts with wrong tokens within a minute", retry_after=until - now
            )

    def _failed(self, address: str, now: float) -> None:
        until, count = self._failures.get(address, (0.0, 0))
        if now >= until:
            until, count = now + FAILURES_S, 0
        self._failures[address] = (until, count + 1)
        self._failures.move_to_end(address)
        if len(self._failures) > MOST_KEPT:
            self._failures.popitem(last=False)


def admit(scope: Mapping[str, Any], caller: Caller) -> None:
    """Write the caller into a request."""
    scope[_KEY] = caller  # type: ignore[index] # the scope of a request is a dict of its own


def caller_of(request: Request) -> Caller:
    """Whose request it is; the route has made sure."""
    found: Caller = request.scope[_KEY]
    return found


def own_pool(caller: Caller, pool: str) -> None:
    """Refuse a pool that the caller's token is not for."""
    if caller.pool is not None and caller.pool != pool:
        raise Forbidden(
            f"the token is for the pool {caller.pool!r}, not for {pool!r}", code="pool_forbidden"
        )


def own_path(caller: Caller, permission: str, path: str) -> None:
    """Refuse a path under `system/` to those who may do this only elsewhere."""
    if caller.mark(permission) == "s" and f"{path}/".startswith(SYSTEM_PREFIX):
        raise Forbidden(f"{path} is reserved for the system", code="reserved_namespace")


def _permitted(caller: Caller, permission: str) -> Caller:
    if caller.mark(permission) in "-g":  # there are no grants yet, so none opens anything
        raise Forbidden(f"the account {caller.account!r} does not have `{permission}`")
    return caller


def _bearer(request: Request) -> str | None:
    header = request.headers.get("authorization", "")
    if header[: len(_SCHEME)].lower() != _SCHEME:
        return None
    return header[len(_SCHEME) :].strip() or None
