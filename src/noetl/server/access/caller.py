"""Callers: who makes a request, and what he may do where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.edge.errors import Forbidden
from noetl.server.access.grants import allowed, denied, is_fit, space_of
from noetl.server.access.permissions import SERVICES, TABLE, allows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from starlette.requests import Request

    from noetl.server.access.permissions import Mark
    from noetl.store.identity import Grant

_KEY: Final = "noetl.caller"
_NONE: Final = "-g"
"""Marks that open nothing by themselves."""
_GUARDED: Final = frozenset(
    {"catalog:write", "catalog:delete", "schedule:write", "subscription:control", "plugin:write"}
)
"""What changes the platform's own things, and so asks for more than a role of this kind."""
_PLATFORM: Final = ("system", "system/*")
SYSTEM_POOL: Final = "system"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request."""

    account: str
    roles: tuple[str, ...]
    pool: str | None = None
    """The only pool that a worker's token may join and claim for."""
    tenant_id: str = "default"
    account_id: str = ""
    grants: tuple[Grant, ...] = ()
    own: frozenset[str] = frozenset()
    """Permissions of roles that were made here."""
    session_id: str = ""
    """Of the session that he comes with; a token has its id with `token-` before it."""
    expires_at: str | None = None
    """When the bearer ends; none: never, or nobody told."""
    is_gateway: bool = False
    """A gateway speaks for him, and says itself which run and which request it means."""
    address: str = ""
    """Where he calls from, when a gateway stands in between."""

    @property
    def is_bound(self) -> bool:
        """Whether only what is of the caller's tenant is there for him.

        The platform's own processes work for all tenants.
        """
        return SERVICES.isdisjoint(self.roles)

    def mark(self, permission: str) -> Mark:
        """How far a permission goes for this caller, grants aside."""
        mark = allows(self.roles, permission)
        return "s" if mark != "y" and permission in self.own else mark

    def holds(self, permission: str) -> bool:
        """Whether the caller has a permission anywhere, by a role or by a grant."""
        return self.mark(permission) not in _NONE or bool(allowed(self.grants, permission))

    def may(self, permission: str, path: str) -> bool:
        """Whether the caller may do this there."""
        return not self.is_kept_out(permission, path) and self._is_given(permission, path)

    def is_kept_out(self, permission: str, path: str) -> bool:
        """Whether a path is reserved, and not for this caller."""
        space = space_of(path, self.tenant_id)
        if not space:
            return False
        mark = self.mark(permission)
        if permission.endswith(":read"):
            is_open = space != "system:write" or not self.is_bound
            return not is_open and self.mark("system:read") in _NONE
        if mark == "y" and permission not in _GUARDED:
            return False
        return all(self.mark(needed) in _NONE for needed in {space, "system:write"})

    def reach(self, permission: str) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        """Paths for a list: the only ones to show, none for any, and those to leave out."""
        only = allowed(self.grants, permission) if self.mark(permission) in _NONE else None
        hidden = denied(self.grants, permission)
        if self.is_kept_out(permission, _PLATFORM[0]):
            hidden += _PLATFORM
        return only, hidden

    def _is_given(self, permission: str, path: str) -> bool:
        if any(is_fit(pattern, path) for pattern in denied(self.grants, permission)):
            return False
        if self.mark(permission) not in _NONE:
            return True
        return any(is_fit(pattern, path) for pattern in allowed(self.grants, permission))


LOCAL: Final = Caller("local", ("admin", "system", "worker"))
NOBODY: Final = Caller("", ())
SYSTEM: Final = Caller("system", ("system", "gateway"))
"""Who comes with the internal token: gateways sign people in with it, too."""


def grantable(permissions: frozenset[str]) -> frozenset[str]:
    """Those that a role of this installation can give: none that only services hold."""
    return frozenset(name for name in permissions if TABLE.get(name, {}).get("admin", "-") == "y")


def admit(scope: Mapping[str, Any], caller: Caller) -> None:
    """Write the caller into a request."""
    scope[_KEY] = caller  # type: ignore[index] # the scope of a request is a dict of its own


def caller_of(request: Request) -> Caller:
    """Whose request it is; the route has made sure."""
    found: Caller = request.scope[_KEY]
    return found


def caller_or_nobody(request: Request) -> Caller:
    """Whose request it is, as far as that is known."""
    found: Caller = request.scope.get(_KEY, NOBODY)
    return found


def own_pool(caller: Caller, pool: str) -> None:
    """Refuse a pool that the caller's token is not for."""
    if caller.pool is not None and caller.pool != pool:
        raise Forbidden(
            f"the token is for the pool {caller.pool!r}, not for {pool!r}", code="pool_forbidden"
        )


def must_serve(caller: Caller) -> None:
    """Refuse people of a tenant what workers do for all tenants."""
    if caller.is_bound and caller.tenant_id != "default":
        raise Forbidden("commands are handed out to the platform's own workers")


def free_pool(caller: Caller, pool: str) -> None:
    """Refuse the platform's own pool to those who may not touch what is the platform's own."""
    if pool == SYSTEM_POOL and not caller.holds("system:write"):
        raise Forbidden("the pool `system` is the platform's own", code="reserved_pool")


def must_hold(caller: Caller, permission: str) -> None:
    """Refuse a caller who may do this nowhere."""
    if not caller.holds(permission):
        raise Forbidden(f"the account {caller.account!r} does not have `{permission}`")


def must(caller: Caller, permission: str, path: str) -> None:
    """Refuse what the caller may not do with the thing of this path."""
    if caller.is_kept_out(permission, path):
        raise Forbidden(f"{path} is reserved for the platform", code="reserved_namespace")
    if not caller.may(permission, path):
        raise Forbidden(f"the account {caller.account!r} does not have `{permission}` for {path}")
