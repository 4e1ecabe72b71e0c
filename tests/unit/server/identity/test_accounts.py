"""Accounts: who makes, changes and forgets them."""

from __future__ import annotations

import asyncio

import msgspec

from noetl.api.http import AsgiTransport
from noetl.api.identity import AccountChange, NewAccount, NewRole, NewToken
from noetl.store.identity import SessionRow
from tests.unit.server.identity.people import (
    CHEAP,
    PASSWORD,
    account,
    caller,
    client_of,
    refusal,
    token,
)
from tests.unit.server.rig import rig, virtually

HASHED = "$argon2id$"
INVALID = (422, "validation_failed")
UNKNOWN = (404, "not_found")
IN_USE = (409, "in_use")


async def session(r, row) -> str:
    made = SessionRow(
        session_id=r.ids.new(),
        sha256=r.ids.new().rjust(64, "0"),
        account_id=row.account_id,
        created_at="2026-01-01T00:00:00.000000Z",
        expires_at="2026-01-01T08:00:00.000000Z",
        idle_until="2026-01-01T02:00:00.000000Z",
    )
    await r.store.sessions.put(made)
    return made.session_id


async def is_signed_out(r, session_id: str) -> bool:
    return (await r.store.sessions.get(session_id)).revoked_at is not None


@virtually
async def test_an_account_is_made_read_and_listed() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        admin = await caller(r, "root", "admin")
        made = await admin.add_user(
            NewAccount(
                subject="anna",
                email="anna@example.com",
                display_name="Anna",
                password=PASSWORD,
                roles=("developer", "viewer", "developer"),
            )
        )
        assert made.roles == ("developer", "viewer")
        assert (made.tenant_id, made.kind, made.active, made.has_password) == (
            "default", "user", True, True,
        )  # fmt: skip
        assert made.created_at.startswith("2026-01-01T00:00:0")
        assert await admin.user(made.account_id) == made
        assert [row.subject for row in (await admin.users()).items] == ["root", "anna"]
        kept = await r.store.accounts.get(made.account_id)
        assert kept.password_hash.startswith("$argon2id$")
        assert kept.password_hash not in msgspec.json.encode(made).decode()


@virtually
async def test_accounts_are_listed_in_pages() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        admin = await caller(r, "root", "admin")
        for n in range(4):
            await account(r, f"user-{n}", "viewer", active=n != 2)
        await account(r, "robot", "worker", kind="service")
        first = await admin.users(limit=2)
        second = await admin.users(limit=4, cursor=first.next_cursor)
        found = [row.subject for row in (*first.items, *second.items)]
        assert found == ["root", "user-0", "user-1", "user-2", "user-3", "robot"]
        assert second.next_cursor is None
        assert [row.subject for row in (await admin.users(kind="service")).items] == ["robot"]
        assert [row.subject for row in (await admin.users(active="false")).items] == ["user-2"]
        assert [row.subject for row in (await admin.users(q="ROO")).items] == ["root"]
        assert [row.subject for row in (await admin.users(role="worker")).items] == ["robot"]
        bad = first.next_cursor
        assert await refusal(admin.users(cursor=bad, q="x")) == (422, "bad_cursor")
        assert await refusal(admin.users(kind="cat")) == INVALID
        assert await refusal(admin.users(limit=201)) == INVALID
        assert await refusal(admin.users(active="maybe")) == INVALID
        assert await refusal(admin.users(name="x")) == (422, "unknown_parameter")


@virtually
async def test_what_cannot_be_an_account_is_refused() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        admin = await caller(r, "root", "admin")
        await admin.add_user(NewAccount(subject="anna"))
        assert await refusal(admin.add_user(NewAccount(subject="anna"))) == IN_USE
        for pointer, fields in (
            ("/subject", {"subject": "two words"}),
            ("/subject", {"subject": ""}),
            ("/subject", {"subject": "x" * 201}),
            ("/email", {"email": "nobody"}),
            ("/email", {"email": f"{'x' * 250}@example.com"}),
            ("/display_name", {"display_name": "x" * 201}),
            ("/password", {"password": "x" * 11}),
            ("/password", {"password": "x" * 257}),
            ("/password", {"password": PASSWORD, "kind": "service"}),
            ("/roles/1", {"roles": ("viewer", "nobody")}),
            ("/roles/0", {"roles": ("worker",)}),
        ):
            body = NewAccount(**({"subject": "bert"} | fields))
            assert await refusal(admin.add_user(body), pointer=pointer) == INVALID
        assert [row.subject for row in (await admin.users()).items] == ["root", "anna"]
        answer = await AsgiTransport(r.server.asgi).request(
            "POST", "/api/users", b'{"subject": "x", "rank": 1}',
            {"authorization": f"Bearer {await token(r, await account(r, 'second', 'admin'))}"},
        )  # fmt: skip
        assert (answer.status, msgspec.json.decode(answer.body)["code"]) == (422, "unknown_field")


@virtually
async def test_what_a_change_names_is_changed() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        admin = await caller(r, "root", "admin")
        row = await account(
            r, "anna", "viewer", email="a@example.com", display_name="A", password_hash=HASHED
        )
        open_one = await session(r, row)
        changed = await admin.change_user(row.account_id, AccountChange(email=None))
        assert (changed.email, changed.display_name, changed.has_password) == (None, "A", True)
        changed = await admin.change_user(
            row.account_id, AccountChange(display_name="Anna", email="b@example.com")
        )
        assert (changed.email, changed.display_name) == ("b@example.com", "Anna")
        assert not await is_signed_out(r, open_one)
        changed = await admin.change_user(row.account_id, AccountChange(password=PASSWORD))
        assert changed.has_password
        assert await is_signed_out(r, open_one)
        changed = await admin.change_user(row.account_id, AccountChange(password=None))
        assert not changed.has_password
        for body in (
            AccountChange(email="nobody"),
            AccountChange(display_name="x" * 201),
            AccountChange(password="short"),  # noqa: S106 - too short to be one
        ):
            assert await refusal(admin.change_user(row.account_id, body)) == INVALID
        robot = await account(r, "robot", "worker", kind="service")
        body = AccountChange(password=PASSWORD)
        assert await refusal(admin.change_user(robot.account_id, body)) == INVALID


@virtually
async def test_an_account_that_is_shut_out_is_signed_out() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        admin = await caller(r, "root", "admin")
        row = await account(r, "anna", "viewer")
        open_one, held = await session(r, row), client_of(r, await token(r, row))
        assert (await held.whoami()).account == "anna"
        assert not (await admin.change_user(row.account_id, AccountChange(active=False))).active
        assert await is_signed_out(r, open_one)
        await asyncio.sleep(5)
        assert await refusal(held.whoami()) == (401, "auth_required")
        await admin.change_user(row.account_id, AccountChange(active=True))
        assert (await held.whoami()).account == "anna"


@virtually
async def test_a_role_that_is_taken_away_is_gone_within_five_seconds() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        admin = await caller(r, "root", "admin")
        row = await account(r, "anna", "developer", "viewer")
        held, open_one = client_of(r, await token(r, row)), await session(r, row)
        assert (await held.whoami()).roles == ("developer", "viewer")
        more = await admin.give_roles(row.account_id, ("viewer", "developer", "operator"))
        assert more.roles == ("viewer", "developer", "operator")
        assert not await is_signed_out(r, open_one)
        assert (await admin.give_roles(row.account_id, ("viewer",))).roles == ("viewer",)
        assert await is_signed_out(r, open_one)
        await asyncio.sleep(5)
        assert (await held.whoami()).roles == ("viewer",)


@virtually
async def test_roles_that_are_not_there_or_not_fitting_are_refused() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        admin = await caller(r, "root", "admin")
        row = await account(r, "anna", "viewer")
        robot = await account(r, "robot", kind="service")
        give = admin.give_roles
        for roles in (("nobody",), ("viewer", "gateway")):
            assert await refusal(give(row.account_id, roles)) == INVALID
        await admin.add_role(NewRole(name="clerk"))
        assert (await give(row.account_id, ("clerk",))).roles == ("clerk",)
        assert (await give(row.account_id, ())).roles == ()
        assert (await give(robot.account_id, ("worker", "viewer"))).roles == ("worker", "viewer")


@virtually
async def test_the_last_active_admin_stays() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        first = await account(r, "root", "admin")
        await account(r, "gone", "admin", active=False)
        await account(r, "elsewhere", "admin", tenant_id="acme")
        admin = client_of(r, await token(r, first))
        root = first.account_id
        for asked in (
            admin.remove_user(root),
            admin.change_user(root, AccountChange(active=False)),
            admin.give_roles(root, ("viewer",)),
        ):
            assert await refusal(asked) == IN_USE
        assert (await admin.give_roles(root, ("viewer", "admin"))).roles == ("viewer", "admin")
        second = await account(r, "second", "admin")
        other = client_of(r, await token(r, second))
        found = await asyncio.gather(
            admin.give_roles(second.account_id, ()),
            other.give_roles(root, ()),
            return_exceptions=True,
        )
        assert sum(isinstance(one, Exception) for one in found) == 1
        assert len(await r.store.accounts.admins("default")) == 1


@virtually
async def test_an_account_is_forgotten_with_its_tokens() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        admin = await caller(r, "root", "admin")
        row = await account(r, "anna", "viewer")
        held = client_of(r, await token(r, row))
        await admin.remove_user(row.account_id)
        assert await refusal(admin.user(row.account_id)) == UNKNOWN
        assert await refusal(admin.remove_user(row.account_id)) == UNKNOWN
        assert await refusal(held.whoami()) == (401, "auth_required")


@virtually
async def test_another_tenant_is_not_there() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        admin = await caller(r, "root", "admin", tenant_id="acme")
        row = await account(r, "anna", "viewer")
        assert [one.tenant_id for one in (await admin.users()).items] == ["acme"]
        for asked in (
            admin.user(row.account_id),
            admin.change_user(row.account_id, AccountChange(active=False)),
            admin.give_roles(row.account_id, ("admin",)),
            admin.remove_user(row.account_id),
            admin.tokens(account_id=row.account_id),
            admin.add_token(NewToken(name="x", account_id=row.account_id)),
            admin.sessions(row.account_id),
        ):
            assert await refusal(asked) == UNKNOWN
        made = await admin.add_user(NewAccount(subject="anna"))
        assert made.tenant_id == "acme"
        assert await refusal(admin.user("abc")) == (422, "invalid_id")
        robot = NewAccount(subject="robot", kind="service", roles=("worker",))
        assert await refusal(admin.add_user(robot)) == (403, "forbidden")


@virtually
async def test_everybody_with_a_token_may_ask_who_it_is() -> None:
    async with rig(is_open=False, internal_tokens=("inside",)) as r:
        await (await caller(r, "root", "admin")).add_role(
            NewRole(name="clerk", permissions=("audit:read",))
        )
        anna = await caller(r, "anna", "viewer", "clerk", email="a@example.com", display_name="A")
        told = await anna.whoami()
        assert (told.account, told.email, told.kind, told.roles) == (
            "anna", "a@example.com", "user", ("viewer", "clerk"),
        )  # fmt: skip
        assert {"audit:read", "token:self", "catalog:read"} <= set(told.permissions)
        assert "user:admin" not in told.permissions
        nobody = await caller(r, "nobody")
        assert (await nobody.whoami()).permissions == ()
        robot = await caller(r, "robot", "worker", kind="service")
        assert (await robot.whoami()).kind == "service"
        inside = await client_of(r, "inside").whoami()
        assert (inside.account, inside.account_id) == ("system", None)
        assert await refusal(client_of(r, "wrong").whoami()) == (401, "auth_required")


@virtually
async def test_only_those_who_manage_accounts_reach_them() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        for role, kind in (("developer", "user"), ("viewer", "user"), ("worker", "service")):
            other = await caller(r, role, role, kind=kind)
            for asked in (
                other.users(),
                other.add_user(NewAccount(subject="x")),
                other.roles(),
                other.tenants(),
            ):
                assert await refusal(asked) == (403, "forbidden")
