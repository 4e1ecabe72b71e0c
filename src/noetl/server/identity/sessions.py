"""Sessions of persons: how long they last, whose they are, and what they open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.identity import (
    Allowed,
    Session,
    SessionPage,
    SessionRevoked,
    SignedIn,
    User,
    Validated,
)
from noetl.clock import rfc3339
from noetl.ids import parse
from noetl.server.access.bearers import IDLE_S, caller_for
from noetl.server.access.caller import must_hold
from noetl.server.access.grants import WORDS
from noetl.server.access.tokens import SESSION, digest, is_token, new_token
from noetl.server.edge.errors import NotFound
from noetl.server.edge.moments import from_now
from noetl.server.identity.accounts import user_of
from noetl.server.identity.tokens import ADMIN
from noetl.store.identity import SessionRow

if TYPE_CHECKING:
    from noetl.api.identity import PlaybookAccess
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.server.access.caller import Caller
    from noetl.server.identity.tokens import Tokens
    from noetl.store.base import Store
    from noetl.store.identity import AccountRow

HOUR_S: Final = 3_600
_EDIT: Final = {"edit": "modify"}
_ENDED: Final = "the session has ended, or never was"


class Sessions:
    """Begins, checks and ends sessions."""

    def __init__(self, store: Store, clock: Clock, ids: Ids, *, tokens: Tokens) -> None:
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

    async def validate(self, text: str) -> Validated:
        """Whether a session lasts; asking is a use of it."""
        row = await self._live(text)
        if row is None:
            return Validated(valid=False, message=_ENDED)
        idle_until = min(row.expires_at, from_now(self._clock, IDLE_S))
        await self._rows.touch(row.session_id, idle_until)
        return Validated(
            valid=True,
            session_id=row.session_id,
            user=_user(row),
            expires_at=row.expires_at,
            idle_until=idle_until,
        )

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

    async def end(self, text: str) -> SessionRevoked:
        """End the session of a token; one that has ended stays so."""
        row = await self._rows.find(digest(text)) if _is_session(text) else None
        if row is None or row.revoked_at is not None:
            return SessionRevoked(revoked=False)
        await self._rows.revoke(row.session_id, rfc3339(self._clock.now()))
        return SessionRevoked(revoked=True, session_id=row.session_id)

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
        await self._rows.revoke(row.session_id, rfc3339(self._clock.now()))
        return _session(row)

    async def _live(self, text: str) -> SessionRow | None:
        row = await self._rows.find(digest(text)) if _is_session(text) else None
        if row is None or row.revoked_at is not None:
            return None
        ends_at = min(row.expires_at, row.idle_until)
        return row if ends_at > rfc3339(self._clock.now()) else None


def _is_session(text: str) -> bool:
    return text.startswith(SESSION) and is_token(text)


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
