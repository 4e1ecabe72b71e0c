"""Who there is, as one Protocol per kind of fact: tenants, accounts, roles, tokens and sessions.

A token or a session is found together with its account, as the account is now: a role that was
taken away is gone from every bearer of the account at the next look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["user", "service"]


class TenantRow(msgspec.Struct, frozen=True, kw_only=True):
    """Those who share a platform and see nothing of each other."""

    tenant_id: str
    name: str = ""
    created_at: str = ""
    limits: dict[str, Any] = {}


class Tenants(Protocol):
    """Tenants; `default` is always there."""

    async def add(self, row: TenantRow) -> bool:
        """Keep a tenant; false when its id is taken."""

    async def get(self, tenant_id: str) -> TenantRow | None:
        """One tenant."""

    async def listed(self, limit: int = 50, after: str | None = None) -> list[TenantRow]:
        """A page of tenants, by id."""


class AccountRow(msgspec.Struct, frozen=True, kw_only=True):
    """A person, or a process that acts by itself."""

    account_id: str
    subject: str
    """The name of the account within its tenant."""
    kind: Kind = "user"
    tenant_id: str = "default"
    email: str | None = None
    display_name: str | None = None
    password_hash: str | None = None
    active: bool = True
    roles: tuple[str, ...] = ()
    created_at: str = ""


class AccountListing(msgspec.Struct, frozen=True, kw_only=True):
    """Which accounts a reader wants; every filter that is set must hold."""

    tenant_id: str
    limit: int = 50
    after: str | None = None
    """The last account of the page before."""
    q: str | None = None
    """A part of the subject, the e-mail or the display name, in any case."""
    kind: Kind | None = None
    active: bool | None = None
    role: str | None = None


class Accounts(Protocol):
    """Accounts, by id, by subject, by e-mail and by the identities of others that they have."""

    async def add(self, row: AccountRow) -> bool:
        """Keep an account; false when its tenant has the subject."""

    async def get(self, account_id: str) -> AccountRow | None:
        """One account."""

    async def by_subject(self, tenant_id: str, subject: str) -> AccountRow | None:
        """The account of that name."""

    async def by_email(self, tenant_id: str, email: str) -> list[AccountRow]:
        """Accounts of persons with that e-mail, in any case; two are enough to tell."""

    async def of_identity(self, tenant_id: str, issuer: str, subject: str) -> AccountRow | None:
        """The account that somebody has whom an issuer knows as `subject`."""

    async def link(self, account_id: str, issuer: str, subject: str) -> None:
        """Let the account be that of an issuer's subject; one that is linked stays as it is."""

    async def listed(self, listing: AccountListing) -> list[AccountRow]:
        """A page of accounts, in the order of their ids."""

    async def change(self, row: AccountRow) -> bool:
        """Write e-mail, display name, password, roles, and whether it is active.

        False when there is no such account; subject, kind and tenant never change.
        """

    async def remove(self, account_id: str) -> bool:
        """Forget an account with its tokens, sessions and identities; false when it is unknown."""

    async def holders(self, tenant_id: str, role: str) -> int:
        """How many accounts of a tenant have a role, those that are not active included."""

    async def admins(self, tenant_id: str) -> list[str]:
        """Active accounts of a tenant with the role `admin`; two are enough to tell."""


class SignIns(Protocol):
    """Attempts with passwords, so that no name can be guessed at on several servers at once."""

    async def attempt(
        self, name: str, now: str, *, since: str, most: int, until: str
    ) -> str | None:
        """Count an attempt before it is checked; until when the name is locked, if it is.

        The `most`-th attempt after `since` is let in and locks the name until `until`; an attempt
        while it is locked is not counted.
        """

    async def forgive(self, name: str) -> None:
        """Forget the attempts of a name: it was right."""

    async def forget(self, before: str) -> int:
        """Drop names whose last attempt and lock lie before; how many there were."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a role allows or denies on paths."""

    effect: Literal["allow", "deny"]
    actions: tuple[str, ...]
    """Permissions, or the words `execute`, `view`, `modify`."""
    path: str
    """Exact, or a prefix that ends in `*`."""


class RoleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A role that was made here; the built-in ones are in no store."""

    name: str
    tenant_id: str = "default"
    permissions: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()


class Rights(Protocol):
    """Roles that were made here, per tenant."""

    async def put(self, row: RoleRow) -> None:
        """Keep a role under its name; one that is there is replaced."""

    async def get(self, tenant_id: str, name: str) -> RoleRow | None:
        """One role."""

    async def listed(self, tenant_id: str) -> list[RoleRow]:
        """All roles of a tenant, by name."""

    async def of(self, tenant_id: str, names: Sequence[str]) -> list[RoleRow]:
        """Those of these roles that were made here, by name."""

    async def remove(self, tenant_id: str, name: str) -> bool:
        """Forget a role; false when it is not known."""


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """Who a bearer is; the token's own text is kept nowhere."""

    token_id: str
    sha256: str
    account: str
    """The subject of the account."""
    roles: tuple[str, ...]
    """What the bearer has now: the roles of the account, narrowed by `scopes` if there are any."""
    account_id: str = ""
    kind: Kind = "service"
    """The kind of the account."""
    name: str = ""
    scopes: tuple[str, ...] = ()
    """The only roles of the account that the token carries; none: all of them."""
    pool: str | None = None
    """The only pool that a worker's token may join and claim for."""
    tenant_id: str = "default"
    created_at: str = ""
    expires_at: str | None = None
    last_used_at: str | None = None
    revoked_at: str | None = None


class Tokens(Protocol):
    """Bearers by digest."""

    async def find(self, sha256: str) -> TokenRow | None:
        """Who holds a token of this digest, revoked or expired ones included.

        None when the account is not active.
        """

    async def get(self, token_id: str) -> TokenRow | None:
        """One token, whether or not its account is active."""

    async def put(self, row: TokenRow) -> None:
        """Keep a token and the account of its name; the same digest again changes nothing.

        For the first tokens, which are there before anybody can sign in: the account is made as a
        service if it is new, and is given the roles that it lacks.
        """

    async def add(self, row: TokenRow, most: int, now: str) -> bool:
        """Keep a token of the account `account_id`; false when that has `most` live ones."""

    async def renew(
        self, token_id: str, sha256: str, *, created_at: str, expires_at: str | None
    ) -> bool:
        """Give a token another text; false when it is not known or was revoked."""

    async def listed(
        self,
        account_id: str,
        *,
        limit: int = 50,
        after: str | None = None,
        with_revoked: bool = False,
    ) -> list[TokenRow]:
        """A page of the tokens of an account, in the order of their ids."""

    async def count(self, account_id: str, now: str) -> int:
        """How many tokens of an account are neither revoked nor expired."""

    async def revoke(self, token_id: str, now: str) -> bool:
        """End a token; false when it is not known."""

    async def touch(self, token_id: str, now: str) -> None:
        """Note that a token was used; written at most once a minute."""


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A person who has signed in; the text of the session's token is kept nowhere."""

    session_id: str
    sha256: str
    account_id: str
    created_at: str
    expires_at: str
    """When it ends, whatever happens."""
    idle_until: str
    """When it ends unless it is used."""
    client: dict[str, Any] = {}
    """Where it was begun: `ip`, `user_agent`."""
    revoked_at: str | None = None
    refreshed_at: str | None = None
    """Since when it has another token than its first one."""
    previous_sha256: str | None = None
    """Of the token before, which lasts a moment longer."""
    account: str = ""
    """The subject of the account, as all below told by the store."""
    kind: Kind = "user"
    roles: tuple[str, ...] = ()
    tenant_id: str = "default"
    email: str | None = None
    display_name: str | None = None


class EndedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was ended, and the digests under which others may know it."""

    session_id: str
    digests: tuple[str, ...]

    @classmethod
    def of(cls, row: SessionRow) -> EndedSession:
        """What is told of a session that was ended."""
        found = (row.sha256, row.previous_sha256)
        return cls(session_id=row.session_id, digests=tuple(one for one in found if one))


class Sessions(Protocol):
    """Sessions by digest."""

    async def put(self, row: SessionRow) -> None:
        """Keep a session of the account `account_id`."""

    async def find(self, sha256: str) -> SessionRow | None:
        """The session of this digest, or that had it before; revoked or expired ones included.

        None when the account is not active.
        """

    async def get(self, session_id: str) -> SessionRow | None:
        """One session, whether or not its account is active."""

    async def listed(self, account_id: str, now: str) -> list[SessionRow]:
        """Sessions of an account that have not ended, oldest first."""

    async def touch(self, session_id: str, idle_until: str) -> None:
        """Note that a session is used: never beyond its end, written at most once a minute."""

    async def refresh(self, row: SessionRow) -> bool:
        """Write the digests and moments of a session that has `previous_sha256` for its digest.

        False when it was revoked, or has another digest by now.
        """

    async def revoke(self, session_id: str, now: str) -> bool:
        """End a session; false when it is not known."""

    async def revoke_all(self, account_id: str, now: str) -> list[EndedSession]:
        """End all sessions of an account; those that had not ended by then."""

    async def forget(self, account_id: str, before: str) -> int:
        """Drop sessions of an account that would have ended before; how many there were."""


def narrowed(roles: Sequence[str], scopes: Sequence[str]) -> tuple[str, ...]:
    """The roles of an account that a token carries."""
    return tuple(role for role in scopes if role in roles) if scopes else tuple(roles)
