"""Accounts of persons and of processes, each of one tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from noetl.api.identity import Account, AccountPage, User, WhoAmI
from noetl.clock import rfc3339
from noetl.edge.errors import Conflict, NotFound
from noetl.ids import parse
from noetl.server.access.bearers import OF_TOKEN
from noetl.server.access.permissions import PERMISSIONS
from noetl.server.identity.forms import must_be_email, must_be_name, must_be_subject, wrong
from noetl.server.identity.roles import writing
from noetl.store.identity import AccountListing, AccountRow, EndedSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.api.identity import AccountChange, NewAccount
    from noetl.clock import Clock
    from noetl.edge.cursor import Cursors
    from noetl.ids import Ids
    from noetl.server.access.caller import Caller
    from noetl.server.identity.farewells import Farewells
    from noetl.server.identity.passwords import Passwords
    from noetl.server.identity.roles import Roles
    from noetl.store.base import Store


class Accounts:
    """Makes, changes and forgets accounts; a tenant always keeps an admin."""

    def __init__(  # noqa: PLR0913 - what accounts are made with
        self,
        store: Store,
        clock: Clock,
        ids: Ids,
        *,
        cursors: Cursors,
        passwords: Passwords,
        roles: Roles,
        farewells: Farewells,
    ) -> None:
        self._store = store
        self._rows = store.accounts
        self._clock = clock
        self._ids = ids
        self._cursors = cursors
        self._passwords = passwords
        self._roles = roles
        self._farewells = farewells

    async def page(self, listing: AccountListing, cursor: str | None = None) -> AccountPage:
        """A page of accounts in the order of their ids."""
        filters = {"of": "accounts", **msgspec.structs.asdict(listing)}
        del filters["limit"], filters["after"]
        changed: dict[str, Any] = {"limit": listing.limit + 1}
        if cursor is not None:
            changed["after"] = str(self._cursors.decode(cursor, filters))
        rows = await self._rows.listed(msgspec.structs.replace(listing, **changed))
        page = rows[: listing.limit]
        has_more = len(rows) > listing.limit
        return AccountPage(
            items=tuple(map(account_of, page)),
            next_cursor=self._cursors.encode(filters, page[-1].account_id) if has_more else None,
        )

    async def get(self, tenant_id: str, account_id: str) -> Account:
        """One account."""
        return account_of(await self.row(tenant_id, account_id))

    async def add(self, tenant_id: str, body: NewAccount) -> Account:
        """Make an account."""
        made = await self.made(tenant_id, body)
        async with writing(self._store, tenant_id):
            roles = await self._roles.wanted(tenant_id, made.kind, body.roles)
            row = msgspec.structs.replace(made, roles=roles)
            if not await self._rows.add(row):
                raise taken(row.subject)
        return account_of(row)

    async def made(self, tenant_id: str, body: NewAccount) -> AccountRow:
        """An account that is not kept yet, without roles."""
        must_be_subject(body.subject)
        must_be_email(body.email)
        must_be_name("/display_name", body.display_name)
        _must_fit_kind(body.kind, body.password)
        hashed = None
        if body.password is not None:
            hashed = await self._passwords.hashed(body.password)
        return AccountRow(
            account_id=self._ids.new(),
            subject=body.subject,
            kind=body.kind,
            tenant_id=tenant_id,
            email=body.email,
            display_name=body.display_name,
            password_hash=hashed,
            active=body.active,
            created_at=rfc3339(self._clock.now()),
        )

    async def change(self, tenant_id: str, account_id: str, body: AccountChange) -> Account:
        """Change what the body names; who may do less from now on is signed out."""
        changed = await self._changed(tenant_id, account_id, body)
        async with writing(self._store, tenant_id):
            before = await self.row(tenant_id, account_id)
            after = msgspec.structs.replace(before, **changed)
            await self._write(before, after)
        if body.password is not UNSET or not after.active:
            await self._sign_out(after)
        return account_of(after)

    async def _changed(
        self, tenant_id: str, account_id: str, body: AccountChange
    ) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        if body.email is not UNSET:
            must_be_email(body.email)
            changed["email"] = body.email
        if body.display_name is not UNSET:
            must_be_name("/display_name", body.display_name)
            changed["display_name"] = body.display_name
        if body.active is not UNSET:
            changed["active"] = body.active
        if body.password is not UNSET:
            password = body.password
            _must_fit_kind((await self.row(tenant_id, account_id)).kind, password)
            hashed = None if password is None else await self._passwords.hashed(password)
            changed["password_hash"] = hashed
        return changed

    async def give(self, tenant_id: str, account_id: str, roles: Sequence[str]) -> Account:
        """Make these the roles of an account; who has fewer than before is signed out.

        Gateways look at all of its sessions again, whatever has changed.
        """
        async with writing(self._store, tenant_id):
            before = await self.row(tenant_id, account_id)
            wanted = await self._roles.wanted(tenant_id, before.kind, roles)
            after = msgspec.structs.replace(before, roles=wanted)
            await self._write(before, after)
        if not set(before.roles) <= set(after.roles):
            await self._sign_out(after)
        elif before.roles != after.roles:
            live = await self._store.sessions.listed(account_id, rfc3339(self._clock.now()))
            await self._farewells.tell(map(EndedSession.of, live))
        return account_of(after)

    async def remove(self, tenant_id: str, account_id: str) -> Account:
        """Forget an account with its tokens and sessions; what it was."""
        async with writing(self._store, tenant_id):
            row = await self.row(tenant_id, account_id)
            await self._must_leave_an_admin(row, None)
            now = rfc3339(self._clock.now())
            ended = await self._store.sessions.revoke_all(row.account_id, now)
            await self._rows.remove(row.account_id)
        await self._farewells.tell(ended)
        return account_of(row)

    async def row(self, tenant_id: str, account_id: object) -> AccountRow:
        """The account of that id, if it is one of the tenant."""
        found = await self._rows.get(parse(account_id))
        if found is None or found.tenant_id != tenant_id:
            raise NotFound(f"there is no account {account_id}")
        return found

    async def who(self, caller: Caller) -> WhoAmI:
        """What the server knows of a caller."""
        row = await self._rows.get(caller.account_id) if caller.account_id else None
        is_token = caller.session_id.startswith(OF_TOKEN)
        return WhoAmI(
            account=caller.account,
            account_id=caller.account_id or None,
            tenant_id=caller.tenant_id,
            roles=caller.roles,
            permissions=tuple(sorted(filter(caller.holds, PERMISSIONS))),
            kind=None if row is None else row.kind,
            email=None if row is None else row.email,
            display_name=None if row is None else row.display_name,
            pool=caller.pool,
            session_id=None if is_token else caller.session_id or None,
            token_id=caller.session_id.removeprefix(OF_TOKEN) if is_token else None,
            expires_at=caller.expires_at,
        )

    async def _write(self, before: AccountRow, after: AccountRow) -> None:
        await self._must_leave_an_admin(before, after)
        if after != before and not await self._rows.change(after):
            raise NotFound(f"there is no account {after.account_id}")

    async def _must_leave_an_admin(self, before: AccountRow, after: AccountRow | None) -> None:
        if not _is_admin(before) or (after is not None and _is_admin(after)):
            return
        if await self._rows.admins(before.tenant_id) == [before.account_id]:
            raise Conflict(
                f"{before.subject} is the last active admin",
                code="in_use",
                hint="make somebody else an admin first",
            )

    async def _sign_out(self, row: AccountRow) -> None:
        now = rfc3339(self._clock.now())
        await self._farewells.tell(await self._store.sessions.revoke_all(row.account_id, now))


def account_of(row: AccountRow) -> Account:
    """An account as it is told."""
    return Account(
        account_id=row.account_id,
        subject=row.subject,
        kind=row.kind,
        tenant_id=row.tenant_id,
        email=row.email,
        display_name=row.display_name,
        active=row.active,
        roles=row.roles,
        has_password=row.password_hash is not None,
        created_at=row.created_at,
    )


def user_of(row: AccountRow) -> User:
    """An account as one that has signed in is told."""
    return User(
        user_id=row.account_id,
        subject=row.subject,
        email=row.email,
        display_name=row.display_name,
        roles=row.roles,
        tenant=row.tenant_id,
    )


def taken(subject: str) -> Conflict:
    """A name that another account has."""
    return Conflict(f"there is an account `{subject}`", code="in_use", hint="choose another name")


def _is_admin(row: AccountRow) -> bool:
    return row.active and "admin" in row.roles


def _must_fit_kind(kind: str, password: str | None) -> None:
    if kind == "service" and password is not None:
        raise wrong("/password", "a service has tokens, and no password")
