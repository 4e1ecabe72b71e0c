"""Accounts, roles, tokens, sessions, tenants, and the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api.audit import AuditPage, AuditVerified
from noetl.api.client.calls import Calls, decoded, encode, query, segment
from noetl.api.identity import (
    Account,
    AccountChange,
    AccountPage,
    Allowed,
    Login,
    NewAccount,
    NewRole,
    NewTenant,
    NewToken,
    PlaybookAccess,
    Refreshed,
    Role,
    RoleChange,
    RolePage,
    RolesWanted,
    SessionLook,
    SessionPage,
    SessionRevoked,
    SessionToken,
    SignedIn,
    Tenant,
    TenantPage,
    TokenMade,
    TokenPage,
    Validated,
    WhoAmI,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class People(Calls):
    """Accounts, roles, tokens, sessions, tenants, and the audit."""

    async def users(self, **filters: str | int) -> AccountPage:
        """A page of accounts; filters are `q`, `kind`, `active`, `role`, `limit`, `cursor`."""
        return await self._get(query("/api/users", filters), AccountPage)

    async def user(self, account_id: str) -> Account:
        """One account."""
        return await self._get(f"/api/users/{segment(account_id)}", Account)

    async def add_user(self, body: NewAccount) -> Account:
        """Make an account."""
        return await self._post("/api/users", body, Account)

    async def change_user(self, account_id: str, body: AccountChange) -> Account:
        """Change an account."""
        path = f"/api/users/{segment(account_id)}"
        return decoded(await self._call("PATCH", path, encode(body)), Account)

    async def remove_user(self, account_id: str) -> None:
        """Forget an account with its tokens and sessions."""
        await self._call("DELETE", f"/api/users/{segment(account_id)}")

    async def give_roles(self, account_id: str, roles: Sequence[str]) -> Account:
        """Give an account exactly these roles."""
        body = encode(RolesWanted(roles=tuple(roles)))
        path = f"/api/users/{segment(account_id)}/roles"
        return decoded(await self._call("PUT", path, body), Account)

    async def roles(self) -> RolePage:
        """The built-in roles and those of the tenant."""
        return await self._get("/api/roles", RolePage)

    async def add_role(self, body: NewRole) -> Role:
        """Make a role."""
        return await self._post("/api/roles", body, Role)

    async def change_role(self, name: str, body: RoleChange) -> Role:
        """Make a role give something else."""
        path = f"/api/roles/{segment(name)}"
        return decoded(await self._call("PUT", path, encode(body)), Role)

    async def remove_role(self, name: str) -> None:
        """Forget a role that nobody has."""
        await self._call("DELETE", f"/api/roles/{segment(name)}")

    async def tokens(self, **filters: str | int) -> TokenPage:
        """A page of tokens; filters are `account_id`, `include_revoked`, `limit`, `cursor`."""
        return await self._get(query("/api/tokens", filters), TokenPage)

    async def add_token(self, body: NewToken) -> TokenMade:
        """Make a token; only this answer has its text."""
        return await self._post("/api/tokens", body, TokenMade)

    async def revoke_token(self, token_id: str) -> None:
        """End a token."""
        await self._call("DELETE", f"/api/tokens/{segment(token_id)}")

    async def rotate_token(self, token_id: str) -> TokenMade:
        """Give a token another text; only this answer has it."""
        path = f"/api/tokens/{segment(token_id)}/rotate"
        return decoded(await self._call("POST", path), TokenMade)

    async def login(self, body: Login) -> SignedIn:
        """Begin a session for somebody."""
        return await self._post("/api/auth/login", body, SignedIn)

    async def refresh_session(self, session_token: str, client_ip: str | None = None) -> Refreshed:
        """Give a session another token; the one before lasts a minute longer."""
        body = SessionToken(session_token=session_token, client_ip=client_ip)
        return await self._post("/api/auth/session/refresh", body, Refreshed)

    async def validate_session(self, session_token: str) -> Validated:
        """Whether a session or a token lasts, and whose it is."""
        body = SessionToken(session_token=session_token)
        return await self._post("/api/auth/session/validate", body, Validated)

    async def look_at_session(self, session_id: str, *, is_use: bool = False) -> Validated:
        """Whether a session lasts, by its id."""
        body = SessionLook(session_id=session_id, is_use=is_use)
        return await self._post("/api/auth/session/look", body, Validated)

    async def end_session(self, session_token: str, client_ip: str | None = None) -> SessionRevoked:
        """End the session of a token."""
        body = SessionToken(session_token=session_token, client_ip=client_ip)
        return await self._post("/api/auth/session/revoke", body, SessionRevoked)

    async def check_playbook_access(self, body: PlaybookAccess) -> Allowed:
        """Whether a session opens a playbook."""
        return await self._post("/api/auth/check-playbook-access", body, Allowed)

    async def whoami(self) -> WhoAmI:
        """Who the caller is, and what it may do."""
        return await self._get("/api/auth/whoami", WhoAmI)

    async def sessions(self, account_id: str | None = None) -> SessionPage:
        """Sessions of the caller, or of another account."""
        return await self._get(query("/api/auth/sessions", {"account_id": account_id}), SessionPage)

    async def revoke_session(self, session_id: str) -> None:
        """End a session by its id."""
        await self._call("DELETE", f"/api/auth/sessions/{segment(session_id)}")

    async def tenants(self, **filters: str | int) -> TenantPage:
        """A page of tenants; filters are `limit` and `cursor`."""
        return await self._get(query("/api/tenants", filters), TenantPage)

    async def add_tenant(self, body: NewTenant) -> Tenant:
        """Make a tenant."""
        return await self._post("/api/tenants", body, Tenant)

    async def audit(self, **filters: str | int) -> AuditPage:
        """A page of the audit, newest first; filters are the names of the query."""
        return await self._get(query("/api/audit", filters), AuditPage)

    async def audit_verify(self) -> AuditVerified:
        """Whether the audit is whole."""
        return await self._get("/api/audit/verify", AuditVerified)
