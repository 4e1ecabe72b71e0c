"""Tokens: whose, how long, and what they carry."""

from __future__ import annotations

import asyncio

from noetl.api.identity import NewToken
from noetl.server.access.tokens import digest, is_token
from tests.unit.server.identity.people import account, caller, client_of, refusal, token
from tests.unit.server.rig import rig, virtually

INVALID = (422, "validation_failed")
UNKNOWN = (404, "not_found")
FORBIDDEN = (403, "forbidden")


@virtually
async def test_a_token_is_shown_once_and_kept_as_its_digest() -> None:
    async with rig(is_open=False) as r:
        anna = await caller(r, "anna", "developer", "viewer")
        made = await anna.add_token(NewToken(name="laptop"))
        assert is_token(made.token)
        assert (made.account, made.scopes, made.roles) == ("anna", (), ("developer", "viewer"))
        assert made.expires_at == "2026-04-01T00:00:00.000000Z"
        assert (await client_of(r, made.token).whoami()).account == "anna"
        listed = (await anna.tokens()).items
        assert [one.token_id for one in listed][-1] == made.token_id
        assert not hasattr(listed[-1], "token")
        assert (await r.store.tokens.get(made.token_id)).sha256 == digest(made.token)


@virtually
async def test_a_token_carries_only_its_scopes() -> None:
    async with rig(is_open=False) as r:
        anna = await caller(r, "anna", "developer", "viewer")
        narrow = await anna.add_token(NewToken(name="ci", scopes=("viewer", "viewer")))
        assert (narrow.scopes, narrow.roles) == (("viewer",), ("viewer",))
        held = client_of(r, narrow.token)
        assert (await held.whoami()).roles == ("viewer",)
        asked = anna.add_token(NewToken(name="x", scopes=("viewer", "admin")))
        assert await refusal(asked, pointer="/scopes/1") == INVALID


@virtually
async def test_a_narrow_token_makes_and_opens_no_wide_one() -> None:
    async with rig(is_open=False) as r:
        row = await account(r, "anna", "developer", "viewer")
        wide, narrow = (
            client_of(r, await token(r, row)),
            client_of(r, await token(r, row, "viewer")),
        )
        asked = narrow.add_token(NewToken(name="x", scopes=("developer",)))
        assert await refusal(asked, pointer="/scopes/0") == INVALID
        assert (await narrow.add_token(NewToken(name="x"))).roles == ("viewer",)
        made = await wide.add_token(NewToken(name="wide"))
        assert await refusal(narrow.rotate_token(made.token_id)) == FORBIDDEN
        await narrow.revoke_token(made.token_id)
        assert await refusal(wide.rotate_token(made.token_id)) == UNKNOWN


@virtually
async def test_tokens_of_others_need_an_admin() -> None:
    async with rig(is_open=False) as r:
        admin, anna = await caller(r, "root", "admin"), await caller(r, "anna", "viewer")
        bert = await account(r, "bert", "developer")
        for_bert = NewToken(name="x", account_id=bert.account_id)
        made = await admin.add_token(for_bert)
        assert (made.account, made.roles) == ("bert", ("developer",))
        for asked in (
            anna.tokens(account_id=bert.account_id),
            anna.add_token(for_bert),
            anna.revoke_token(made.token_id),
            anna.rotate_token(made.token_id),
        ):
            assert await refusal(asked) == FORBIDDEN
        assert [one.name for one in (await admin.tokens(account_id=bert.account_id)).items] == ["x"]
        again = await admin.rotate_token(made.token_id)
        assert again.token != made.token
        await admin.revoke_token(made.token_id)
        assert (await admin.tokens(account_id=bert.account_id)).items == ()
        shown = await admin.tokens(account_id=bert.account_id, include_revoked="true")
        assert shown.items[0].revoked_at is not None
        elsewhere = await caller(r, "boss", "admin", tenant_id="acme")
        assert await refusal(elsewhere.revoke_token(made.token_id)) == UNKNOWN
        for asked in (admin.revoke_token("1"), admin.rotate_token("1")):
            assert await refusal(asked) == UNKNOWN
        assert await refusal(admin.tokens(account_id="x")) == (422, "invalid_id")
        assert await refusal(admin.revoke_token("0x1")) == (422, "invalid_id")


@virtually
async def test_a_rotated_token_has_another_text_and_the_same_length_of_life() -> None:
    async with rig(is_open=False) as r:
        anna = await caller(r, "anna", "viewer")
        made = await anna.add_token(NewToken(name="x", expires_in_days=10))
        held = client_of(r, made.token)
        await held.whoami()
        await asyncio.sleep(10)
        again = await anna.rotate_token(made.token_id)
        assert (again.token_id, again.name) == (made.token_id, "x")
        assert again.expires_at == "2026-01-11T00:00:10.000000Z"
        assert await refusal(held.whoami()) == (401, "auth_required")
        assert (await client_of(r, again.token).whoami()).account == "anna"


@virtually
async def test_a_token_without_an_end_is_given_one_when_it_is_rotated() -> None:
    async with rig(is_open=False) as r:
        row = await account(r, "anna", "viewer")
        anna = client_of(r, await token(r, row))
        first = (await anna.tokens()).items[0]
        assert first.expires_at is None
        again = await anna.rotate_token(first.token_id)
        assert again.expires_at == "2026-04-01T00:00:00.000000Z"


@virtually
async def test_a_revoked_token_ends_within_five_seconds() -> None:
    async with rig(is_open=False) as r:
        anna = await caller(r, "anna", "viewer")
        made = await anna.add_token(NewToken(name="x"))
        held = client_of(r, made.token)
        await held.whoami()
        await anna.revoke_token(made.token_id)
        assert await refusal(anna.revoke_token(made.token_id)) == UNKNOWN
        await asyncio.sleep(5)
        assert await refusal(held.whoami()) == (401, "auth_required")


@virtually
async def test_a_token_expires() -> None:
    async with rig(is_open=False) as r:
        row = await account(r, "anna", "viewer")
        anna = client_of(r, await token(r, row))
        assert (await anna.add_token(NewToken(name="x", expires_in_days=1))).expires_at == (
            "2026-01-02T00:00:00.000000Z"
        )
        short = client_of(r, await token(r, row, expires_at="2026-01-01T00:01:00.000000Z"))
        await short.whoami()
        await asyncio.sleep(60)
        assert await refusal(short.whoami()) == (401, "token_expired")
        for days in (0, 366, -1):
            asked = anna.add_token(NewToken(name="x", expires_in_days=days))
            assert await refusal(asked, pointer="/expires_in_days") == INVALID


@virtually
async def test_a_workers_token_names_its_pool() -> None:
    async with rig(is_open=False) as r:
        admin = await caller(r, "root", "admin")
        robot = await account(r, "robot", "worker", "viewer", kind="service")
        of = {"name": "x", "account_id": robot.account_id}
        made = await admin.add_token(NewToken(**of, pool="gpu"))
        assert (made.pool, made.scopes) == ("gpu", ("worker", "viewer"))
        assert made.expires_at == "2027-01-01T00:00:00.000000Z"
        assert (await client_of(r, made.token).whoami()).pool == "gpu"
        assert (await admin.add_token(NewToken(**of, scopes=("viewer",)))).pool is None
        assert await refusal(admin.add_token(NewToken(**of)), pointer="/pool") == INVALID
        asked = admin.add_token(NewToken(**of, scopes=("viewer",), pool="gpu"))
        assert await refusal(asked, pointer="/pool") == INVALID
        asked = admin.add_token(NewToken(**of, pool="two words"))
        assert await refusal(asked, pointer="/pool") == (422, "pool_invalid")
        bare = await account(r, "bare", kind="service")
        asked = admin.add_token(NewToken(name="x", account_id=bare.account_id))
        assert await refusal(asked, pointer="/scopes") == INVALID


@virtually
async def test_an_account_has_fifty_tokens_at_most() -> None:
    async with rig(is_open=False) as r:
        anna = await caller(r, "anna", "viewer")
        for n in range(49):
            await anna.add_token(NewToken(name=f"token {n}"))
        asked = anna.add_token(NewToken(name="one more"))
        assert await refusal(asked) == (429, "quota_exceeded")
        first = await anna.tokens(limit=30)
        second = await anna.tokens(limit=30, cursor=first.next_cursor)
        assert [len(page.items) for page in (first, second)] == [30, 20]
        await anna.revoke_token(second.items[-1].token_id)
        await anna.add_token(NewToken(name="one more"))
        asked = anna.tokens(cursor=first.next_cursor, include_revoked="true")
        assert await refusal(asked) == (422, "bad_cursor")


@virtually
async def test_what_cannot_be_a_token_is_refused() -> None:
    async with rig(is_open=False) as r:
        anna = await caller(r, "anna", "viewer")
        for name in ("", "x" * 201):
            assert await refusal(anna.add_token(NewToken(name=name)), pointer="/name") == INVALID
        robot = await caller(r, "robot", "worker", kind="service")
        for asked in (robot.tokens(), robot.add_token(NewToken(name="x"))):
            assert await refusal(asked) == FORBIDDEN


@virtually
async def test_a_caller_without_an_account_names_one() -> None:
    async with rig() as r:
        assert await refusal(r.client.tokens()) == FORBIDDEN
        row = await account(r, "anna", "viewer")
        made = await r.client.add_token(NewToken(name="x", account_id=int(row.account_id)))
        assert made.account == "anna"


@virtually
async def test_the_use_of_a_token_is_noted() -> None:
    async with rig(is_open=False) as r:
        anna = await caller(r, "anna", "viewer")
        made = await anna.add_token(NewToken(name="x"))
        await client_of(r, made.token).whoami()
        await asyncio.sleep(0)
        shown = {one.name: one for one in (await anna.tokens()).items}
        assert shown["x"].last_used_at is not None
