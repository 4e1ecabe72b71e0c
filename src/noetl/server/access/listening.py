"""Who may do what with a subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.edge.errors import Forbidden
from noetl.server.access.caller import must
from noetl.server.access.grants import allowed, is_fit

if TYPE_CHECKING:
    from noetl.server.access.caller import Caller

READ: Final = "subscription:read"
CONTROL: Final = "subscription:control"
LISTENERS: Final = frozenset({"gateway", "runtime", "system"})
"""Roles of those who take messages in, and tell what became of them."""


def must_listen(caller: Caller, permission: str, path: str) -> None:
    """Refuse what the caller may not do with a subscription.

    A runtime whose account is given paths has those and no others.
    """
    must(caller, permission, path)
    if not _is_own(caller, permission, path):
        raise Forbidden(f"the account {caller.account!r} does not listen for {path}")


def telling(caller: Caller) -> str:
    """The permission by which a process tells what became of messages: gateways only read."""
    return CONTROL if caller.holds(CONTROL) else READ


def may_listen(caller: Caller, permission: str, path: str) -> bool:
    """Whether the caller may do this with a subscription."""
    return caller.may(permission, path) and _is_own(caller, permission, path)


def _is_own(caller: Caller, permission: str, path: str) -> bool:
    if caller.mark(permission) != "o":
        return True
    own = allowed(caller.grants, permission)
    return not own or any(is_fit(pattern, path) for pattern in own)
