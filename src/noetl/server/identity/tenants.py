"""Tenants: made by the admins of the platform, each with its first admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.identity import Tenant, TenantLimits, TenantPage
from noetl.clock import rfc3339
from noetl.edge.errors import Conflict, Forbidden
from noetl.server.identity.accounts import account_of
from noetl.server.identity.forms import must_be_in, must_be_name, must_be_tenant, wrong
from noetl.server.identity.roles import PLATFORM
from noetl.store.identity import TenantRow

if TYPE_CHECKING:
    from noetl.api.identity import NewTenant
    from noetl.clock import Clock
    from noetl.edge.cursor import Cursors
    from noetl.server.access.caller import Caller
    from noetl.server.identity.accounts import Accounts
    from noetl.store.base import Store
    from noetl.store.identity import AccountRow

MOST: Final = 1_000_000_000
_FILTERS: Final = {"of": "tenants"}


class Tenants:
    """Makes and lists tenants."""

    def __init__(self, store: Store, clock: Clock, *, cursors: Cursors, accounts: Accounts) -> None:
        self._store = store
        self._clock = clock
        self._cursors = cursors
        self._accounts = accounts

    async def page(self, caller: Caller, *, limit: int, cursor: str | None = None) -> TenantPage:
        """A page of tenants, by id."""
        _must_run_the_platform(caller)
        after = None if cursor is None else str(self._cursors.decode(cursor, _FILTERS))
        rows = await self._store.tenants.listed(limit + 1, after)
        page = rows[:limit]
        has_more = len(rows) > limit
        return TenantPage(
            items=tuple(map(_tenant, page)),
            next_cursor=self._cursors.encode(_FILTERS, page[-1].tenant_id) if has_more else None,
        )

    async def add(self, caller: Caller, body: NewTenant) -> Tenant:
        """Make a tenant, and its first admin if one is named."""
        _must_run_the_platform(caller)
        must_be_tenant(body.tenant_id)
        must_be_name("/name", body.name)
        limits = msgspec.to_builtins(body.limits)
        for name, number in limits.items():
            must_be_in(f"/limits/{name}", number, 1, MOST)
        admin = await self._admin(body)
        row = TenantRow(
            tenant_id=body.tenant_id,
            name=body.name,
            created_at=rfc3339(self._clock.now()),
            limits=limits,
        )
        if not await self._store.tenants.add(row):
            raise Conflict(f"there is a tenant `{body.tenant_id}`", code="in_use")
        if admin is None:
            return _tenant(row)
        await self._store.accounts.add(admin)
        return msgspec.structs.replace(_tenant(row), admin=account_of(admin))

    async def _admin(self, body: NewTenant) -> AccountRow | None:
        if body.admin is None:
            return None
        if body.admin.roles not in {(), ("admin",)} or not body.admin.active:
            raise wrong("/admin", "the first account of a tenant is an active admin")
        made = await self._accounts.made(body.tenant_id, body.admin)
        return msgspec.structs.replace(made, roles=("admin",))


def _must_run_the_platform(caller: Caller) -> None:
    if caller.tenant_id != PLATFORM:
        raise Forbidden("tenants are managed by admins of the platform")


def _tenant(row: TenantRow) -> Tenant:
    return Tenant(
        tenant_id=row.tenant_id,
        name=row.name,
        created_at=row.created_at,
        limits=msgspec.convert(row.limits, TenantLimits),
    )
