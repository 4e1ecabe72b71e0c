"""Tickets: a way in for where no header can be sent, once, for a short while, for one purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.edge.errors import Forbidden
from noetl.gateway.errors import TicketUsed
from noetl.gateway.once import Once
from noetl.gateway.sessions import SESSION, TOKEN

if TYPE_CHECKING:
    from noetl.bus.keys import Keys
    from noetl.clock import Clock
    from noetl.gateway.person import Person
    from noetl.gateway.sessions import Sessions

PURPOSES: Final = ("events", "ws", "graphql")
LOGIN: Final = "login"
TTL_S: Final = 30
LOGIN_TTL_S: Final = 15 * 60


class _Ticket(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    purpose: str
    token: str = ""
    account_id: str = ""
    tenant: str = ""


class Tickets:
    """Issues and redeems tickets; what they stand for is sealed with their own text."""

    def __init__(self, *, keys: Keys, sessions: Sessions, clock: Clock) -> None:
        self._once = Once(keys, "t", clock)
        self._sessions = sessions

    async def issue(self, person: Person, purpose: str, ttl_s: float | None = None) -> str:
        """A ticket of somebody; one to sign in with is for admins, since it begins a session.

        Whom a playbook knows has no account that could be signed in; its id may be another's.
        """
        if purpose == LOGIN:
            if "admin" not in person.roles or not person.token.startswith((SESSION, TOKEN)):
                raise Forbidden("only an admin with an account gets a ticket to sign in with")
            made = _Ticket(purpose=purpose, account_id=person.user_id, tenant=person.tenant)
        else:
            made = _Ticket(purpose=purpose, token=person.token)
        life_s = ttl_s or (LOGIN_TTL_S if purpose == LOGIN else TTL_S)
        return await self._once.put(msgspec.json.encode(made), life_s)

    async def redeem(self, ticket: str, purpose: str) -> Person:
        """Whose ticket it is; his session is looked up anew."""
        found = await self._taken(ticket, purpose)
        return replace(await self._sessions.of(found.token), via="ticket")

    async def redeem_login(self, ticket: str) -> tuple[str, str]:
        """The account and the tenant that a ticket signs in."""
        found = await self._taken(ticket, LOGIN)
        return found.account_id, found.tenant

    async def _taken(self, ticket: str, purpose: str) -> _Ticket:
        data = await self._once.take(ticket)
        found = None if data is None else msgspec.json.decode(data, type=_Ticket)
        if found is None or found.purpose != purpose:
            raise TicketUsed("the ticket was used, is too old or is for something else")
        return found
