"""Signing in: by a password that is kept here, or as somebody whom the gateway has checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.identity import NewAccount
from noetl.clock import rfc3339
from noetl.edge.errors import BadCredentials, Forbidden, NotFound, RateLimited
from noetl.edge.moments import from_now, seconds_until
from noetl.ids import parse
from noetl.server.access.permissions import SERVICES
from noetl.server.access.tokens import digest
from noetl.server.identity.accounts import taken
from noetl.server.identity.forms import is_subject, must_be_in, wrong
from noetl.server.identity.roles import writing

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.api.identity import Identity, Login, SignedIn
    from noetl.clock import Clock
    from noetl.server.identity.accounts import Accounts
    from noetl.server.identity.passwords import Passwords
    from noetl.server.identity.roles import Roles
    from noetl.server.identity.sessions import Sessions
    from noetl.store.base import Store
    from noetl.store.identity import AccountRow

MOST_FAILURES: Final = 10
LOCKED_S: Final = 15 * 60
MOST_HOURS: Final = 24
LONGEST: Final = 200
LONGEST_CLAIM: Final = 255
_SHOWN: Final = 400


class SignIn:
    """Finds the account of who wants in, and begins a session."""

    def __init__(  # noqa: PLR0913 - all that knows who somebody is
        self,
        store: Store,
        clock: Clock,
        *,
        accounts: Accounts,
        roles: Roles,
        passwords: Passwords,
        sessions: Sessions,
    ) -> None:
        self._store = store
        self._clock = clock
        self._accounts = accounts
        self._roles = roles
        self._passwords = passwords
        self._sessions = sessions

    async def login(self, body: Login, found: Callable[[str], None]) -> SignedIn:
        """A session for who has proved to be somebody.

        `found` is told the name of the account, if there is one, before anything is checked.
        """
        must_be_in("/session_duration_hours", body.session_duration_hours, 1, MOST_HOURS)
        _must_be_one_way(body)
        if body.account_id is not None:
            account = await self._vouched(parse(body.account_id))
            found(account.subject)
        elif body.identity is not None:
            account = await self._told(body, body.identity)
        else:
            account = await self._checked(body, found)
        told = {"ip": body.client_ip, "user_agent": body.client_user_agent}
        client = {name: text[:_SHOWN] for name, text in told.items() if text is not None}
        return await self._sessions.begin(account, body.session_duration_hours, client)

    async def _vouched(self, account_id: str) -> AccountRow:
        """The account of one who has shown a ticket; none of the platform's own processes."""
        account = await self._store.accounts.get(account_id)
        if account is None:
            raise NotFound(f"there is no account {account_id}")
        if not account.active:
            raise Forbidden("the account is not active")
        if not SERVICES.isdisjoint(account.roles):
            raise Forbidden("the platform's own processes do not sign in", hint="they have tokens")
        return account

    # ----------------------------------------------------------------------- passwords

    async def _checked(self, body: Login, found: Callable[[str], None]) -> AccountRow:
        """The account of a name and its password.

        An unknown name is answered as a wrong password is, and as late. The attempt is counted
        before it is checked, so that many at once are not more than many.
        """
        name = body.username if body.username is not None else body.email
        if name is None or body.password is None:
            raise wrong("", "name `username` and `password`, or `identity`")
        if not 1 <= len(name) <= LONGEST:
            raise BadCredentials("the name or the password is wrong")
        account = await self._named(body.tenant, name)
        key = digest(f"{body.tenant}/{name.lower()}")  # some type a password there
        if account is not None:
            key = account.account_id
            found(account.subject)
        await self._must_be_calm(key)
        hashed = None if account is None else account.password_hash
        is_right = await self._passwords.fits(body.password, hashed)
        if account is None or not is_right or not account.active:
            await self._store.sign_ins.forget(from_now(self._clock, -LOCKED_S))
            raise BadCredentials("the name or the password is wrong")
        await self._store.sign_ins.forgive(key)
        return account

    async def _named(self, tenant_id: str, name: str) -> AccountRow | None:
        """The account of that subject, or of that e-mail if it is the only one."""
        found = await self._store.accounts.by_subject(tenant_id, name)
        if found is not None or "@" not in name:
            return found
        rows = await self._store.accounts.by_email(tenant_id, name)
        return rows[0] if len(rows) == 1 else None

    async def _must_be_calm(self, key: str) -> None:
        locked_until = await self._store.sign_ins.attempt(
            key,
            rfc3339(self._clock.now()),
            since=from_now(self._clock, -LOCKED_S),
            most=MOST_FAILURES,
            until=from_now(self._clock, LOCKED_S),
        )
        if locked_until is not None:
            raise RateLimited(
                f"{MOST_FAILURES} attempts have failed; the account is locked for a while",
                retry_after=max(seconds_until(self._clock, locked_until), 1.0),
            )

    # ---------------------------------------------------------------------- identities

    async def _told(self, body: Login, identity: Identity) -> AccountRow:
        """The account of an identity; made at its first use if that is wished."""
        for name in ("issuer", "subject"):
            if not 1 <= len(getattr(identity, name)) <= LONGEST_CLAIM:
                raise wrong(f"/identity/{name}", f"`{name}` has 1..{LONGEST_CLAIM} characters")
        if await self._store.tenants.get(body.tenant) is None:
            raise wrong("/tenant", f"there is no tenant {body.tenant[:80]!r}")
        account = await self._known(body.tenant, identity)
        if account is None:
            async with writing(self._store, body.tenant):
                account = await self._known(body.tenant, identity) or await self._linked(
                    body.tenant, identity
                )
        if not account.active:
            raise Forbidden("the account is not active")
        return account

    async def _known(self, tenant_id: str, identity: Identity) -> AccountRow | None:
        return await self._store.accounts.of_identity(tenant_id, identity.issuer, identity.subject)

    async def _linked(self, tenant_id: str, identity: Identity) -> AccountRow:
        """The one account with the e-mail of the identity, else a new one.

        An e-mail that the issuer has not verified says nothing about who somebody is: it finds no
        account, and is not kept, for it would find this one later.
        """
        accounts = self._store.accounts
        email = identity.email if identity.email_verified else None
        rows = await accounts.by_email(tenant_id, email) if email else []
        if len(rows) > 1:
            raise Forbidden("several accounts have this e-mail", hint="an admin may remove it")
        account = rows[0] if rows else await self._provided(tenant_id, identity, email)
        await accounts.link(account.account_id, identity.issuer, identity.subject)
        return account

    async def _provided(self, tenant_id: str, identity: Identity, email: str | None) -> AccountRow:
        if not identity.auto_provision:
            raise Forbidden("there is no account for this identity", hint="an admin makes one")
        roles = await self._roles.wanted(tenant_id, "user", identity.roles or ("viewer",))
        full = f"{identity.issuer}|{identity.subject}"
        if not is_subject(full):
            full = f"oidc|{digest(full)}"
        shown = identity.display_name and identity.display_name[:LONGEST]
        for subject in dict.fromkeys((email or full, full)):
            body = NewAccount(subject=subject, email=email, display_name=shown)
            row = msgspec.structs.replace(await self._accounts.made(tenant_id, body), roles=roles)
            if await self._store.accounts.add(row):
                return row
        raise taken(full)


def _must_be_one_way(body: Login) -> None:
    """Refuse who wants in by two doors at once."""
    has_name = any(one is not None for one in (body.username, body.email, body.password))
    if body.username is not None and body.email is not None:
        raise wrong("/email", "`email` is another word for `username`; name one of them")
    if body.identity is not None and (has_name or body.account_id is not None):
        raise wrong("/identity", "an identity has no password here")
    if body.account_id is not None and has_name:
        raise wrong("/account_id", "who has shown a ticket needs no password")
