"""What every store knows of tenants, accounts, roles, tokens and sessions.

A backend is the fixture `store`.
"""

import asyncio
from hashlib import sha256

import msgspec

from noetl.store.identity import (
    AccountListing,
    AccountRow,
    EndedSession,
    Grant,
    RoleRow,
    SessionRow,
    TenantRow,
    TokenRow,
)
from tests.conformance.store_suite import at

replace = msgspec.structs.replace


def digest(text):
    return sha256(text.encode()).hexdigest()


def account(number=1, **fields):
    known = {
        "account_id": str(number),
        "subject": f"user-{number}",
        "email": f"User{number}@example.com",
        "display_name": f"The {number}.",
        "password_hash": "$argon2id$...",
        "roles": ("developer",),
        "created_at": at(number),
    }
    return AccountRow(**(known | fields))


class TenantsSuite:
    async def test_the_default_tenant_is_always_there(self, store):
        row = await store.tenants.get("default")
        assert (row.tenant_id, row.name, row.limits) == ("default", "default", {})
        assert await store.tenants.get("acme") is None

    async def test_a_tenant_is_kept_once(self, store):
        row = TenantRow(tenant_id="acme", name="Acme", created_at=at(1), limits={"schedules": 5})
        assert await store.tenants.add(row)
        assert not await store.tenants.add(replace(row, name="Other"))
        assert await store.tenants.get("acme") == row

    async def test_tenants_are_listed_by_id(self, store):
        for name in ("zoo", "acme", "Beta"):
            await store.tenants.add(TenantRow(tenant_id=name, created_at=at(1)))
        found = [row.tenant_id for row in await store.tenants.listed()]
        assert found == ["Beta", "acme", "default", "zoo"]
        page = [row.tenant_id for row in await store.tenants.listed(2, after="Beta")]
        assert page == ["acme", "default"]


class AccountsSuite:
    async def test_an_account_is_found_by_id_and_by_subject(self, store):
        row = account()
        assert await store.accounts.add(row)
        assert await store.accounts.get("1") == row
        assert await store.accounts.by_subject("default", "user-1") == row
        assert await store.accounts.by_subject("acme", "user-1") is None
        assert await store.accounts.get("2") is None
        assert await store.accounts.get("no id") is None

    async def test_a_subject_is_one_account_of_its_tenant(self, store):
        assert await store.accounts.add(account())
        assert not await store.accounts.add(account(2, subject="user-1"))
        assert await store.accounts.add(account(3, subject="user-1", tenant_id="acme"))
        assert await store.accounts.get("2") is None

    async def test_an_e_mail_is_found_in_any_case_and_only_of_persons(self, store):
        rows = [
            account(1, email="Anna@example.com"),
            account(2, email="anna@example.com", kind="service"),
            account(3, email="anna@example.com", tenant_id="acme"),
            account(4, email=None),
        ]
        for row in rows:
            await store.accounts.add(row)
        assert await store.accounts.by_email("default", "anna@EXAMPLE.com") == rows[:1]
        assert await store.accounts.by_email("default", "") == []
        await store.accounts.add(account(5, email="ANNA@example.com"))
        assert len(await store.accounts.by_email("default", "anna@example.com")) == 2

    async def test_an_identity_belongs_to_one_account(self, store):
        for row in (account(), account(2), account(3, tenant_id="acme")):
            await store.accounts.add(row)
        accounts = store.accounts
        assert await accounts.of_identity("default", "https://i", "s") is None
        await accounts.link("1", "https://i", "s")
        await accounts.link("2", "https://i", "s")
        await accounts.link("3", "https://i", "s")
        assert await accounts.of_identity("default", "https://i", "s") == account()
        assert await accounts.of_identity("acme", "https://i", "s") == account(3, tenant_id="acme")
        assert await accounts.of_identity("default", "https://other", "s") is None

    async def listed(self, store, **wanted):
        found = await store.accounts.listed(AccountListing(**({"tenant_id": "default"} | wanted)))
        return [int(row.account_id) for row in found]

    async def test_accounts_are_listed_by_id_and_filtered(self, store):
        for row in (
            account(10, roles=("admin",)),
            account(9, kind="service", email=None, display_name=None),
            account(2, active=False),
            account(3, tenant_id="acme"),
        ):
            await store.accounts.add(row)
        assert await self.listed(store) == [2, 9, 10]
        assert await self.listed(store, limit=2) == [2, 9]
        assert await self.listed(store, after="9") == [10]
        assert await self.listed(store, kind="service") == [9]
        assert await self.listed(store, active=False) == [2]
        assert await self.listed(store, active=True) == [9, 10]
        assert await self.listed(store, role="admin") == [10]
        assert await self.listed(store, q="USER-1") == [10]
        assert await self.listed(store, q="user2@EXAMPLE") == [2]
        assert await self.listed(store, q="the 1") == [10]
        assert await self.listed(store, q="%") == []
        assert await self.listed(store, q="\0") == []
        assert await self.listed(store, tenant_id="acme") == [3]

    async def test_a_change_writes_what_may_change(self, store):
        await store.accounts.add(account())
        changed = account(
            email=None,
            display_name="Anna",
            password_hash=None,
            roles=("admin", "viewer"),
            active=False,
        )
        assert await store.accounts.change(
            replace(changed, subject="other", kind="service", tenant_id="acme")
        )
        assert await store.accounts.get("1") == changed
        assert not await store.accounts.change(account(2))
        assert await store.accounts.get("2") is None

    async def test_an_account_goes_with_all_that_it_has(self, store):
        await store.accounts.add(account())
        await store.accounts.link("1", "https://i", "s")
        await store.tokens.add(TokensSuite.row(account_id="1"), 50, at(0))
        await store.sessions.put(SessionsSuite.row())
        assert await store.accounts.remove("1")
        assert not await store.accounts.remove("1")
        assert await store.accounts.get("1") is None
        assert await store.accounts.of_identity("default", "https://i", "s") is None
        assert await store.tokens.get("1") is None
        assert await store.sessions.get("1") is None

    async def test_holders_and_admins_are_those_of_one_tenant(self, store):
        for row in (
            account(1, roles=("admin", "clerk")),
            account(2, roles=("clerk",), active=False),
            account(3, roles=("admin",), active=False),
            account(4, roles=("admin", "clerk"), tenant_id="acme"),
        ):
            await store.accounts.add(row)
        assert await store.accounts.holders("default", "clerk") == 2
        assert await store.accounts.holders("default", "nobody") == 0
        assert await store.accounts.admins("default") == ["1"]
        for row in (account(5, roles=("admin",)), account(6, roles=("admin",))):
            await store.accounts.add(row)
        assert len(await store.accounts.admins("default")) == 2


class SignInsSuite:
    @staticmethod
    def attempt(store, second, name="anna"):
        return store.sign_ins.attempt(
            name, at(second), since=at(second - 60), most=3, until=at(second + 60)
        )

    async def test_the_last_attempt_locks_the_name(self, store):
        assert [await self.attempt(store, 100 + n) for n in range(3)] == [None] * 3
        assert await self.attempt(store, 103) == at(162)
        assert await self.attempt(store, 161) == at(162)
        assert await self.attempt(store, 103, "bert") is None
        assert await self.attempt(store, 162) is None

    async def test_attempts_of_long_ago_do_not_count(self, store):
        for second in (100, 130, 161, 191, 222):
            assert await self.attempt(store, second) is None
        assert await self.attempt(store, 223) is None
        assert await self.attempt(store, 224) == at(283)

    async def test_who_was_right_starts_anew(self, store):
        for _ in range(3):
            for second in (100, 101):
                assert await self.attempt(store, second) is None
            await store.sign_ins.forgive("anna")
        await store.sign_ins.forgive("nobody")

    async def test_only_so_many_of_many_at_once_are_let_in(self, store):
        found = await asyncio.gather(*(self.attempt(store, 100) for _ in range(20)))
        assert found.count(None) == 3

    async def test_old_names_are_forgotten(self, store):
        for second in (100, 101, 102):
            await self.attempt(store, second)
        await self.attempt(store, 101, "bert")
        await self.attempt(store, 150, "cora")
        assert await store.sign_ins.forget(at(120)) == 1
        assert await store.sign_ins.forget(at(163)) == 2
        assert await self.attempt(store, 103) is None


class RightsSuite:
    row = RoleRow(
        name="finance",
        permissions=("catalog:read", "execution:run"),
        grants=(
            Grant(effect="allow", actions=("execute", "view"), path="finance/*"),
            Grant(effect="deny", actions=("execution:run",), path="finance/é"),
        ),
    )

    async def test_a_role_is_kept_and_replaced(self, store):
        assert await store.rights.get("default", "finance") is None
        await store.rights.put(self.row)
        assert await store.rights.get("default", "finance") == self.row
        assert await store.rights.get("acme", "finance") is None
        changed = replace(self.row, permissions=(), grants=())
        await store.rights.put(changed)
        assert await store.rights.get("default", "finance") == changed

    async def test_roles_are_listed_by_name_within_their_tenant(self, store):
        for name, tenant in (("b", "default"), ("B", "default"), ("a", "default"), ("c", "acme")):
            await store.rights.put(RoleRow(name=name, tenant_id=tenant))
        assert [row.name for row in await store.rights.listed("default")] == ["B", "a", "b"]
        found = await store.rights.of("default", ("b", "c", "nobody", "B", "b"))
        assert [row.name for row in found] == ["B", "b"]
        assert await store.rights.of("default", ()) == []

    async def test_a_role_is_removed(self, store):
        await store.rights.put(self.row)
        assert not await store.rights.remove("acme", "finance")
        assert await store.rights.remove("default", "finance")
        assert not await store.rights.remove("default", "finance")


class TokensSuite:
    """The first tokens bring their accounts; others are added to an account that is there."""

    @staticmethod
    def row(number=1, **fields):
        known = {
            "token_id": str(number),
            "sha256": digest(f"ntk_{number}"),
            "account": "worker-shared",
            "roles": ("worker",),
            "name": "of a worker",
            "pool": "shared",
            "created_at": at(0),
            "expires_at": at(3000),
        }
        return TokenRow(**(known | fields))

    def kept(self, number=1, owner=1, **fields):
        row = self.row(number, **fields)
        return replace(row, account_id=str(owner), scopes=row.scopes or row.roles)

    async def test_a_token_is_found_by_its_digest(self, store):
        row = self.row()
        assert await store.tokens.find(row.sha256) is None
        await store.tokens.put(row)
        assert await store.tokens.find(row.sha256) == self.kept()
        assert await store.tokens.get("1") == self.kept()
        assert await store.tokens.find(digest("another")) is None
        assert await store.tokens.get("2") is None

    async def test_the_same_digest_again_changes_nothing(self, store):
        row = self.row()
        await store.tokens.put(row)
        other = self.row(2, sha256=row.sha256, account="eve", roles=("admin",), pool=None)
        await store.tokens.put(other)
        await store.tokens.put(replace(row, roles=("admin",)))
        assert await store.tokens.find(row.sha256) == self.kept()
        assert await store.accounts.by_subject("default", "eve") is None
        assert not await store.tokens.revoke("2", at(5))

    async def test_an_account_may_have_several_tokens(self, store):
        rows = [
            self.row(1),
            self.row(2, pool="gpu", expires_at=None),
            self.row(3, account="anna", roles=("admin", "developer"), pool=None, name=""),
            self.row(4, roles=("viewer",)),
        ]
        for row in rows:
            await store.tokens.put(row)
        assert [await store.tokens.find(row.sha256) for row in rows] == [
            self.kept(1),
            self.kept(2, pool="gpu", expires_at=None),
            self.kept(3, 3, account="anna", roles=("admin", "developer"), pool=None, name=""),
            self.kept(4, roles=("viewer",)),
        ]
        owner = await store.accounts.by_subject("default", "worker-shared")
        assert (owner.kind, owner.roles) == ("service", ("viewer", "worker"))

    async def test_puts_at_once_keep_one(self, store):
        rows = [self.row(n, sha256=digest("same"), account=f"a{n % 2}") for n in range(1, 9)]
        await asyncio.gather(*(store.tokens.put(row) for row in rows))
        found = await store.tokens.find(digest("same"))
        assert found.token_id in {row.token_id for row in rows}

    async def test_a_revoked_token_says_so_for_ever(self, store):
        row = self.row()
        await store.tokens.put(row)
        assert await store.tokens.revoke("1", at(50))
        assert await store.tokens.revoke("1", at(60))
        assert await store.tokens.find(row.sha256) == replace(self.kept(), revoked_at=at(50))
        await store.tokens.put(row)
        assert (await store.tokens.find(row.sha256)).revoked_at == at(50)
        assert not await store.tokens.revoke("404", at(50))

    async def test_a_token_has_what_its_account_has_now(self, store):
        await store.accounts.add(account(7, roles=("developer", "viewer")))
        wide = self.row(1, account_id="7", scopes=(), pool=None)
        narrow = self.row(2, account_id="7", scopes=("viewer",), pool=None)
        for row in (wide, narrow):
            assert await store.tokens.add(row, 50, at(0))
        found = await store.tokens.find(wide.sha256)
        assert found == replace(wide, account="user-7", kind="user", roles=("developer", "viewer"))
        assert (await store.tokens.find(narrow.sha256)).roles == ("viewer",)
        await store.accounts.change(account(7, roles=("developer",)))
        assert (await store.tokens.find(wide.sha256)).roles == ("developer",)
        assert (await store.tokens.find(narrow.sha256)).roles == ()
        await store.accounts.change(account(7, active=False))
        assert await store.tokens.find(wide.sha256) is None
        assert (await store.tokens.get("1")).account == "user-7"

    async def test_an_account_has_only_so_many_live_tokens(self, store):
        await store.accounts.add(account(7))
        rows = [
            self.row(n, account_id="7", expires_at=at(n * 100) if n < 3 else None)
            for n in range(1, 9)
        ]
        found = await asyncio.gather(*(store.tokens.add(row, 3, at(0)) for row in rows))
        assert found.count(True) == 3
        assert await store.tokens.count("7", at(0)) == 3
        assert not await store.tokens.add(self.row(9, account_id="404"), 3, at(0))

    async def test_a_token_that_has_ended_is_not_counted(self, store):
        await store.accounts.add(account(7))
        for number in (1, 2, 3):
            row = self.row(number, account_id="7", expires_at=at(100) if number == 1 else None)
            await store.tokens.add(row, 50, at(0))
        await store.tokens.revoke("2", at(50))
        assert await store.tokens.count("7", at(99)) == 2
        assert await store.tokens.count("7", at(100)) == 1
        assert await store.tokens.count("8", at(0)) == 0

    async def test_tokens_are_listed_by_id(self, store):
        await store.accounts.add(account(7))
        await store.accounts.add(account(8))
        for number, owner in ((10, "7"), (9, "7"), (2, "7"), (3, "8")):
            await store.tokens.add(self.row(number, account_id=owner), 50, at(0))
        await store.tokens.revoke("9", at(50))

        async def ids(**wanted):
            return [int(row.token_id) for row in await store.tokens.listed("7", **wanted)]

        assert await ids() == [2, 10]
        assert await ids(with_revoked=True) == [2, 9, 10]
        assert await ids(with_revoked=True, limit=1, after="2") == [9]
        assert (await store.tokens.listed("8"))[0].account == "user-8"
        assert await store.tokens.listed("404") == []

    async def test_a_renewed_token_has_another_text(self, store):
        await store.accounts.add(account(7))
        row = self.row(account_id="7")
        await store.tokens.add(row, 50, at(0))
        await store.tokens.touch("1", at(10))
        times = {"created_at": at(20), "expires_at": at(4000)}
        assert await store.tokens.renew("1", digest("new"), **times)
        assert await store.tokens.find(row.sha256) is None
        found = await store.tokens.find(digest("new"))
        assert found == replace(
            row, sha256=digest("new"), account="user-7", kind="user", roles=("developer",), **times
        )
        await store.tokens.revoke("1", at(30))
        assert not await store.tokens.renew("1", digest("newer"), **times)
        assert not await store.tokens.renew("404", digest("newer"), **times)

    async def test_a_use_is_written_once_a_minute(self, store):
        await store.tokens.put(self.row())
        seen = []
        for second in (100, 130, 159, 160):
            await store.tokens.touch("1", at(second))
            seen.append((await store.tokens.get("1")).last_used_at)
        assert seen == [at(100), at(100), at(100), at(160)]
        await store.tokens.touch("404", at(100))


class SessionsSuite:
    @staticmethod
    def row(number=1, **fields):
        known = {
            "session_id": str(number),
            "sha256": digest(f"nts_{number}"),
            "account_id": "1",
            "created_at": at(0),
            "expires_at": at(1000),
            "idle_until": at(200),
            "client": {"ip": "::1", "user_agent": "é"},
        }
        return SessionRow(**(known | fields))

    def kept(self, number=1, **fields):
        return replace(
            self.row(number),
            account="user-1",
            roles=("developer",),
            email="User1@example.com",
            display_name="The 1.",
            **fields,
        )

    async def test_a_session_is_found_with_its_account(self, store):
        await store.accounts.add(account())
        row = self.row()
        assert await store.sessions.find(row.sha256) is None
        await store.sessions.put(row)
        assert await store.sessions.find(row.sha256) == self.kept()
        assert await store.sessions.get("1") == self.kept()
        assert await store.sessions.get("2") is None
        await store.accounts.change(account(roles=()))
        assert (await store.sessions.find(row.sha256)).roles == ()
        await store.accounts.change(account(active=False))
        assert await store.sessions.find(row.sha256) is None
        assert await store.sessions.get("1") is not None

    async def test_a_session_lives_on_while_it_is_used(self, store):
        await store.accounts.add(account())
        await store.sessions.put(self.row())
        seen = []
        for second in (259, 260, 300, 990, 1200):
            await store.sessions.touch("1", at(second))
            seen.append((await store.sessions.get("1")).idle_until)
        assert seen == [at(200), at(260), at(260), at(990), at(1000)]
        await store.sessions.touch("404", at(300))

    async def test_sessions_of_an_account_are_listed_while_they_last(self, store):
        await store.accounts.add(account())
        await store.accounts.add(account(2))
        for row in (
            self.row(10),
            self.row(9, idle_until=at(100)),
            self.row(8, expires_at=at(100)),
            self.row(7),
            self.row(6, account_id="2"),
        ):
            await store.sessions.put(row)
        await store.sessions.revoke("7", at(1))

        async def ids(second):
            return [int(row.session_id) for row in await store.sessions.listed("1", at(second))]

        assert await ids(99) == [8, 9, 10]
        assert await ids(100) == [10]

    async def test_a_session_is_given_another_digest_and_found_by_both(self, store):
        await store.accounts.add(account())
        await store.sessions.put(self.row())
        first, second, third = (digest(f"nts_{name}") for name in ("1", "second", "third"))
        fresh = replace(
            self.row(), sha256=second, previous_sha256=first, refreshed_at=at(50),
            expires_at=at(2000), idle_until=at(300),
        )  # fmt: skip
        assert await store.sessions.refresh(fresh)
        whole = self.kept(
            sha256=second, previous_sha256=first, refreshed_at=at(50), expires_at=at(2000),
            idle_until=at(300),
        )  # fmt: skip
        assert await store.sessions.find(second) == whole
        assert await store.sessions.find(first) == whole
        assert not await store.sessions.refresh(fresh)  # it has another digest by now
        again = replace(fresh, sha256=third, previous_sha256=second, refreshed_at=at(60))
        assert await store.sessions.refresh(again)
        assert await store.sessions.find(first) is None
        assert (await store.sessions.find(second)).sha256 == third
        ended = await store.sessions.revoke_all("1", at(70))
        assert ended == [EndedSession(session_id="1", digests=(third, second))]
        late = replace(again, sha256=first, previous_sha256=third)
        assert not await store.sessions.refresh(late)  # it was revoked

    async def test_a_revoked_session_says_so(self, store):
        await store.accounts.add(account())
        row = self.row()
        await store.sessions.put(row)
        assert await store.sessions.revoke("1", at(50))
        assert await store.sessions.revoke("1", at(60))
        assert await store.sessions.find(row.sha256) == self.kept(revoked_at=at(50))
        assert not await store.sessions.revoke("404", at(50))

    async def test_all_sessions_of_an_account_end_at_once(self, store):
        await store.accounts.add(account())
        await store.accounts.add(account(2))
        for row in (self.row(1), self.row(2), self.row(3, account_id="2")):
            await store.sessions.put(row)
        await store.sessions.revoke("1", at(10))
        ended = await store.sessions.revoke_all("1", at(20))
        assert ended == [EndedSession(session_id="2", digests=(self.row(2).sha256,))]
        assert await store.sessions.revoke_all("1", at(30)) == []
        assert (await store.sessions.get("2")).revoked_at == at(20)
        assert (await store.sessions.get("3")).revoked_at is None

    async def test_sessions_of_long_ago_are_forgotten(self, store):
        await store.accounts.add(account())
        await store.accounts.add(account(2))
        for row in (self.row(1), self.row(2, expires_at=at(500)), self.row(3, account_id="2")):
            await store.sessions.put(row)
        assert await store.sessions.forget("1", at(500)) == 0
        assert await store.sessions.forget("1", at(501)) == 1
        assert await store.sessions.get("2") is None
        assert await store.sessions.forget("1", at(2000)) == 1
        assert await store.sessions.get("3") is not None
