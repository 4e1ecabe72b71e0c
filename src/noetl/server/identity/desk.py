"""All that knows who somebody is, wired."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl.server.identity.accounts import Accounts
from noetl.server.identity.farewells import Farewells
from noetl.server.identity.passwords import Passwords
from noetl.server.identity.roles import Roles
from noetl.server.identity.sessions import Sessions
from noetl.server.identity.signin import SignIn
from noetl.server.identity.tenants import Tenants
from noetl.server.identity.tokens import Tokens

if TYPE_CHECKING:
    from noetl.edge.cursor import Cursors
    from noetl.server.parts import ServerParts


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What the routes of accounts, roles, tokens, sessions and tenants work with."""

    accounts: Accounts
    roles: Roles
    tokens: Tokens
    sessions: Sessions
    sign_in: SignIn
    tenants: Tenants

    @classmethod
    def of(cls, parts: ServerParts, cursors: Cursors) -> Desk:
        """Make it from the parts of a server."""
        store, clock, ids = parts.store, parts.clock, parts.ids
        roles, passwords = Roles(store), Passwords(parts.password_kib)
        farewells = Farewells(parts.bus)
        accounts = Accounts(
            store,
            clock,
            ids,
            cursors=cursors,
            passwords=passwords,
            roles=roles,
            farewells=farewells,
        )
        tokens = Tokens(store, clock, ids, cursors=cursors, accounts=accounts, farewells=farewells)
        sessions = Sessions(store, clock, ids, tokens=tokens, farewells=farewells)
        return cls(
            accounts=accounts,
            roles=roles,
            tokens=tokens,
            sessions=sessions,
            sign_in=SignIn(
                store,
                clock,
                accounts=accounts,
                roles=roles,
                passwords=passwords,
                sessions=sessions,
            ),
            tenants=Tenants(store, clock, cursors=cursors, accounts=accounts),
        )
