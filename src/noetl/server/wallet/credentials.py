"""Credentials: kept sealed, shown without their fields, opened for those who may."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.credentials import CredentialPage, CredentialRemoved, CredentialShown
from noetl.clock import rfc3339
from noetl.dsl.documents.credential import spec_faults
from noetl.dsl.documents.credential_types import texts_in
from noetl.dsl.subscription.sections import ALIAS_PATTERN
from noetl.edge.errors import Conflict, NotFound, Unacceptable
from noetl.edge.moments import from_now, moment_of
from noetl.errors import NoetlError
from noetl.server.access.caller import must
from noetl.store.secrets import CredentialListing, CredentialRow
from noetl.telemetry.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.api.credentials import CredentialPut
    from noetl.clock import Clock
    from noetl.edge.cursor import Cursors
    from noetl.ids import Ids
    from noetl.server.access.caller import Caller
    from noetl.server.wallet.box import Box
    from noetl.server.wallet.naming import Usage
    from noetl.store.secrets import Credentials as Store

READ: Final = "credential:read"
WRITE: Final = "credential:write"
FROM: Final = "from"
"""Under this name `meta` tells where the fields are read from; it is no secret."""
_TABLE: Final = "credential"
_TRIES: Final = 3
_PAGE: Final = 200
_NEVER: Final = "~"
_DAY: Final = len("2026-01-31")
_MOST_NAMES: Final = 20
_NAME: Final = re.compile(ALIAS_PATTERN[1:-1])


class Credentials:
    """Credentials of the caller's tenant."""

    def __init__(  # noqa: PLR0913 - the parts it is made from
        self,
        store: Store,
        box: Box,
        usage: Usage,
        *,
        cursors: Cursors,
        clock: Clock,
        ids: Ids,
        changed: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._changed = changed
        self._store = store
        self._box = box
        self._usage = usage
        self._cursors = cursors
        self._clock = clock
        self._ids = ids

    async def put(self, body: CredentialPut, caller: Caller) -> CredentialShown:
        """Keep a credential under its name; one that is known gets the new fields."""
        _must_be_right(body)
        must(caller, WRITE, body.name)
        for _ in range(_TRIES):
            known = await self._store.get(caller.tenant_id, body.name)
            kept = await self._store.put(await self._row(body, caller.tenant_id, known))
            if kept is not None:
                await self._changed(caller.tenant_id, body.name)
                return shown(kept)
        raise Conflict(f"{body.name} is being written by others", code="revision_conflict")

    async def _row(
        self, body: CredentialPut, tenant_id: str, known: CredentialRow | None
    ) -> CredentialRow:
        """The row of a credential; its id is that of the name, if the name is known."""
        now = rfc3339(self._clock.now())
        key = self._ids.new() if known is None else known.id
        source = {} if body.from_ is None else {FROM: body.from_}
        return CredentialRow(
            id=key,
            tenant_id=tenant_id,
            name=body.name,
            type=body.type,
            data_encrypted=await self._box.seal(body.data or {}, _TABLE, tenant_id, key),
            meta=body.meta | source,
            tags=body.tags,
            description=body.description,
            region=body.region,
            created_at=now,
            updated_at=now,
        )

    async def find(self, caller: Caller, name: str, permission: str = READ) -> CredentialRow:
        """A credential by its name or its id, if the caller may do this with it."""
        found = await self._store.get(caller.tenant_id, name)
        if found is None and name.isascii() and name.isdigit():  # no name begins with a digit
            found = await self._store.by_id(caller.tenant_id, name)
        if found is None:
            raise missing(name)
        must(caller, permission, found.name)
        return found

    async def revealed(self, caller: Caller, name: str) -> CredentialShown:
        """A credential with its fields, as far as they lie here."""
        row = await self.find(caller, name, "credential:reveal")
        return msgspec.structs.replace(shown(row), data=await self.opened(row))

    async def opened(self, row: CredentialRow) -> dict[str, Any]:
        """The fields that lie in a row."""
        data: dict[str, Any] = await self._box.open(
            row.data_encrypted, _TABLE, row.tenant_id, row.id
        )
        return data

    async def page(
        self, caller: Caller, listing: CredentialListing, cursor: str | None
    ) -> CredentialPage:
        """A page of credentials, by name."""
        filters = {
            "of": "credentials",
            "tenant": caller.tenant_id,
            "type": listing.type,
            "q": listing.q,
        }
        after = None if cursor is None else str(self._cursors.decode(cursor, filters))
        rows = await self._store.listed(
            caller.tenant_id,
            msgspec.structs.replace(listing, after=after, limit=listing.limit + 1),
        )
        page = rows[: listing.limit]
        has_more = len(rows) > listing.limit
        return CredentialPage(
            items=tuple(shown(row) for row in page if caller.may(READ, row.name)),
            next_cursor=self._cursors.encode(filters, page[-1].name) if has_more else None,
        )

    async def expiring(self, tenant_id: str, within_s: float) -> list[CredentialShown]:
        """Credentials of a tenant whose `meta.expires_at` comes soon or has passed."""
        until = from_now(self._clock, within_s)
        found: list[CredentialShown] = []
        after: str | None = None
        while True:
            page = await self._store.listed(tenant_id, CredentialListing(limit=_PAGE, after=after))
            found += [shown(row) for row in page if _end_of(row) < until]
            if len(page) < _PAGE:
                return found
            after = page[-1].name

    async def delete(self, caller: Caller, name: str, *, force: bool = False) -> CredentialRemoved:
        """Forget a credential that no document names any more."""
        row = await self.find(caller, name, WRITE)
        used = () if force else await self._usage.of(caller.tenant_id, row.name)
        if used:
            more = f" and {len(used) - _MOST_NAMES} more" if len(used) > _MOST_NAMES else ""
            raise Conflict(
                f"{row.name} is named by {', '.join(used[:_MOST_NAMES])}{more}",
                code="in_use",
                hint="change these documents, or ask with `force=true`",
            )
        await self._store.delete(caller.tenant_id, row.id)
        await self._changed(caller.tenant_id, row.name)
        return CredentialRemoved(id=row.id)


def shown(row: CredentialRow) -> CredentialShown:
    """What everybody who may read credentials sees of one."""
    return CredentialShown(
        id=row.id,
        name=row.name,
        type=row.type,
        meta=row.meta,
        tags=row.tags,
        description=row.description,
        region=row.region,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _end_of(row: CredentialRow) -> str:
    """When a credential ends by its `meta`; what is no time never does."""
    said = row.meta.get("expires_at")
    try:
        if not isinstance(said, str):
            return _NEVER
        return moment_of(said if len(said) > _DAY else f"{said}T00:00", "expires_at")
    except NoetlError:
        return _NEVER


def missing(name: str) -> NotFound:
    """There is no credential of a name."""
    return NotFound(
        f"there is no credential `{name[:80]}`",
        hint=f"`noetl credentials put {name[:80]}` makes one",
    )


def _must_be_right(body: CredentialPut) -> None:
    """Refuse a name, a type or fields that no tool could use; nothing of the fields is told."""
    if not _NAME.fullmatch(body.name):
        raise _unfit(
            "/name", "a name is a letter, then up to 127 letters, digits, `_`, `.`, `-` and `/`"
        )
    if FROM in body.meta:
        raise _unfit("/meta/from", "write `from` beside `meta`")
    given = {"type": body.type, "data": body.data, "from": body.from_}
    spec = {name: value for name, value in given.items() if value is not None}
    faults = [item for item in spec_faults(spec) if item.severity == "error"]
    if not faults:
        return
    redactor = Redactor(texts_in(body.data or {}))
    errors = tuple(
        {
            "pointer": item.pointer,
            "code": item.code,
            "detail": redactor.redact(item.message),
        }
        for item in faults
    )
    first = errors[0]
    raise Unacceptable(f"{first['pointer'] or '/'}: {first['detail']}", errors=errors)


def _unfit(pointer: str, message: str) -> Unacceptable:
    return Unacceptable(message, errors=({"pointer": pointer, "code": "validation_failed"},))
