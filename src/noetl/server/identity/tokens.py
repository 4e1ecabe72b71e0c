"""Tokens of persons and services: the text is shown once, and no token gives more than it may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.identity import Token, TokenMade, TokenPage
from noetl.clock import rfc3339
from noetl.edge.errors import Forbidden, NotFound, QuotaExceeded
from noetl.edge.moments import from_now, seconds_between
from noetl.ids import parse
from noetl.server.access.caller import must_hold
from noetl.server.access.tokens import digest, new_token
from noetl.server.identity.forms import must_be_in, must_be_name, must_be_pool, wrong
from noetl.store.identity import TokenRow, narrowed

if TYPE_CHECKING:
    from noetl.api.identity import NewToken
    from noetl.clock import Clock
    from noetl.edge.cursor import Cursors
    from noetl.ids import Ids
    from noetl.server.access.caller import Caller
    from noetl.server.identity.accounts import Accounts
    from noetl.server.identity.farewells import Farewells
    from noetl.store.base import Store
    from noetl.store.identity import AccountRow

MOST: Final = 50
"""Live tokens of one account."""
DAYS: Final = {"user": 90, "service": 365}
MOST_DAYS: Final = 365
DAY_S: Final = 86_400
ADMIN: Final = "user:admin"


class Tokens:
    """Makes, lists, renews and ends tokens: one's own, and with `user:admin` those of others."""

    def __init__(  # noqa: PLR0913 - what tokens are made with
        self,
        store: Store,
        clock: Clock,
        ids: Ids,
        *,
        cursors: Cursors,
        accounts: Accounts,
        farewells: Farewells,
    ) -> None:
        self._farewells = farewells
        self._rows = store.tokens
        self._clock = clock
        self._ids = ids
        self._cursors = cursors
        self._accounts = accounts

    async def page(
        self,
        caller: Caller,
        account_id: str | None,
        *,
        limit: int,
        cursor: str | None = None,
        with_revoked: bool = False,
    ) -> TokenPage:
        """A page of the tokens of an account."""
        owner = await self.owner(caller, account_id)
        filters = {"of": "tokens", "account": owner.account_id, "with_revoked": with_revoked}
        after = None if cursor is None else str(self._cursors.decode(cursor, filters))
        rows = await self._rows.listed(
            owner.account_id, limit=limit + 1, after=after, with_revoked=with_revoked
        )
        page = rows[:limit]
        has_more = len(rows) > limit
        return TokenPage(
            items=tuple(map(_token, page)),
            next_cursor=self._cursors.encode(filters, page[-1].token_id) if has_more else None,
        )

    async def add(self, caller: Caller, body: NewToken) -> TokenMade:
        """Make a token."""
        must_be_name("/name", body.name, least=1)
        owner = await self.owner(caller, body.account_id)
        scopes = _scopes(caller, owner, body.scopes)
        roles = narrowed(owner.roles, scopes)
        _must_name_pool(roles, body.pool)
        days = DAYS[owner.kind] if body.expires_in_days is None else body.expires_in_days
        must_be_in("/expires_in_days", days, 1, MOST_DAYS)
        text, now = new_token(), rfc3339(self._clock.now())
        row = TokenRow(
            token_id=self._ids.new(),
            sha256=digest(text),
            account=owner.subject,
            roles=roles,
            account_id=owner.account_id,
            kind=owner.kind,
            name=body.name,
            scopes=scopes,
            pool=body.pool,
            tenant_id=owner.tenant_id,
            created_at=now,
            expires_at=from_now(self._clock, days * DAY_S),
        )
        if not await self._rows.add(row, MOST, now):
            raise QuotaExceeded(
                f"the account has {MOST} tokens", hint="revoke those that are not used"
            )
        return _made(row, text)

    async def revoke(self, caller: Caller, token_id: str) -> Token:
        """End a token; which one it was."""
        row = await self._row(caller, token_id)
        await self._rows.revoke(row.token_id, rfc3339(self._clock.now()))
        await self._farewells.tell_of_token(row)
        return _token(row)

    async def rotate(self, caller: Caller, token_id: str) -> TokenMade:
        """Give a token another text, for as long as it was given before."""
        row = await self._row(caller, token_id)
        if not set(row.roles) <= set(caller.roles):  # a narrow token does not open a wide one
            must_hold(caller, ADMIN)
        lasts_s = float(DAYS[row.kind] * DAY_S)
        if row.expires_at is not None and row.created_at:
            lasts_s = seconds_between(row.created_at, row.expires_at)
        text, now = new_token(), rfc3339(self._clock.now())
        times = {"created_at": now, "expires_at": from_now(self._clock, lasts_s)}
        if not await self._rows.renew(row.token_id, digest(text), **times):
            raise _unknown(token_id)
        await self._farewells.tell_of_token(row)
        found = await self._rows.get(row.token_id)
        if found is None:
            raise _unknown(token_id)
        return _made(found, text)

    async def owner(self, caller: Caller, account_id: object) -> AccountRow:
        """Whose tokens are meant: the caller's, or those of an account that he may manage."""
        if account_id is None and not caller.account_id:
            raise Forbidden("the caller has no account of its own", hint="name `account_id`")
        wanted = caller.account_id if account_id is None else account_id
        row = await self._accounts.row(caller.tenant_id, wanted)
        if row.account_id != caller.account_id:
            must_hold(caller, ADMIN)
        return row

    async def _row(self, caller: Caller, token_id: str) -> TokenRow:
        row = await self._rows.get(parse(token_id))
        if row is None or row.tenant_id != caller.tenant_id or row.revoked_at is not None:
            raise _unknown(token_id)
        if row.account_id != caller.account_id:
            must_hold(caller, ADMIN)
        return row


def _scopes(caller: Caller, owner: AccountRow, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Roles that a token is narrowed to: never more than the account has, or who makes it."""
    is_own = owner.account_id == caller.account_id
    held = [role for role in owner.roles if not is_own or role in caller.roles]
    for place, role in enumerate(wanted):
        if role not in held:
            whose = "the token that asks" if role in owner.roles else "the account"
            raise wrong(f"/scopes/{place}", f"{whose} does not have the role {role[:80]!r}")
    if wanted:
        return tuple(dict.fromkeys(wanted))
    if not held:
        raise wrong("/scopes", "the account has no role that a token could carry")
    # A service is given its roles with its token: a role that comes later brings another one.
    is_fixed = owner.kind == "service" or len(held) < len(owner.roles)
    return tuple(held) if is_fixed else ()


def _must_name_pool(roles: tuple[str, ...], pool: str | None) -> None:
    if "worker" not in roles:
        if pool is not None:
            raise wrong("/pool", "only a worker's token is for a pool")
        return
    if pool is None:
        raise wrong("/pool", "a worker's token names its pool")
    must_be_pool(pool)


def _token(row: TokenRow) -> Token:
    return Token(
        token_id=row.token_id,
        account_id=row.account_id,
        account=row.account,
        name=row.name,
        scopes=row.scopes,
        roles=row.roles,
        pool=row.pool,
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
    )


def _made(row: TokenRow, text: str) -> TokenMade:
    told = _token(row)
    return TokenMade(token=text, **{name: getattr(told, name) for name in Token.__struct_fields__})


def _unknown(token_id: str) -> NotFound:
    return NotFound(f"there is no token {token_id[:20]}")
