"""Sessions: whose a token is, remembered in a bucket, and told by the server when it is not there.

The bucket is never the truth: without it everybody who may come in still does, only slower.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from noetl.bus import subjects
from noetl.bus.base import BusGone
from noetl.errors import NoetlError
from noetl.gateway.errors import AuthUnavailable, InvalidSession
from noetl.gateway.person import Person
from noetl.gateway.remembered import Remembered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.api.identity import Validated
    from noetl.bus.base import Bus
    from noetl.bus.keys import Keys
    from noetl.clock import Clock
    from noetl.gateway.hooks import Hooks
    from noetl.gateway.metrics import GatewayMetrics
    from noetl.gateway.upstream import Upstream

T = TypeVar("T")

SESSION: Final = "nts_"
TOKEN: Final = "ntk_"  # noqa: S105 - how one begins
MOST_CHARS: Final = 4096
NEGATIVE_S: Final = 5.0
NEAR_S: Final = 1.0
"""How long a session is believed without a look at the bucket."""
TOKEN_S: Final = 5.0
HOOK_S: Final = 30.0
"""How long the word of a playbook counts."""
ENDED_S: Final = 86_400.0
"""How long the end of a session of a playbook is remembered, at least."""
MOST_ENDED_S: Final = 400 * ENDED_S
"""What would be remembered for longer is remembered for ever: no broker counts that far."""
_OF_HOOK: Final = "hook-"
BUCKET_S: Final = 2.0
SERVER_S: Final = 10.0
_WRONG: Final = "the session is not known, has expired or was ended"
_log: Final = logging.getLogger(__name__)


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it lies in the bucket."""

    session_id: str
    user_id: str
    subject: str
    email: str | None
    display_name: str | None
    roles: tuple[str, ...]
    tenant: str
    org: str = "default"
    expires_at: str | None = None
    is_active: bool = True

    def person(self) -> Person:
        """Who it is."""
        return Person(
            user_id=self.user_id,
            subject=self.subject,
            email=self.email,
            display_name=self.display_name,
            roles=self.roles,
            tenant=self.tenant,
            session_id=self.session_id,
            expires_at=self.expires_at,
        )


class Sessions:
    """Knows whose a token is."""

    def __init__(  # noqa: PLR0913 - all that knows of sessions
        self,
        *,
        keys: Keys,
        bus: Bus,
        upstream: Upstream,
        clock: Clock,
        metrics: GatewayMetrics,
        ttl_s: float = 300.0,
        hooks: Hooks | None = None,
    ) -> None:
        self._keys = keys
        self._bus = bus
        self._upstream = upstream
        self._clock = clock
        self._metrics = metrics
        self._hooks = hooks if hooks is not None and hooks.is_on else None
        self._ttl_s = ttl_s if self._hooks is None else HOOK_S
        self._near: Remembered[Kept] = Remembered(clock, NEAR_S)
        self._tokens: Remembered[Kept] = Remembered(clock, TOKEN_S)
        self._unknown: Remembered[bool] = Remembered(clock, NEGATIVE_S)
        self._changed: Remembered[float] = Remembered(clock, SERVER_S + BUCKET_S)
        """When something of a session was told to have changed, by digest."""
        self.on_revoked: list[Callable[[str], Awaitable[None]]] = []
        """Told the id of every session that ends, on whichever replica."""

    async def of(self, token: str) -> Person:
        """Whose token it is; `InvalidSession` if nobody's, `AuthUnavailable` if none can say."""
        is_ours = token.startswith((SESSION, TOKEN)) or self._hooks is not None
        if not is_ours or len(token) > MOST_CHARS or not token.isascii():
            raise self._refused("invalid")
        name = digest(token)
        if self._unknown.get(name) is not None:
            raise self._refused("negative")
        if token.startswith(TOKEN):
            return await self._of_token(token, name)
        kept = await self._found(name, lambda: self._known(token, name))
        return replace(kept.person(), token=token)

    async def used(self, person: Person) -> Person:
        """Somebody who asks for something where he came in before, as he is now.

        His session may have been given another token: then its id tells whether it lasts.
        """
        try:
            return _as_now(person, await self.of(person.token))
        except InvalidSession:
            if not is_numbered(person.session_id):
                raise
        name = person.session_id
        kept = await self._found(name, lambda: self._looked(name, is_use=True))
        return _as_now(person, kept.person())

    async def look(self, person: Person) -> Person:
        """Somebody whose stream is open, as he is now; that is no use of his session.

        Nothing is kept of it: who uses his session meanwhile is to be noted.
        """
        if not person.token:
            return person
        if not is_numbered(person.session_id):
            return _as_now(person, await self.of(person.token))
        kept = await self._looked(person.session_id, is_use=False)
        return _as_now(person, kept.person())

    async def forget(self, name: str) -> None:
        """Ask the server about a session at its next use; by the digest of a token, or its id."""
        self._changed.put(name, self._clock.monotonic())
        self._near.drop(name)
        self._tokens.drop(name)
        await self._tried("delete", self._keys.delete(f"s.{name}"))

    async def renewed(self, session_id: str, name: str) -> None:
        """A session has changed: whatever is known of it is asked for anew."""
        await self.forget(name)
        if is_numbered(session_id):
            await self.forget(session_id)

    async def ended(self, session_id: str, name: str) -> None:
        """A session has ended: every replica forgets it and closes its streams."""
        await self.renewed(session_id, name)
        payload = msgspec.json.encode({"session_id": session_id, "sha256": name})
        try:
            async with asyncio.timeout(BUCKET_S):
                await self._bus.tell(subjects.revoked(session_id), payload)
        except (BusGone, TimeoutError):  # the server tells it, too
            _log.warning("the end of a session could not be told")
        await self._close(session_id)

    async def end_hooked(self, person: Person) -> None:
        """End a session that a playbook has made, for every replica.

        The playbook may go on to say that it lasts: that it has ended is written down here first,
        and only what is written down is answered.
        """
        name = digest(person.token)
        try:
            async with asyncio.timeout(BUCKET_S):
                await self._keys.put(f"e.{name}", b"", self._ended_for(person))
        except (BusGone, TimeoutError) as fault:
            self._metrics.kv_errors.inc("sessions", "put")
            raise self._unavailable() from fault
        await self.ended(person.session_id, name)

    async def begun(self, token: str) -> None:
        """A playbook has signed somebody in; it may give the token that he had before."""
        name = digest(token)
        self._unknown.drop(name)
        if await self._tried("get", self._keys.get(f"e.{name}")) is not None:
            await self._tried("delete", self._keys.delete(f"e.{name}"))

    async def listen(self) -> None:
        """Hear of sessions that end, on this replica or elsewhere."""
        async with self._bus.listen(subjects.REVOKED) as heard:
            async for told in heard:
                await self._heard(told.payload)

    async def _heard(self, payload: bytes) -> None:
        try:
            told = msgspec.json.decode(payload, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            _log.warning("the end of a session was told in words that nobody understands")
            return
        name, session_id = told.get("sha256"), told.get("session_id")
        if isinstance(name, str) and name.isalnum():
            await self.forget(name)
        if isinstance(session_id, str) and session_id:
            if is_numbered(session_id):
                await self.forget(session_id)
            await self._close(session_id)

    async def _close(self, session_id: str) -> None:
        for told in self.on_revoked:
            try:
                await told(session_id)
            except NoetlError as fault:  # one stream that cannot be closed keeps no other open
                _log.warning("a session's streams were not closed", extra={"code": fault.code})

    # -------------------------------------------------------------------------- lookups

    async def _found(self, name: str, ask: Callable[[], Awaitable[Kept]]) -> Kept:
        """What is known under a name, here, in the bucket or by whoever is asked."""
        outcome, kept = "hit", self._near.get(name)
        if kept is None:
            looked_at = self._clock.monotonic()
            kept = await self._in_bucket(name)
            if kept is None or self._has_changed(name, looked_at):
                outcome, kept = "miss", await self._asked(name, ask)
            self._near.put(name, kept)
        if not kept.is_active:
            raise self._refused("revoked")
        if self._has_passed(kept.expires_at):
            raise self._refused("expired")
        self._metrics.session_check.inc(outcome)
        return kept

    async def _in_bucket(self, name: str) -> Kept | None:
        entry = await self._tried("get", self._keys.get(f"s.{name}"))
        if entry is None:
            return None
        try:
            return msgspec.json.decode(entry.value, type=Kept)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    async def _asked(self, name: str, ask: Callable[[], Awaitable[Kept]]) -> Kept:
        """What the server knows; put into the bucket unless it changed in between."""
        asked_at = self._clock.monotonic()
        kept = await ask()
        if not self._has_changed(name, asked_at):
            value, ttl_s = msgspec.json.encode(kept), self._ttl_for(kept)
            await self._tried("put", self._keys.put(f"s.{name}", value, ttl_s))
        if self._has_changed(name, asked_at):
            await self._tried("delete", self._keys.delete(f"s.{name}"))
            kept = await ask()
        if is_hooked(kept.session_id):  # whoever ended it meanwhile may not have seen what we put
            await self._must_go_on(name)
        return kept

    async def _must_go_on(self, name: str) -> None:
        """Refuse a session that was ended here, whatever its playbook says."""
        try:
            async with asyncio.timeout(BUCKET_S):
                is_ended = await self._keys.get(f"e.{name}") is not None
        except (BusGone, TimeoutError) as fault:
            self._metrics.kv_errors.inc("sessions", "get")
            raise self._unavailable() from fault
        if is_ended:
            await self._tried("delete", self._keys.delete(f"s.{name}"))
            self._unknown.put(name, True)  # noqa: FBT003 - a fact, not a switch
            raise self._refused("revoked")

    async def _known(self, token: str, name: str) -> Kept:
        """Whose it is by the server's own word; of what it has not made, by a playbook's."""
        is_made_here = token.startswith((SESSION, TOKEN))
        kept = await self._validated(token) if is_made_here else None
        if kept is None and self._hooks is not None and not token.startswith(TOKEN):
            await self._must_go_on(name)
            kept = await self._hooked(self._hooks, token)
        if kept is None:
            self._unknown.put(name, True)  # noqa: FBT003 - a fact, not a switch
            raise self._refused("invalid")
        return kept

    def _has_changed(self, name: str, since: float) -> bool:
        changed_at = self._changed.get(name)
        return changed_at is not None and changed_at >= since

    async def _validated(self, token: str) -> Kept | None:
        return _kept(await self._told(self._upstream.service().validate_session(token)))

    async def _looked(self, session_id: str, *, is_use: bool) -> Kept:
        """What the server knows of a session by its id."""
        service = self._upstream.service()
        kept = _kept(await self._told(service.look_at_session(session_id, is_use=is_use)))
        if kept is None:
            raise self._refused("invalid")
        return kept

    async def _hooked(self, hooks: Hooks, token: str) -> Kept | None:
        try:
            found = await hooks.validate(token)
        except NoetlError:
            self._metrics.session_check.inc("unavailable")
            raise
        if found is None:
            return None
        return Kept(
            session_id=f"{_OF_HOOK}{digest(token)[:32]}",
            user_id=found.user.user_id,
            subject=found.user.email,
            email=found.user.email,
            display_name=found.user.display_name,
            roles=found.user.roles,
            tenant=found.user.tenant,
            expires_at=found.expires_at,
        )

    async def _of_token(self, token: str, name: str) -> Person:
        """Whose an API token is; it is never put into the bucket, so that it ends soon."""
        kept = self._tokens.get(name)
        if kept is None:
            kept = await self._known(token, name)
            self._tokens.put(name, kept)
        if self._has_passed(kept.expires_at):
            raise self._refused("expired")
        self._metrics.session_check.inc("token")
        return replace(kept.person(), token=token)

    # ------------------------------------------------------------------------- failures

    async def _told(self, asking: Awaitable[T]) -> T:
        """What the server answers; a failing server is never a wrong session."""
        try:
            async with asyncio.timeout(SERVER_S):
                return await asking
        except (NoetlError, TimeoutError) as fault:
            raise self._unavailable() from fault

    async def _tried(self, op: str, asking: Awaitable[T]) -> T | None:
        """What the bucket answers; none when it fails."""
        try:
            async with asyncio.timeout(BUCKET_S):
                return await asking
        except (BusGone, TimeoutError):
            self._metrics.session_cache_failed.inc(op)
            self._metrics.kv_errors.inc("sessions", op)
            return None

    def _refused(self, outcome: str) -> InvalidSession:
        self._metrics.session_check.inc(outcome)
        return InvalidSession(_WRONG, hint="sign in again")

    def _unavailable(self) -> AuthUnavailable:
        self._metrics.session_check.inc("unavailable")
        return AuthUnavailable("nobody can say now whose session it is")

    def _has_passed(self, moment: str | None) -> bool:
        return moment is not None and datetime.fromisoformat(moment) <= self._clock.now()

    def _ended_for(self, person: Person) -> float | None:
        """How long it is remembered that a session has ended: longer than it would have lasted."""
        ends_at = datetime.fromisoformat(person.expires_at) if person.expires_at else None
        if ends_at is None:
            return None
        left_s = (ends_at - self._clock.now()).total_seconds() + ENDED_S
        return None if left_s > MOST_ENDED_S else max(left_s, ENDED_S)

    def _ttl_for(self, kept: Kept) -> float:
        if kept.expires_at is None:
            return self._ttl_s
        left = (datetime.fromisoformat(kept.expires_at) - self._clock.now()).total_seconds()
        return min(self._ttl_s, max(left, 1.0))


def _kept(told: Validated) -> Kept | None:
    """What is kept of an answer of the server; none when the session does not last."""
    if not told.valid or told.user is None:
        return None
    user = told.user
    return Kept(
        session_id=told.session_id or "",
        user_id=user.user_id,
        subject=user.subject,
        email=user.email,
        display_name=user.display_name,
        roles=user.roles,
        tenant=user.tenant,
        expires_at=told.expires_at,
    )


def _as_now(person: Person, found: Person) -> Person:
    """What is found of somebody, who is where he was and came as he did."""
    return replace(found, via=person.via, token=person.token, address=person.address)


def is_numbered(session_id: str) -> bool:
    """Whether a session is one of the server; tokens and sessions of playbooks have other ids."""
    return session_id.isascii() and session_id.isdigit()


def is_hooked(session_id: str) -> bool:
    """Whether a session is one of a playbook; those of the server have numbers."""
    return session_id.startswith(_OF_HOOK)


def digest(token: str) -> str:
    """What is kept of a token."""
    return sha256(token.encode()).hexdigest()
