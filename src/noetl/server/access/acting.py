"""Gateways that speak for somebody: whose word counts, and who he is then.

The word is signed with a key of the internal token and lasts a minute. What it says of roles is
never more than the session has now, as far as this server knows of it: a session that was ended
here opens nothing, whatever a gateway remembers.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.clock import rfc3339
from noetl.edge.errors import AuthRequired
from noetl.ids import InvalidId, parse
from noetl.secrets.signed import HEADER, BadIdentity, verified
from noetl.server.access.bearers import KEPT_S, MOST_KEPT, OF_TOKEN, end_of, with_rights
from noetl.server.access.caller import Caller
from noetl.server.access.permissions import SERVICES

if TYPE_CHECKING:
    from starlette.requests import Request

    from noetl.server.access.bearers import InternalToken
    from noetl.server.parts import ServerParts
    from noetl.store.identity import SessionRow, TokenRow

NAME: Final = HEADER.lower().encode()
SERVICE: Final = "gateway"
"""The role whose bearer may speak for others."""
_SCOPE: Final = "noetl.identity"


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway says of whom it speaks for."""

    sub: str
    """The id of his account."""
    name: str = ""
    """How his account is called; else as its id."""
    roles: tuple[str, ...] = ()
    tenant: str = "default"
    sid: str = ""
    """His session; a token has its id with `token-` before it."""
    ip: str = ""
    own: bool = False
    """The gateway asks on its own account, too: the body is its own, not one that he has sent."""


class Acting:
    """Knows whom gateways speak for."""

    def __init__(self, parts: ServerParts, internal: InternalToken) -> None:
        self._store = parts.store
        self._clock = parts.clock
        self._internal = internal
        self._kept: OrderedDict[tuple[object, ...], tuple[float, Caller]] = OrderedDict()

    async def caller(self, request: Request, most_age: float = KEPT_S) -> Caller | None:
        """Who is spoken for, if anybody is; a word that does not count is refused.

        A request that was let in may last longer than the word that came with it.
        """
        word: Word | None = request.scope.get(_SCOPE)
        if word is None:
            given = [text for name, text in request.scope["headers"] if name == NAME]
            if not given:
                return None
            if len(given) > 1:
                raise BadIdentity("the identity is told twice")
            word = request.scope[_SCOPE] = self._heard(given[0].decode("latin-1"))
        caller = await self._known(word, most_age)
        return replace(caller, is_gateway=word.own, address=_address(word.ip))

    def _heard(self, text: str) -> Word:
        claims = verified(text, self._internal.keys, self._clock.now().timestamp())
        try:
            word = msgspec.convert(_told(claims), Word)
        except msgspec.ValidationError as fault:
            raise BadIdentity(f"the identity is not whole: {fault}") from None
        if not word.sub or not word.tenant:
            raise BadIdentity("the identity names nobody")
        return word

    async def _known(self, word: Word, most_age: float) -> Caller:
        key = (word.sub, word.name, word.roles, word.tenant, word.sid)
        now = self._clock.monotonic()
        found = self._kept.get(key)
        if found is not None and now - found[0] < most_age:
            return found[1]
        try:
            caller = await self._looked_up(word)
        except AuthRequired:
            self._kept.pop(key, None)
            raise
        self._kept[key] = (now, caller)
        self._kept.move_to_end(key)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return caller

    async def _looked_up(self, word: Word) -> Caller:
        roles = tuple(role for role in word.roles if role not in SERVICES)
        row = await self._session(word.sid)
        if row is not None:
            if (row.account_id, row.tenant_id) != (word.sub, word.tenant):
                raise BadIdentity("the identity has the session of somebody else")
            if not await self._lasts(row):
                raise AuthRequired(
                    "the session has ended", code="session_expired", hint="sign in again"
                )
            roles = tuple(role for role in roles if role in row.roles)
        caller = Caller(
            (word.name or word.sub) if row is None else row.account,
            roles,
            tenant_id=word.tenant,
            account_id=word.sub,
            session_id=word.sid,
            expires_at=None if row is None else row.expires_at,
        )
        return await with_rights(self._store, caller)

    async def _lasts(self, row: SessionRow | TokenRow) -> bool:
        end = end_of(row, row.sha256)
        if row.revoked_at is not None or (end is not None and end <= rfc3339(self._clock.now())):
            return False
        account = await self._store.accounts.get(row.account_id)
        return account is not None and account.active

    async def _session(self, sid: str) -> SessionRow | TokenRow | None:
        """The session or token of that id; none when this server has never begun it."""
        try:
            number = parse(sid.removeprefix(OF_TOKEN))
        except InvalidId:
            return None
        if sid.startswith(OF_TOKEN):
            return await self._store.tokens.get(number)
        return await self._store.sessions.get(number)


def _told(claims: dict[str, Any]) -> dict[str, Any]:
    """What is of use here; null says nothing."""
    return {name: claims[name] for name in Word.__struct_fields__ if claims.get(name) is not None}


def _address(text: str) -> str:
    try:
        return str(ip_address(text)) if text else ""
    except ValueError:
        return ""
