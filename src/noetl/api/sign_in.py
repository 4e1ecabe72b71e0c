"""Signing in at the gateway: what is sent, and what is told."""

from __future__ import annotations

from typing import Literal

import msgspec

Purpose = Literal["events", "ws", "graphql", "login"]


class SignIn(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A wish to sign in: by a password, or by the ID token of an issuer."""

    email: str | None = None
    username: str | None = None
    """Another word for `email`, for accounts without one."""
    password: str | None = None
    tenant: str = "default"
    auth0_token: str | None = None
    """The ID token of a configured issuer, whichever it is."""
    auth0_refresh_token: str | None = None
    """Taken for callers that send one; nothing is done with it."""
    auth0_domain: str | None = None
    """The host of the issuer."""
    session_duration_hours: int = 8
    local: bool = False
    """Ask for no playbook, where playbooks sign people in."""
    client_ip: str | None = None
    client_user_agent: str | None = None


class SignedInUser(msgspec.Struct, frozen=True, kw_only=True):
    """Who has signed in."""

    user_id: str
    email: str | None
    display_name: str | None
    roles: tuple[str, ...]


class SignInAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A session; its token is shown this once."""

    session_token: str
    user: SignedInUser
    expires_at: str
    message: str = ""
    status: Literal["authenticated"] = "authenticated"


class SessionWanted(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Which session is meant."""

    session_token: str


class SessionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a session lasts, and whose it is."""

    valid: bool
    user: SignedInUser | None = None
    expires_at: str | None = None
    message: str = ""


class AccessWanted(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What somebody wants to do with a playbook."""

    session_token: str
    playbook_path: str
    permission_type: Literal["execute", "view", "modify", "edit"]


class AccessAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether he may."""

    allowed: bool
    user: SignedInUser | None
    playbook_path: str
    permission_type: str
    message: str = ""


class TicketWanted(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What a ticket is to open."""

    purpose: Purpose


class TicketAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket, and the seconds that it counts."""

    ticket: str
    expires_in: int


class CodeExchange(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What an issuer has sent to a program on the caller's own machine."""

    code: str
    code_verifier: str
    redirect_uri: str
    nonce: str
    session_duration_hours: int = 8
