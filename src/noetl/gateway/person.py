"""Who is at the gateway: somebody whom the server knows, and how he showed it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody with an account, by a session or by a token."""

    user_id: str
    subject: str
    email: str | None = None
    display_name: str | None = None
    roles: tuple[str, ...] = ()
    tenant: str = "default"
    session_id: str = ""
    """Of a session; a token has the id of itself with `token-` before it."""
    expires_at: str | None = None
    via: Literal["bearer", "header", "cookie", "ticket", "query", "bypass"] = "bearer"
    token: str = field(default="", repr=False)
    """What he showed: for calls that end or renew it, never for a log."""
    address: str = ""
    """Where he calls from, for the audit of the server."""

    @property
    def owner(self) -> tuple[str, str]:
        """Whose his clients and requests are; ids of users may be alike in two tenants."""
        return self.user_id, self.tenant

    def at(self, address: str) -> Person:
        """The same person, who calls from there."""
        return replace(self, address=address)

    def claims(self) -> dict[str, Any]:
        """What the server is told of him."""
        return {
            "sub": self.user_id,
            "name": self.subject,
            "email": self.email,
            "roles": list(self.roles),
            "tenant": self.tenant,
            "org": "default",
            "sid": self.session_id,
            "ip": self.address,
        }
