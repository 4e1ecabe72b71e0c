"""Sessions that go on with another token, and those who are told when one has ended."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import msgspec
import pytest

from noetl.api.http import AsgiTransport
from noetl.api.identity import AccountChange, Login, NewAccount, NewToken
from noetl.bus.base import BusGone
from noetl.server.access.tokens import digest
from noetl.server.identity.farewells import Farewells
from noetl.server.identity.passwords import Passwords
from noetl.store.identity import EndedSession
from tests.unit.server.identity.people import CHEAP, PASSWORD, account, caller, client_of, refusal
from tests.unit.server.rig import rig, virtually

INNER = "the-internal-token"
HOUR = 3_600
ENDED = (401, "session_expired")
INVALID = (422, "validation_failed")


def closed(**more):
    return rig(is_open=False, internal_tokens=(INNER,), password_kib=CHEAP, **more)


@asynccontextmanager
async def heard(r):
    """All that is told of sessions while a test goes on."""
    found: list[tuple[str, dict]] = []

    async def hear() -> None:
        async with r.bus.listen("noetl.gateway.revoked.*") as words:
            ready.set()
            async for word in words:
                found.append((word.subject, json.loads(word.payload)))  # noqa: PERF401 - it lasts

    ready = asyncio.Event()
    task = asyncio.create_task(hear())
    await ready.wait()
    try:
        yield found
    finally:
        task.cancel()


def told(*made) -> list:
    return [
        (
            f"noetl.gateway.revoked.{one.session_id}",
            {"session_id": one.session_id, "sha256": digest(one.session_token)},
        )
        for one in made
    ]


@virtually
async def test_a_session_is_given_another_token_and_the_one_before_lasts_a_minute() -> None:
    async with closed() as r:
        door = client_of(r, INNER)
        anna = await account(r, "anna", "viewer")
        made = await door.login(Login(account_id=anna.account_id, session_duration_hours=4))
        await asyncio.sleep(HOUR)
        fresh = await door.refresh_session(made.session_token)
        assert (fresh.session_id, fresh.user) == (made.session_id, made.user)
        assert fresh.session_token != made.session_token
        assert fresh.expires_at == "2026-01-01T05:00:00.000000Z"
        assert fresh.previous_until == "2026-01-01T01:01:00.000000Z"
        before = await door.validate_session(made.session_token)
        assert (before.valid, before.expires_at) == (True, fresh.previous_until)
        after = await door.validate_session(fresh.session_token)
        assert (after.session_id, after.expires_at) == (made.session_id, fresh.expires_at)
        assert (await client_of(r, made.session_token).whoami()).session_id == made.session_id
        assert await refusal(door.refresh_session(made.session_token)) == ENDED
        await asyncio.sleep(61)
        assert not (await door.validate_session(made.session_token)).valid
        assert await refusal(client_of(r, made.session_token).whoami()) == ENDED
        assert (await client_of(r, fresh.session_token).whoami()).account == "anna"
        assert not (await door.end_session(made.session_token)).revoked
        assert (await door.end_session(fresh.session_token)).revoked
        assert await refusal(door.refresh_session(fresh.session_token)) == ENDED
        for wrong in ("", "nts_x"):
            assert await refusal(door.refresh_session(wrong)) == ENDED


@virtually
async def test_a_look_at_a_session_by_its_id_is_no_use_of_it() -> None:
    async with closed() as r:
        door = client_of(r, INNER)
        anna = await account(r, "anna", "viewer")
        made = await door.login(Login(account_id=anna.account_id, session_duration_hours=8))
        fresh = await door.refresh_session(made.session_token)
        await asyncio.sleep(HOUR)
        looked = await door.look_at_session(made.session_id)
        assert (looked.valid, looked.session_id, looked.user) == (True, made.session_id, made.user)
        assert (looked.expires_at, looked.idle_until) == (fresh.expires_at, fresh.idle_until)
        used = await door.look_at_session(made.session_id, is_use=True)
        assert used.idle_until == "2026-01-01T03:00:00.000000Z"
        await asyncio.sleep(HOUR)
        again = await door.look_at_session(made.session_id)
        assert (again.valid, again.idle_until) == (True, used.idle_until)
        await asyncio.sleep(HOUR)
        assert not (await door.look_at_session(made.session_id)).valid
        assert not (await door.look_at_session("12345", is_use=True)).valid


@virtually
async def test_a_session_that_was_ended_does_not_last_by_its_id() -> None:
    async with closed() as r:
        door = client_of(r, INNER)
        anna = await account(r, "anna", "viewer")
        made = [await door.login(Login(account_id=anna.account_id)) for _ in range(2)]
        await door.end_session(made[0].session_token)
        assert not (await door.look_at_session(made[0].session_id)).valid
        assert (await door.look_at_session(made[1].session_id)).valid


@virtually
async def test_no_session_lasts_more_than_a_day() -> None:
    async with closed() as r:
        door = client_of(r, INNER)
        anna = await account(r, "anna", "viewer")
        made = await door.login(Login(account_id=anna.account_id, session_duration_hours=8))
        text, ends = made.session_token, []
        for _ in range(22):
            await asyncio.sleep(HOUR)
            fresh = await door.refresh_session(text)
            text = fresh.session_token
            ends.append(fresh.expires_at)
        assert ends[0] == "2026-01-01T09:00:00.000000Z"
        assert ends[-1] == ends[-5] == "2026-01-02T00:00:00.000000Z"
        await asyncio.sleep(2 * HOUR)
        assert not (await door.validate_session(text)).valid


@virtually
async def test_gateways_are_told_of_every_end() -> None:
    async with closed() as r:
        door, admin = client_of(r, INNER), await caller(r, "root", "admin")
        anna = await admin.add_user(NewAccount(subject="anna", roles=("viewer", "developer")))

        async def session():
            return await door.login(Login(account_id=anna.account_id))

        async with heard(r) as found:

            async def since(*made) -> None:
                await asyncio.sleep(0)
                assert found == told(*made)
                found.clear()

            one, two = await session(), await session()
            await door.end_session(one.session_token)
            await since(one)
            await door.end_session(one.session_token)
            await admin.revoke_session(two.session_id)
            await since(two)
            one, two = await session(), await session()
            await admin.change_user(anna.account_id, AccountChange(display_name="Anna"))
            await since()
            await admin.change_user(anna.account_id, AccountChange(password=PASSWORD))
            await since(one, two)
            one = await session()
            await admin.give_roles(anna.account_id, ("viewer",))
            await since(one)
            one = await session()
            await admin.give_roles(anna.account_id, ("viewer", "operator"))
            await since(one)
            assert (await door.validate_session(one.session_token)).valid
            await admin.give_roles(anna.account_id, ("viewer", "operator"))
            await since()
            await admin.change_user(anna.account_id, AccountChange(active=False))
            await since(one)
            await admin.change_user(anna.account_id, AccountChange(active=True))
            one = await session()
            fresh = await door.refresh_session(one.session_token)
            await since()
            await admin.remove_user(anna.account_id)
            await since(fresh, one)


@virtually
async def test_gateways_are_told_of_tokens_too() -> None:
    async with closed() as r:
        anna = await caller(r, "anna", "viewer")
        made = await anna.add_token(NewToken(name="x"))
        async with heard(r) as found:
            again = await anna.rotate_token(made.token_id)
            await anna.revoke_token(made.token_id)
            await asyncio.sleep(0)
            name = f"token-{made.token_id}"
            assert found == [
                (f"noetl.gateway.revoked.{name}", {"session_id": name, "sha256": digest(text)})
                for text in (made.token, again.token)
            ]


@pytest.mark.parametrize("fault", ["gone", "silent"])
def test_a_bus_that_is_away_is_no_error(fault, caplog) -> None:
    class Away:
        async def tell(self, subject: str, payload: bytes) -> None:
            del subject, payload
            if fault == "gone":
                raise BusGone("away")
            await asyncio.sleep(HOUR)

    @virtually
    async def test() -> None:
        ended = EndedSession(session_id="7", digests=("a" * 64, "b" * 64))
        await Farewells(Away()).tell([ended])

    test()
    (line,) = caplog.records
    assert (line.getMessage(), line.sessions) == (
        "gateways were not told that sessions have ended", 2,
    )  # fmt: skip
    assert "a" * 64 not in str(vars(line))


@virtually
async def test_who_has_shown_a_ticket_signs_in_by_his_account() -> None:
    async with closed() as r:
        door = client_of(r, INNER)
        anna = await account(r, "anna", "viewer", tenant_id="acme")
        made = await door.login(Login(account_id=anna.account_id))
        assert (made.user.subject, made.user.tenant) == ("anna", "acme")
        gone = await account(r, "gone", "viewer", active=False)
        robot = await account(r, "robot", "worker", kind="service")
        for row in (gone, robot):
            asked = door.login(Login(account_id=row.account_id))
            assert await refusal(asked) == (403, "forbidden")
        assert await refusal(door.login(Login(account_id="12"))) == (404, "not_found")
        assert await refusal(door.login(Login(account_id="x"))) == (422, "invalid_id")
        for pointer, body in (
            ("/account_id", Login(account_id=anna.account_id, password=PASSWORD)),
            ("/email", Login(username="anna", email="a@b.c", password=PASSWORD)),
        ):
            assert await refusal(door.login(body), pointer=pointer) == INVALID
        admin = await caller(r, "root", "admin")
        asked = admin.login(Login(account_id=anna.account_id))
        assert await refusal(asked) == (403, "forbidden")


@virtually
async def test_a_person_signs_in_by_e_mail_and_the_audit_knows_from_where() -> None:
    async with closed() as r:
        hashed = await Passwords(CHEAP).hashed(PASSWORD)
        await account(r, "anna", "viewer", email="anna@example.com", password_hash=hashed)
        door = client_of(r, INNER)
        right = Login(email="anna@example.com", password=PASSWORD, client_ip="203.0.113.7")
        made = await door.login(right)
        for _ in range(10):
            await refusal(door.login(msgspec.structs.replace(right, password="wrong")))  # noqa: S106 - wrong
        assert await refusal(door.login(right)) == (429, "rate_limited")
        await door.end_session(made.session_token, client_ip="203.0.113.8")
        await r.plane.audits.settle()
        kept = {
            (row.action, row.actor, row.resource, row.outcome, row.source_ip)
            for row in await r.store.audit.read()
        }
        assert kept == {
            ("auth.login.succeeded", "anna", "anna", "ok", "203.0.113.7"),
            ("auth.login.failed", "system", "anna", "bad_credentials", "203.0.113.7"),
            ("auth.login.locked", "system", "anna", "rate_limited", "203.0.113.7"),
            ("auth.logout", "anna", made.session_id, "ok", "203.0.113.8"),
        }  # fmt: skip


@virtually
async def test_a_token_is_told_with_its_account() -> None:
    async with closed() as r:
        anna = await account(r, "anna", "viewer", "developer", email="a@b.c")
        door, own = client_of(r, INNER), await caller(r, "root", "admin")
        made = await own.add_token(
            NewToken(name="x", account_id=anna.account_id, scopes=("viewer",))
        )
        found = await door.validate_session(made.token)
        assert (found.valid, found.session_id, found.expires_at) == (
            True, f"token-{made.token_id}", made.expires_at,
        )  # fmt: skip
        assert (found.user.subject, found.user.email, found.user.roles) == (
            "anna", "a@b.c", ("viewer",),
        )  # fmt: skip
        who = await client_of(r, made.token).whoami()
        assert (who.token_id, who.session_id, who.expires_at) == (
            made.token_id, None, made.expires_at,
        )  # fmt: skip
        assert not (await door.end_session(made.token)).revoked
        await own.revoke_token(made.token_id)
        assert not (await door.validate_session(made.token)).valid


@virtually
async def test_only_gateways_refresh() -> None:
    async with closed() as r:
        admin = await caller(r, "root", "admin")
        assert await refusal(admin.refresh_session("x")) == (403, "forbidden")
        answer = await AsgiTransport(r.server.asgi).request(
            "POST", "/api/auth/session/refresh", b'{"session_token": "x"}', {}
        )
        assert answer.status == 401
