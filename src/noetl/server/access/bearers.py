"""Bearers: whose a token or a session is, remembered for a moment; and the internal token."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from noetl.clock import rfc3339
from noetl.edge.errors import AuthRequired, RateLimited
from noetl.edge.moments import from_now
from noetl.errors import NoetlError
from noetl.secrets.file import SecretFile
from noetl.secrets.signed import key_of
from noetl.server.access.caller import Caller, grantable
from noetl.server.access.permissions import ROLES
from noetl.server.access.tokens import SESSION, digest, is_token

if TYPE_CHECKING:
    from noetl.server.parts import ServerParts
    from noetl.store.base import Store
    from noetl.store.identity import SessionRow, TokenRow

KEPT_S: Final = 5.0
"""How long a looked-up bearer is believed: a revoked one ends within this time."""
IDLE_S: Final = 2 * 3600
"""How long a session lasts that is not used."""
USED_S: Final = 60.0
"""How often the use of a bearer is noted."""
LONGER_S: Final = 60.0
"""How long the token before lasts when a session was given another one."""
GATEWAY_S: Final = 600.0
"""How long an address is that of a gateway after it has shown to be."""
MOST_KEPT: Final = 10_000
MOST_FAILURES: Final = 10
FAILURES_S: Final = 60.0
FILE_S: Final = 1.0
"""How often the file of the internal token is looked at."""
OF_TOKEN: Final = "token-"  # noqa: S105 - no password, but what ids begin with
"""What the id of a token begins with where ids of sessions stand."""
_BUILT_IN: Final = frozenset(ROLES)
_FOR_EVER: Final = float("inf")
_log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """A bearer that was looked up; times are those of the monotonic clock."""

    caller: Caller
    name: str
    """The id of the token or session."""
    at: float
    ends_at: float
    is_session: bool
    used_at: float
    """When its use was noted last."""


class Bearers:
    """Recognises tokens and sessions."""

    def __init__(self, parts: ServerParts) -> None:
        self._store = parts.store
        self._clock = parts.clock
        self._kept: OrderedDict[str, _Known] = OrderedDict()
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._gateways: OrderedDict[str, float] = OrderedDict()
        """Addresses of gateways, which have limits of their own, and until when."""
        self._noting: set[asyncio.Task[None]] = set()

    async def holder(self, token: str, address: str, most_age: float = KEPT_S) -> Caller:
        """Whose token it is; looked up again when what is known is older than `most_age`."""
        name = digest(token)
        now = self._clock.monotonic()
        known = self._kept.get(name)
        if known is None or now - known.at >= most_age:
            if known is None:  # one that was good is never shut out by its neighbours
                self._must_be_calm(address, now)
            known = await self._looked_up(name, token, address, known)
        if known.ends_at <= now:
            raise _ended(is_session=known.is_session)
        if now - known.used_at >= USED_S:
            known.used_at = now
            self._note(known)
        return known.caller

    def is_of_gateway(self, address: str) -> None:
        """A gateway has spoken for somebody from this address.

        Many come through it: the wrong tokens of one do not shut the others out.
        """
        self._gateways[address] = self._clock.monotonic() + GATEWAY_S
        self._gateways.move_to_end(address)
        if len(self._gateways) > MOST_KEPT:
            self._gateways.popitem(last=False)

    async def _looked_up(
        self, name: str, token: str, address: str, before: _Known | None
    ) -> _Known:
        now = self._clock.monotonic()
        row: TokenRow | SessionRow | None = None
        is_session = token.startswith(SESSION)
        if is_token(token):
            store = self._store
            row = await (store.sessions.find(name) if is_session else store.tokens.find(name))
        if row is None or row.revoked_at is not None:
            self._kept.pop(name, None)
            if row is not None and is_session:
                raise _ended(is_session=True)
            self._failed(address, now)
            raise AuthRequired("the token is not known" if row is None else "the token was revoked")
        used_at = before.used_at if before is not None else -_FOR_EVER
        caller, ends_at = await caller_for(self._store, row), self._end_of(row, name)
        known = _Known(caller, _id_of(row), now, ends_at, is_session, used_at)
        self._kept[name] = known
        self._kept.move_to_end(name)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return known

    def _end_of(self, row: TokenRow | SessionRow, name: str) -> float:
        end = end_of(row, name)
        if end is None:
            return _FOR_EVER
        left = (datetime.fromisoformat(end) - self._clock.now()).total_seconds()
        return self._clock.monotonic() + left

    def _note(self, known: _Known) -> None:
        """Write down that a bearer is used; nobody waits for it."""
        task = asyncio.create_task(self._used(known))
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    async def _used(self, known: _Known) -> None:
        store, clock = self._store, self._clock
        try:
            if known.is_session:
                await store.sessions.touch(known.name, from_now(clock, IDLE_S))
            else:
                await store.tokens.touch(known.name, rfc3339(clock.now()))
        except NoetlError as fault:  # the next use notes it
            _log.warning("the use of a bearer was not noted", extra={"code": fault.code})

    def _must_be_calm(self, address: str, now: float) -> None:
        until, count = self._failures.get(address, (0.0, 0))
        is_gateway = self._gateways.get(address, 0.0) > now
        if count >= MOST_FAILURES and now < until and not is_gateway:
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


class InternalToken:
    """The bearer of the platform's own processes; one that lies in a file may change there."""

    def __init__(self, parts: ServerParts) -> None:
        self._clock = parts.clock
        file = parts.internal_token_file
        self._file = SecretFile(file, told=parts.seen.add) if file else None
        self._told = tuple(token.encode() for token in parts.internal_tokens if token.strip())
        self._of_file = b""
        self._look_at = -_FOR_EVER

    @property
    def is_set(self) -> bool:
        """Whether there is one."""
        return bool(self._all())

    @property
    def keys(self) -> list[bytes]:
        """What the words of gateways are signed with."""
        return [_key_of(token) for token in self._all()]

    @property
    def current(self) -> str:
        """The one to call others with; empty when there is none."""
        return next((token.decode() for token in self._all()), "")

    def fits(self, token: str) -> bool:
        """Whether a bearer is the internal token, or the one before it."""
        given, found = token.encode(), False
        for ours in self._all():  # each is compared, so that time tells nothing
            found |= hmac.compare_digest(ours, given)
        return found

    def _all(self) -> tuple[bytes, ...]:
        if self._file is not None and self._clock.monotonic() - self._look_at >= FILE_S:
            self._look_at = self._clock.monotonic()
            self._of_file = self._file().encode()
        return (self._of_file, *self._told) if self._of_file else self._told


async def caller_for(store: Store, row: TokenRow | SessionRow) -> Caller:
    """Who comes with a token or a session."""
    caller = Caller(
        row.account,
        row.roles,
        getattr(row, "pool", None),
        row.tenant_id,
        row.account_id,
        session_id=getattr(row, "session_id", "") or f"{OF_TOKEN}{_id_of(row)}",
        expires_at=row.expires_at,
    )
    return await with_rights(store, caller)


async def with_rights(store: Store, caller: Caller) -> Caller:
    """A caller with what roles give him that were made here."""
    made = [name for name in caller.roles if name not in _BUILT_IN]
    rights = await store.rights.of(caller.tenant_id, made) if made else []
    return replace(
        caller,
        grants=tuple(grant for right in rights for grant in right.grants),
        own=grantable(frozenset(name for right in rights for name in right.permissions)),
    )


def end_of(row: TokenRow | SessionRow, sha256: str) -> str | None:
    """When a bearer ends unless it is used, by its digest; none: never.

    The token that a session had before ends soon after it was given another one.
    """
    ends = [row.expires_at, getattr(row, "idle_until", None)]
    refreshed_at: str | None = getattr(row, "refreshed_at", None)
    if refreshed_at is not None and row.sha256 != sha256:
        longest = datetime.fromisoformat(refreshed_at) + timedelta(seconds=LONGER_S)
        ends.append(rfc3339(longest))
    return min((end for end in ends if end), default=None)


@lru_cache(maxsize=8)
def _key_of(token: bytes) -> bytes:
    return key_of(token.decode())


def _id_of(row: TokenRow | SessionRow) -> str:
    found: str = getattr(row, "token_id", "") or getattr(row, "session_id", "")
    return found


def _ended(*, is_session: bool) -> AuthRequired:
    if is_session:
        return AuthRequired("the session has ended", code="session_expired", hint="sign in again")
    return AuthRequired("the token has expired", code="token_expired")
