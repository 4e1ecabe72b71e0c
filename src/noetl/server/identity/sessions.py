"""Sessions of persons: how long they last, whose they are, and what they open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.identity import (
    Allowed,
    Refreshed,
    Session,
    SessionPage,
    SessionRevoked,
    SignedIn,
    User,
    Validated,
)
from noetl.clock import rfc3339
from noetl.edge.errors import AuthRequired, NotFound
from noetl.edge.moments import from_now, seconds_between
from noetl.ids import parse
from noetl.server.access.bearers import IDLE_S, LONGER_S, OF_TOKEN, caller_for, end_of
from noetl.server.access.caller import must_hold
from noetl.server.access.grants import WORDS
from noetl.server.access.tokens import SESSION, digest, is_token, new_token
from noetl.server.identity.accounts import user_of
from noetl.server.identity.tokens import ADMIN
from noetl.store.identity import EndedSession, SessionRow

if TYPE_CHECKING:
    from noetl.api.identity import PlaybookAccess, SessionLook
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.server.access.caller import Caller
    from noetl.server.identity.farewells import Farewells
    from noetl.server.identity.tokens import Tokens
    from noetl.store.base import Store
    from noetl.store.identity import AccountRow, TokenRow

HOUR_S: Final = 3_600
MOST_S: Final = 24 * HOUR_S
"""How long a session lasts at most, however often it is given another token."""
_EDIT: Final = {"edit": "modify"}
_ENDED: Final = "the session has ended, or never was"


class Sessions:
    """Begins, checks and ends sessions."""

    def __init__(
        self, store: Store, clock: Clock, ids: Ids, *, tokens: Tokens, farewells: Farewells
    ) -> None:
        self._farewells = farewells
        self._store = store
        self._rows = store.sessions
        self._clock = clock
        self._ids = ids
        self._tokens = tokens

    async def begin(self, account: AccountRow, hours: int, client: dict[str, str]) -> SignedIn:
        """A session of an account; those of it that ended long ago are forgotten."""
        text = new_token(SESSION)
        expires_at = from_now(self._clock, hours * HOUR_S)
        row = SessionRow(
            session_id=self._ids.new(),
            sha256=digest(text),
            account_id=account.account_id,
            created_at=rfc3339(self._clock.now()),
            expires_at=expires_at,
            idle_until=min(expires_at, from_now(self._clock, IDLE_S)),
            client=client,
        )
        await self._rows.forget(account.account_id, row.created_at)
        await self._rows.put(row)
        return SignedIn(
            session_token=text,
            session_id=row.session_id,
            user=user_of(account),
            expires_at=row.expires_at,
            idle_until=row.idle_until,
            message=f"signed in as {account.subject}",
        )

    async def refresh(self, text: str) -> Refreshed:
        """Another token for a session; the one before lasts a moment longer.

        The session is given as long again as it was before, but never more than a day in all.
        """
        row = await self._live(text)
        if not isinstance(row, SessionRow) or row.sha256 != digest(text):
            raise AuthRequired(_ENDED, code="session_expired", hint="sign in again")
        text, now = new_token(SESSION), rfc3339(self._clock.now())
        lasts_s = seconds_between(row.refreshed_at or row.created_at, row.expires_at)
        left_s = MOST_S - seconds_between(row.created_at, now)
        expires_at = max(row.expires_at, from_now(self._clock, min(lasts_s, left_s)))
        fresh = msgspec.structs.replace(
            row,
            sha256=digest(text),
            previous_sha256=row.sha256,
            refreshed_at=now,
            expires_at=expires_at,
            idle_until=min(expires_at, from_now(self._clock, IDLE_S)),
        )
        if not await self._rows.refresh(fresh):
            raise AuthRequired(_ENDED, code="session_expired", hint="sign in again")
        return Refreshed(
            session_token=text,
            session_id=row.session_id,
            user=_user(row),
            expires_at=expires_at,
            idle_until=fresh.idle_until,
            previous_until=min(expires_at, from_now(self._clock, LONGER_S)),
            message="the token before lasts a minute longer",
        )

    async def validate(self, text: str) -> Validated:
        """Whether a session or a token lasts; asking is a use of it."""
        row = await self._live(text)
        if row is None:
            return Validated(valid=False, message=_ENDED)
        if not isinstance(row, SessionRow):
            return await self._of_token(row)
        if row.sha256 != digest(text):
            ends_at = end_of(row, digest(text))
            return Validated(
                valid=True,
                session_id=row.session_id,
                user=_user(row),
                expires_at=ends_at,
                idle_until=ends_at,
            )
        return _lasts(row, await self._touched(row))

    async def look(self, body: SessionLook) -> Validated:
        """Whether a session lasts, by its id; asking alone is no use of it."""
        found = await self._rows.get(parse(body.session_id))
        row = None if found is None else await self._rows.find(found.sha256)
        if row is None or not self._is_live(row, row.sha256):
            return Validated(valid=False, message=_ENDED)
        return _lasts(row, await self._touched(row) if body.is_use else row.idle_until)

    async def _touched(self, row: SessionRow) -> str:
        """Note a use; how long the session lasts without another one."""
        idle_until = min(row.expires_at, from_now(self._clock, IDLE_S))
        await self._rows.touch(row.session_id, idle_until)
        return idle_until

    async def allowed(self, body: PlaybookAccess) -> Allowed:
        """Whether whose session it is may do something with a playbook."""
        row = await self._live(body.session_token)
        if row is None:
            return Allowed(allowed=False, reason=_ENDED)
        caller = await caller_for(self._store, row)
        needed = WORDS[_EDIT.get(body.action, body.action)]
        for permission in needed:
            if not caller.may(permission, body.playbook_path):
                return Allowed(
                    allowed=False, reason=f"`{permission}` is not given for {body.playbook_path}"
                )
        words = " and ".join(f"`{permission}`" for permission in needed)
        return Allowed(allowed=True, reason=f"{words} given for {body.playbook_path}")

    async def _of_token(self, row: TokenRow) -> Validated:
        account = await self._store.accounts.get(row.account_id)
        await self._store.tokens.touch(row.token_id, rfc3339(self._clock.now()))
        return Validated(
            valid=True,
            session_id=f"{OF_TOKEN}{row.token_id}",
            user=User(
                user_id=row.account_id,
                subject=row.account,
                email=None if account is None else account.email,
                display_name=None if account is None else account.display_name,
                roles=row.roles,
                tenant=row.tenant_id,
            ),
            expires_at=row.expires_at,
            idle_until=row.expires_at,
        )

    async def end(self, text: str) -> tuple[SessionRevoked, SessionRow | None]:
        """End the session of a token, and which one it was; one that has ended stays so."""
        row = await self._live(text)
        if not isinstance(row, SessionRow):
            return SessionRevoked(revoked=False), None
        await self._revoke(row)
        return SessionRevoked(revoked=True, session_id=row.session_id), row

    async def page(self, caller: Caller, account_id: str | None) -> SessionPage:
        """Sessions of the caller, or of an account that he may manage."""
        owner = await self._tokens.owner(caller, account_id)
        rows = await self._rows.listed(owner.account_id, rfc3339(self._clock.now()))
        return SessionPage(items=tuple(map(_session, rows)))

    async def revoke(self, caller: Caller, session_id: str) -> Session:
        """End a session by its id; which one it was."""
        row = await self._rows.get(parse(session_id))
        if row is None or row.tenant_id != caller.tenant_id or row.revoked_at is not None:
            raise NotFound(f"there is no session {session_id[:20]}")
        if row.account_id != caller.account_id:
            must_hold(caller, ADMIN)
        await self._revoke(row)
        return _session(row)

    async def _revoke(self, row: SessionRow) -> None:
        await self._rows.revoke(row.session_id, rfc3339(self._clock.now()))
        await self._farewells.tell([EndedSession.of(row)])

    async def _live(self, text: str) -> SessionRow | TokenRow | None:
        """The session or the token of a text, if it lasts."""
        if not is_token(text):
            return None
        sha256 = digest(text)
        is_session = text.startswith(SESSION)
        row: SessionRow | TokenRow | None = await (
            self._rows.find(sha256) if is_session else self._store.tokens.find(sha256)
        )
        return row if row is not None and self._is_live(row, sha256) else None

    def _is_live(self, row: SessionRow | TokenRow, sha256: str) -> bool:
        """Whether what has this digest lasts."""
        ends_at = end_of(row, sha256)
        is_over = ends_at is not None and ends_at <= rfc3339(self._clock.now())
        return row.revoked_at is None and not is_over


def _lasts(row: SessionRow, idle_until: str) -> Validated:
    return Validated(
        valid=True,
        session_id=row.session_id,
        user=_user(row),
        expires_at=row.expires_at,
        idle_until=idle_until,
    )


def _user(row: SessionRow) -> User:
    return User(
        user_id=row.account_id,
        subject=row.account,
        email=row.email,
        display_name=row.display_name,
        roles=row.roles,
        tenant=row.tenant_id,
    )


def _session(row: SessionRow) -> Session:
    return Session(
        session_id=row.session_id,
        account_id=row.account_id,
        account=row.account,
        created_at=row.created_at,
        expires_at=row.expires_at,
        idle_until=row.idle_until,
        client=row.client,
    )
