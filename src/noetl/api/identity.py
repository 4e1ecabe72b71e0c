"""Accounts, roles, tokens, sessions and tenants, as they are asked for and told."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType


class NewAccount(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """An account to make; with a password, one that signs in here."""

    subject: str
    kind: Literal["user", "service"] = "user"
    email: str | None = None
    display_name: str | None = None
    password: str | None = None
    roles: tuple[str, ...] = ()
    active: bool = True


class AccountChange(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What is to be different; `null` takes something away."""

    email: str | UnsetType | None = UNSET
    display_name: str | UnsetType | None = UNSET
    password: str | UnsetType | None = UNSET
    active: bool | UnsetType = UNSET


class RolesWanted(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """All roles that an account is to have."""

    roles: tuple[str, ...]


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A person, or a process that acts by itself."""

    account_id: str
    subject: str
    kind: str
    tenant_id: str
    email: str | None = None
    display_name: str | None = None
    active: bool = True
    roles: tuple[str, ...] = ()
    has_password: bool = False
    created_at: str = ""


class AccountPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of accounts."""

    items: tuple[Account, ...]
    next_cursor: str | None = None


class PathGrant(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What a role allows or denies on paths; any deny that fits wins."""

    effect: Literal["allow", "deny"]
    actions: tuple[str, ...]
    path: str


class NewRole(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A role to make."""

    name: str
    permissions: tuple[str, ...] = ()
    grants: tuple[PathGrant, ...] = ()


class RoleChange(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """All that a role is to give."""

    permissions: tuple[str, ...] = ()
    grants: tuple[PathGrant, ...] = ()


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """A role; a built-in one has marks: `y`, `s` (not under `system/`), `o` (its own), `g`."""

    name: str
    permissions: tuple[str, ...]
    grants: tuple[PathGrant, ...] = ()
    is_built_in: bool = False
    marks: dict[str, str] = {}


class RolePage(msgspec.Struct, frozen=True, kw_only=True):
    """All roles of a tenant, the built-in ones first."""

    items: tuple[Role, ...]
    next_cursor: str | None = None


class NewToken(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A token to make; without `account_id` one of the caller's own."""

    name: str
    account_id: str | int | None = None
    scopes: tuple[str, ...] = ()
    """The only roles of the account that it carries; none: all of them."""
    expires_in_days: int | None = None
    pool: str | None = None
    """The only pool of a worker's token."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token, without its text."""

    token_id: str
    account_id: str
    account: str
    name: str
    scopes: tuple[str, ...]
    roles: tuple[str, ...]
    """What it carries now."""
    pool: str | None = None
    created_at: str = ""
    expires_at: str | None = None
    last_used_at: str | None = None
    revoked_at: str | None = None


class TokenMade(Token, frozen=True, kw_only=True):
    """A token with its text, which is shown this once."""

    token: str


class TokenPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tokens."""

    items: tuple[Token, ...]
    next_cursor: str | None = None


class Identity(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Somebody whom an issuer has told of; the gateway has checked that it did."""

    issuer: str
    subject: str
    email: str | None = None
    email_verified: bool = False
    display_name: str | None = None
    roles: tuple[str, ...] = ()
    """Of an account that is made now; none: `viewer`."""
    auto_provision: bool = True


class Login(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A wish to sign in: a name and a password, or somebody whom the gateway has checked."""

    username: str | None = None
    email: str | None = None
    """Another word for `username`."""
    password: str | None = None
    identity: Identity | None = None
    account_id: str | int | None = None
    """Of one who has shown a ticket of the gateway; its tenant is that of the account."""
    tenant: str = "default"
    session_duration_hours: int = 8
    client_ip: str | None = None
    client_user_agent: str | None = None


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Who has signed in."""

    user_id: str
    subject: str
    email: str | None
    display_name: str | None
    roles: tuple[str, ...]
    tenant: str


class SignedIn(msgspec.Struct, frozen=True, kw_only=True):
    """A session; its text is shown this once."""

    session_token: str
    session_id: str
    user: User
    expires_at: str
    idle_until: str
    status: str = "authenticated"
    message: str = ""


class Refreshed(SignedIn, frozen=True, kw_only=True):
    """The same session with another token; the one before lasts a moment longer."""

    previous_until: str
    """Until when the token before counts."""


class SessionToken(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Which session is meant."""

    session_token: str
    client_ip: str | None = None
    """Where whoever asks for it is, for the audit."""


class SessionLook(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A session by its id, whichever token it has by now."""

    session_id: str
    is_use: bool = False
    """Whether somebody uses it; a stream that is merely open is no use."""


class SessionRevoked(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there was a session to end, and which."""

    revoked: bool
    session_id: str | None = None


class Validated(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a session or a token lasts, and whose it is."""

    valid: bool
    message: str = ""
    session_id: str | None = None
    """Of a token: its id with `token-` before it."""
    user: User | None = None
    expires_at: str | None = None
    idle_until: str | None = None


class PlaybookAccess(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What somebody wants to do with a playbook."""

    session_token: str
    playbook_path: str
    action: Literal["execute", "view", "modify", "edit"]


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """Whether it is allowed, and why."""

    allowed: bool
    reason: str


class WhoAmI(msgspec.Struct, frozen=True, kw_only=True):
    """The caller, as the server knows it."""

    account: str
    account_id: str | None
    tenant_id: str
    roles: tuple[str, ...]
    permissions: tuple[str, ...]
    kind: str | None = None
    email: str | None = None
    display_name: str | None = None
    pool: str | None = None
    session_id: str | None = None
    """Of a caller who has signed in."""
    token_id: str | None = None
    """Of a caller who comes with a token of his own."""
    expires_at: str | None = None
    """When the session or the token ends; none: never."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session that has not ended."""

    session_id: str
    account_id: str
    account: str
    created_at: str
    expires_at: str
    idle_until: str
    client: dict[str, Any] = {}


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions of an account."""

    items: tuple[Session, ...]
    next_cursor: str | None = None


class TenantLimits(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """How much a tenant may have at once; none: the limits of the platform."""

    running_executions: int | None = None
    schedules: int | None = None
    execute_rate: int | None = None
    """Runs that an account may start in a second."""
    execute_burst: int | None = None
    """Runs that an account may start at once."""


class NewTenant(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A tenant to make, with its first admin."""

    tenant_id: str
    name: str = ""
    limits: TenantLimits = TenantLimits()
    admin: NewAccount | None = None


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """Those who share a platform and see nothing of each other."""

    tenant_id: str
    name: str
    created_at: str
    limits: TenantLimits
    admin: Account | None = None
    """The first account, in the answer that makes the tenant."""


class TenantPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tenants."""

    items: tuple[Tenant, ...]
    next_cursor: str | None = None
