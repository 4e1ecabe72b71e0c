"""Roles: the built-in ones, and those that a tenant makes for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.identity import PathGrant, Role, RolePage
from noetl.edge.errors import Conflict, Forbidden, NotFound
from noetl.server.access.caller import grantable
from noetl.server.access.grants import ANY, GRANTABLE, WORDS
from noetl.server.access.permissions import PERMISSIONS, ROLES, SERVICES, TABLE
from noetl.server.identity.forms import must_be_role_name, wrong
from noetl.store.identity import Grant, RoleRow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from noetl.api.identity import NewRole, RoleChange
    from noetl.store.base import Store

PLATFORM: Final = "default"
"""The tenant whose admins run the platform."""
MOST_GRANTS: Final = 200
LONGEST_PATH: Final = 512
_GIVEABLE: Final = grantable(PERMISSIONS)
_ACTIONS: Final = frozenset({ANY, *WORDS, *GRANTABLE})


def writing(store: Store, tenant_id: str) -> AbstractAsyncContextManager[None]:
    """One at a time changes accounts and roles of a tenant, whichever server it asks."""
    return store.roles.exclusive(f"identity:{tenant_id}")


class Roles:
    """Keeps roles, and knows which an account may have."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rights = store.rights

    async def page(self, tenant_id: str) -> RolePage:
        """All roles of a tenant."""
        made = await self._rights.listed(tenant_id)
        return RolePage(items=(*map(_built_in, ROLES), *map(_role, made)))

    async def add(self, tenant_id: str, body: NewRole) -> Role:
        """Make a role."""
        _must_be_free(body.name)
        must_be_role_name(body.name)
        row = _row(tenant_id, body.name, body)
        async with writing(self._store, tenant_id):
            if await self._rights.get(tenant_id, body.name) is not None:
                raise Conflict(f"there is a role `{body.name}`", code="in_use")
            await self._rights.put(row)
        return _role(row)

    async def change(self, tenant_id: str, name: str, body: RoleChange) -> Role:
        """Make a role give something else."""
        _must_be_free(name)
        row = _row(tenant_id, name, body)
        async with writing(self._store, tenant_id):
            if await self._rights.get(tenant_id, name) is None:
                raise _unknown(name)
            await self._rights.put(row)
        return _role(row)

    async def remove(self, tenant_id: str, name: str) -> None:
        """Forget a role that nobody has."""
        _must_be_free(name)
        async with writing(self._store, tenant_id):
            count = await self._store.accounts.holders(tenant_id, name)
            if count:
                raise Conflict(
                    f"the role `{name}` is that of {count} accounts",
                    code="in_use",
                    hint="take it from them first",
                )
            if not await self._rights.remove(tenant_id, name):
                raise _unknown(name)

    async def wanted(self, tenant_id: str, kind: str, names: Sequence[str]) -> tuple[str, ...]:
        """Roles for an account, each once; refused unless it may have them all."""
        found = tuple(dict.fromkeys(names))
        made = [name for name in found if name not in ROLES]
        known = {row.name for row in await self._rights.of(tenant_id, made)} if made else set()
        for place, name in enumerate(names):
            if name not in ROLES and name not in known:
                raise wrong(f"/roles/{place}", f"there is no role {name[:80]!r}")
            if name in SERVICES and kind != "service":
                raise wrong(f"/roles/{place}", f"`{name}` is a role of services, not of persons")
            if name in SERVICES and tenant_id != PLATFORM:
                raise Forbidden(f"`{name}` works for all tenants, so only the platform gives it")
        return found


def _must_be_free(name: str) -> None:
    if name in ROLES:
        raise Conflict(f"the role `{name}` is built in", code="in_use", hint="make another one")


def _row(tenant_id: str, name: str, body: NewRole | RoleChange) -> RoleRow:
    for place, permission in enumerate(body.permissions):
        if permission not in _GIVEABLE:
            raise wrong(f"/permissions/{place}", f"no role can give {permission[:80]!r}")
    if len(body.grants) > MOST_GRANTS:
        raise wrong("/grants", f"a role has at most {MOST_GRANTS} grants")
    return RoleRow(
        name=name,
        tenant_id=tenant_id,
        permissions=tuple(dict.fromkeys(body.permissions)),
        grants=tuple(_grant(place, grant) for place, grant in enumerate(body.grants)),
    )


def _grant(place: int, body: PathGrant) -> Grant:
    for number, action in enumerate(body.actions):
        if action not in _ACTIONS:
            raise wrong(
                f"/grants/{place}/actions/{number}",
                f"{action[:80]!r} is nothing that is done with paths",
                hint=", ".join(sorted(WORDS)),
            )
    if not body.actions:
        raise wrong(f"/grants/{place}/actions", "a grant names at least one action")
    if not 1 <= len(body.path) <= LONGEST_PATH or ANY in body.path[:-1]:
        raise wrong(
            f"/grants/{place}/path", "not a path", hint="a path, or what it begins with and `*`"
        )
    return Grant(effect=body.effect, actions=body.actions, path=body.path)


def _built_in(name: str) -> Role:
    marks = {permission: row[name] for permission, row in TABLE.items() if row[name] != "-"}
    return Role(name=name, permissions=tuple(marks), is_built_in=True, marks=dict(marks))


def _role(row: RoleRow) -> Role:
    grants = (
        PathGrant(effect=one.effect, actions=one.actions, path=one.path) for one in row.grants
    )
    return Role(name=row.name, permissions=row.permissions, grants=tuple(grants))


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no role {name[:80]!r}")
