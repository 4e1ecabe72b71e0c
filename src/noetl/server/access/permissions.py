"""Who may do what: the one table of roles and permissions, and how it is read."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Mark = Literal["y", "s", "o", "g", "-"]
"""Yes; not under `system/`; only what is its own; only by grant on a path; no."""

PUBLIC: Final = "public"
"""A route that asks for no token."""

ANYBODY: Final = "token"
"""A route for whoever has a token, whatever that opens."""

ROLES: Final = (
    "admin",
    "developer",
    "operator",
    "viewer",
    "worker",
    "gateway",
    "runtime",
    "system",
)

SERVICES: Final = frozenset({"worker", "gateway", "runtime", "system"})
"""Roles of the platform's own processes, which work for all tenants."""

# One mark per role, in the order of ROLES.
_ROWS: Final = (
    # A worker reads the documents that its commands name, by their ids (ADR 0013).
    ("catalog:read", "yyyyoyoy"),
    ("execution:read runtime:read", "yyyy-yoy"),
    ("schedule:read subscription:read plugin:read", "yyyy-yoy"),
    ("result:read vars:read", "yyyyyy-y"),
    ("credential:read", "yyyy---y"),
    ("execution:run", "yssgoyoy"),
    ("execution:control", "ysy--o-y"),
    ("subscription:control", "ysy---oy"),
    ("schedule:write catalog:delete", "ygy----y"),
    ("catalog:write credential:write plugin:write", "ys-----y"),
    ("vars:write result:write", "ys--o--y"),
    ("event:write", "y---oooy"),
    ("runtime:write credential:use", "ys--oooy"),
    ("command:claim keychain:read keychain:write", "y---o--y"),
    ("system:read", "y-y----y"),
    ("system:write tenant:system", "y------y"),
    ("internal", "-----ooy"),
    ("auth:session", "-----y--"),
    ("token:self", "yyyy----"),
    ("credential:reveal audit:read user:admin wallet:admin", "y-------"),
)

TABLE: Final[Mapping[str, Mapping[str, Mark]]] = {
    permission: dict(zip(ROLES, cast("Iterable[Mark]", marks), strict=True))
    for permissions, marks in _ROWS
    for permission in permissions.split()
}
PERMISSIONS: Final = frozenset(TABLE)
_STRENGTH: Final = "-gosy"


@lru_cache(maxsize=4096)
def allows(roles: tuple[str, ...], permission: str) -> Mark:
    """The strongest mark that any of the roles gives."""
    if permission == ANYBODY:
        return "y"
    marks = TABLE.get(permission, {})
    held = [marks[role] for role in roles if role in marks]
    return max(held, key=_STRENGTH.index, default="-")
