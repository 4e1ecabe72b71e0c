"""Values of keychain entries: where they are kept, for whom, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.credentials import KeychainKept, KeychainPage, KeychainRemoved, KeychainShown
from noetl.clock import rfc3339
from noetl.edge.errors import Forbidden, Unacceptable, UnknownExecution, UnknownPath
from noetl.edge.moments import from_now, moment_of
from noetl.server.access.caller import must
from noetl.server.wallet.keychain.posted import WRITE as _WRITE
from noetl.server.wallet.keychain.posted import must_be_fit
from noetl.store.secrets import KeychainRow

if TYPE_CHECKING:
    from noetl.api.credentials import KeychainPut, Scope
    from noetl.clock import Clock
    from noetl.edge.cursor import Cursors
    from noetl.ids import Ids
    from noetl.server.access.caller import Caller
    from noetl.server.wallet.box import Box
    from noetl.store.base import Store

KEPT_S: Final = 600.0
"""How long a value is kept of which nobody says how long it holds."""
MOST_KEPT_S: Final = 366 * 86_400.0
TABLE: Final = "keychain"
POSTED: Final = "secret"
RESOLVED: Final = "token"
_READ: Final = "keychain:read"
_MOST_LOOKED: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """The place of a value: an entry of a document, for one run, a family of runs, or all."""

    catalog_id: str
    name: str
    scope: Scope = "global"
    execution_id: str | None = None
    """Of a shared one, the first run of the family."""

    @property
    def cache_key(self) -> str:
        """The key of the place."""
        place = f"{self.name}:{self.catalog_id}"
        match self.scope:
            case "local":
                return f"{place}:{self.execution_id}"
            case "shared":
                return f"{place}:shared:{self.execution_id}"
            case _:
                return f"{place}:global"


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """What is sealed: the fields, their type, and when they end for good."""

    type: str
    data: dict[str, Any]
    until: str | None = None

    def __repr__(self) -> str:
        """Show the names of the fields, never a value."""
        return f"Value({self.type!r}, fields={sorted(self.data)!r})"


class Keychain:
    """Values of keychain entries, of the caller's tenant."""

    def __init__(self, store: Store, box: Box, *, cursors: Cursors, clock: Clock, ids: Ids) -> None:
        self._store = store
        self._box = box
        self._cursors = cursors
        self._clock = clock
        self._ids = ids

    async def put(self, caller: Caller, spot: Spot, body: KeychainPut) -> KeychainKept:
        """Keep a value that somebody brings."""
        tenant_id = await self._tenant(caller, spot, _WRITE)
        must_be_fit(caller, body.renew_config)
        ends = self._end(body)
        value = Value(type=body.credential_type, data=body.data, until=ends)
        await self.keep(
            tenant_id,
            spot,
            value,
            ends,
            auto_renew=body.auto_renew,
            renew_config=body.renew_config,
            cache_type=POSTED,
        )
        return KeychainKept(cache_key=spot.cache_key, expires_at=ends)

    async def keep(  # noqa: PLR0913 - what a row says of a value
        self,
        tenant_id: str,
        spot: Spot,
        value: Value,
        expires_at: str,
        *,
        auto_renew: bool = False,
        renew_config: dict[str, Any] | None = None,
        cache_type: str = RESOLVED,
    ) -> None:
        """Seal a value and keep it at its place."""
        await self._store.keychain.put(
            KeychainRow(
                id=self._ids.new(),
                cache_key=spot.cache_key,
                keychain_name=spot.name,
                catalog_id=spot.catalog_id,
                data_encrypted=await self._box.seal(value, TABLE, tenant_id, spot.cache_key),
                credential_type=value.type,
                cache_type=cache_type,
                scope_type=spot.scope,
                execution_id=spot.execution_id,
                expires_at=expires_at,
                auto_renew=auto_renew,
                renew_config=renew_config,
                created_at=rfc3339(self._clock.now()),
            )
        )

    async def opened(self, tenant_id: str, row: KeychainRow) -> Value:
        """What is in a row."""
        found = await self._box.open(row.data_encrypted, TABLE, tenant_id, row.cache_key)
        return msgspec.convert(found, Value)

    async def at(self, spot: Spot) -> KeychainRow | None:
        """The row of a place, also one whose time has passed."""
        return await self._store.keychain.get(spot.cache_key)

    async def shown(self, caller: Caller, spot: Spot, *, reveals: bool = False) -> KeychainShown:
        """What is known of a place; the value too for one who may see it."""
        tenant_id = await self._tenant(caller, spot, _READ)
        row = await self.at(spot)
        if row is None:
            return KeychainShown(
                status="not_found",
                name=spot.name,
                catalog_id=spot.catalog_id,
                cache_key=spot.cache_key,
                scope_type=spot.scope,
                execution_id=spot.execution_id,
            )
        now = rfc3339(self._clock.now())
        found = self._told(row, now)
        if reveals and found.status == "found":
            await self._store.keychain.touch({row.cache_key: 1}, now)
            value = await self.opened(tenant_id, row)
            found = msgspec.structs.replace(found, data=value.data)
        return found

    async def page(
        self, caller: Caller, catalog_id: str, limit: int, cursor: str | None
    ) -> KeychainPage:
        """A page of what is kept for a document."""
        await self._tenant(caller, Spot(catalog_id=catalog_id, name=""), _READ)
        filters = {"of": "keychain", "catalog_id": catalog_id}
        after = "" if cursor is None else str(self._cursors.decode(cursor, filters))
        rows = await self._store.keychain.listed(catalog_id, after=after, limit=limit + 1)
        page, now = rows[:limit], rfc3339(self._clock.now())
        has_more = len(rows) > limit
        return KeychainPage(
            items=tuple(self._told(row, now) for row in page),
            next_cursor=self._cursors.encode(filters, page[-1].cache_key) if has_more else None,
        )

    async def delete(self, caller: Caller, spot: Spot) -> KeychainRemoved:
        """Forget a value."""
        await self._tenant(caller, spot, _WRITE)
        is_gone = await self._store.keychain.delete(spot.cache_key)
        return KeychainRemoved(status="deleted" if is_gone else "not_found")

    async def expiring(
        self, caller: Caller, within_s: float, limit: int
    ) -> tuple[KeychainShown, ...]:
        """Values that end soon, the next one first, of the tenants that are there for the caller.

        Those that the server keeps for credentials belong to no document, and are not shown.
        """
        now, found = rfc3339(self._clock.now()), []
        tenants: dict[str, str | None] = {}
        rows = await self._store.keychain.expiring(
            from_now(self._clock, within_s), after=now, limit=_MOST_LOOKED
        )
        for row in rows:
            if row.catalog_id not in tenants:
                entry = await self._store.catalog.get(row.catalog_id)
                tenants[row.catalog_id] = None if entry is None else entry.tenant_id
            owner = tenants[row.catalog_id]
            if owner is not None and (not caller.is_bound or owner == caller.tenant_id):
                found.append(self._told(row, now))
        return tuple(found[:limit])

    @staticmethod
    def _told(row: KeychainRow, now: str) -> KeychainShown:
        is_over = row.expires_at is not None and row.expires_at <= now
        return KeychainShown(
            status="expired" if is_over else "found",
            name=row.keychain_name,
            catalog_id=row.catalog_id,
            cache_key=row.cache_key,
            scope_type=row.scope_type,
            execution_id=row.execution_id,
            credential_type=row.credential_type,
            cache_type=row.cache_type,
            expires_at=row.expires_at,
            auto_renew=row.auto_renew,
            created_at=row.created_at,
            accessed_at=row.accessed_at,
            access_count=row.access_count,
        )

    async def _tenant(self, caller: Caller, spot: Spot, permission: str) -> str:
        """The tenant of a document that is there for the caller, and that he may do this with.

        A worker does this for a run of the document only.
        """
        entry = await self._store.catalog.get(spot.catalog_id)
        if entry is None or (caller.is_bound and entry.tenant_id != caller.tenant_id):
            raise UnknownPath(f"the catalog has no {spot.catalog_id}")
        must(caller, permission, entry.path)
        if spot.execution_id is not None:
            run = await self._store.executions.get(spot.execution_id)
            if run is None or run.tenant_id != entry.tenant_id:
                raise UnknownExecution(f"there is no execution {spot.execution_id}")
            if spot.scope == "local" and run.catalog_id != spot.catalog_id:
                raise Unacceptable(f"{spot.execution_id} is no run of {spot.catalog_id}")
        elif caller.mark(permission) == "o":
            raise Forbidden(f"{caller.account} keeps values of runs only", hint="name the run")
        return entry.tenant_id

    def _end(self, body: KeychainPut) -> str:
        """Until when a value is kept."""
        if body.expires_at is not None and body.expires_in is not None:
            raise Unacceptable("name `expires_at` or `expires_in`, not both")
        if body.expires_at is not None:
            return moment_of(body.expires_at, "expires_at")
        seconds = KEPT_S if body.expires_in is None else body.expires_in
        if not 0 < seconds <= MOST_KEPT_S:
            raise Unacceptable(f"`expires_in` is not in 0..{MOST_KEPT_S:.0f}")
        return from_now(self._clock, seconds)
