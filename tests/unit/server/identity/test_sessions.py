"""Sessions: how they begin, what they open, and when they end."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import msgspec
import pytest

from noetl.api.http import AsgiTransport
from noetl.api.identity import (
    AccountChange,
    Identity,
    Login,
    NewRole,
    PathGrant,
    PlaybookAccess,
)
from noetl.server.access.tokens import digest, is_token, new_token
from noetl.server.identity.passwords import Passwords
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

BAD = (401, "bad_credentials")
INVALID = (422, "validation_failed")
FORBIDDEN = (403, "forbidden")
UNKNOWN = (404, "not_found")
HOUR = 3_600


@pytest.fixture(scope="module")
def hashed() -> str:
    return asyncio.run(Passwords(CHEAP).hashed(PASSWORD))


def identity(**fields) -> Identity:
    known = {"issuer": "https://id.example.com/", "subject": "auth0|12", "email_verified": True}
    return Identity(**(known | fields))


async def gateway(r):
    return await caller(r, "the gateway", "gateway", kind="service")


def test_a_name_and_a_password_begin_a_session(hashed) -> None:
    @virtually
    async def test() -> None:
        async with rig(is_open=False, password_kib=CHEAP) as r:
            door = await gateway(r)
            anna = await account(
                r, "anna", "developer", email="Anna@example.com", password_hash=hashed
            )
            made = await door.login(
                Login(
                    username="anna",
                    password=PASSWORD,
                    session_duration_hours=2,
                    client_ip="10.0.0.1",
                    client_user_agent="x" * 500,
                )
            )
            assert made.session_token.startswith("nts_")
            assert is_token(made.session_token)
            assert (made.status, made.user.user_id, made.user.roles, made.user.tenant) == (
                "authenticated", anna.account_id, ("developer",), "default",
            )  # fmt: skip
            kept = await r.store.sessions.find(digest(made.session_token))
            assert kept.client == {"ip": "10.0.0.1", "user_agent": "x" * 400}
            assert kept.idle_until == kept.expires_at == made.expires_at
            by_mail = await door.login(Login(username="ANNA@example.com", password=PASSWORD))
            assert by_mail.user.user_id == anna.account_id
            assert by_mail.idle_until < by_mail.expires_at
            assert (await client_of(r, made.session_token).whoami()).account == "anna"

    test()


def test_whoever_is_wrong_is_told_the_same(hashed) -> None:
    @virtually
    async def test() -> None:
        async with rig(is_open=False, password_kib=CHEAP) as r:
            door = await gateway(r)
            await account(r, "anna", "viewer", password_hash=hashed)
            await account(r, "gone", "viewer", password_hash=hashed, active=False)
            await account(r, "oidc", "viewer")
            await account(r, "broken", "viewer", password_hash="no hash")  # noqa: S106 - none
            for n in (1, 2):
                await account(r, f"twin-{n}", email="twin@example.com", password_hash=hashed)
            answers = set()
            for name, password, tenant in (
                ("anna", "wrong", "default"),
                ("anna", PASSWORD, "acme"),
                ("anna", PASSWORD * 20, "default"),
                ("nobody", PASSWORD, "default"),
                ("gone", PASSWORD, "default"),
                ("oidc", PASSWORD, "default"),
                ("broken", PASSWORD, "default"),
                ("twin@example.com", PASSWORD, "default"),
                ("", PASSWORD, "default"),
                ("x" * 201, PASSWORD, "default"),
            ):
                body = Login(username=name, password=password, tenant=tenant)
                assert await refusal(door.login(body)) == BAD
                answer = await AsgiTransport(r.server.asgi).request(
                    "POST", "/api/auth/login", msgspec.json.encode(body),
                    {"authorization": f"Bearer {await token(r, await account(r, r.ids.new(), 'gateway', kind='service'))}"},  # noqa: E501 - one of many
                )  # fmt: skip
                assert answer.status == HTTPStatus.UNAUTHORIZED
                answers.add(msgspec.json.decode(answer.body)["detail"])
            assert len(answers) == 1

    test()


def test_ten_failures_lock_an_account_for_a_while(hashed) -> None:
    @virtually
    async def test() -> None:
        async with rig(is_open=False, password_kib=CHEAP) as r:
            door = await gateway(r)
            anna = await account(r, "anna", "viewer", email="a@b.c", password_hash=hashed)
            wrong = [Login(username=name, password="wrong") for name in ("anna", "a@b.c")]  # noqa: S106 - wrong
            right = Login(username="anna", password=PASSWORD)
            for n in range(9):
                assert await refusal(door.login(wrong[n % 2])) == BAD
            await door.login(right)
            for n in range(10):
                assert await refusal(door.login(wrong[n % 2])) == BAD
            assert await refusal(door.login(right)) == (429, "rate_limited")
            await asyncio.sleep(16 * 60)
            assert (await door.login(right)).user.user_id == anna.account_id
            unknown = Login(username="nobody", password="wrong")  # noqa: S106 - wrong
            for _ in range(10):
                assert await refusal(door.login(unknown)) == BAD
            assert await refusal(door.login(unknown)) == (429, "rate_limited")

    test()


@virtually
async def test_an_identity_is_given_an_account_at_its_first_use() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        door = await gateway(r)
        made = await door.login(
            Login(identity=identity(email="anna@example.com", display_name="A" * 300))
        )
        assert (made.user.subject, made.user.email, made.user.roles) == (
            "anna@example.com", "anna@example.com", ("viewer",),
        )  # fmt: skip
        assert len(made.user.display_name) == 200
        again = await door.login(Login(identity=identity(email="other@example.com")))
        assert again.user == made.user
        other = await door.login(
            Login(identity=identity(subject="13", roles=("developer",), email=None))
        )
        assert (other.user.subject, other.user.roles) == (
            "https://id.example.com/|13", ("developer",),
        )  # fmt: skip
        odd = await door.login(Login(identity=identity(subject="two words")))
        assert odd.user.subject.startswith("oidc|")


@virtually
async def test_only_a_verified_e_mail_finds_an_account() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        door = await gateway(r)
        anna = await account(r, "anna", "admin", email="Anna@example.com")
        unproved = identity(email="anna@example.com", email_verified=False, subject="eve")
        eve = await door.login(Login(identity=unproved))
        assert (eve.user.subject, eve.user.email, eve.user.roles) == (
            "https://id.example.com/|eve", None, ("viewer",),
        )  # fmt: skip
        proved = await door.login(Login(identity=identity(email="anna@example.com")))
        assert proved.user.user_id == anna.account_id
        await account(r, "twin", email="anna@example.com")
        asked = door.login(Login(identity=identity(email="anna@example.com", subject="14")))
        assert await refusal(asked) == FORBIDDEN
        await account(r, "taken@example.com")
        other = await door.login(Login(identity=identity(email="taken@example.com", subject="15")))
        assert other.user.subject == "https://id.example.com/|15"
        await account(r, "busy@example.com")
        await account(r, "https://id.example.com/|16")
        asked = door.login(Login(identity=identity(email="busy@example.com", subject="16")))
        assert await refusal(asked) == (409, "in_use")


@virtually
async def test_who_may_not_come_in_is_refused() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        door = await gateway(r)
        fresh = identity(auto_provision=False)
        assert await refusal(door.login(Login(identity=fresh))) == FORBIDDEN
        made = await door.login(Login(identity=identity()))
        await (await caller(r, "root", "admin")).change_user(
            made.user.user_id, AccountChange(active=False)
        )
        assert await refusal(door.login(Login(identity=identity()))) == FORBIDDEN
        for pointer, body in (
            ("", Login()),
            ("", Login(username="anna")),
            ("/identity", Login(identity=identity(), username="anna")),
            ("/identity/issuer", Login(identity=identity(issuer=""))),
            ("/identity/subject", Login(identity=identity(subject="x" * 256))),
            ("/tenant", Login(identity=identity(), tenant="acme")),
            ("/email", Login(identity=identity(subject="2", email="nobody"))),
            ("/roles/0", Login(identity=identity(subject="2", roles=("nobody",)))),
            ("/roles/0", Login(identity=identity(subject="2", roles=("system",)))),
            ("/session_duration_hours", Login(identity=identity(), session_duration_hours=0)),
            ("/session_duration_hours", Login(identity=identity(), session_duration_hours=25)),
        ):
            assert await refusal(door.login(body), pointer=pointer) == INVALID


@virtually
async def test_first_logins_at_once_make_one_account() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        door = await gateway(r)
        body = Login(identity=identity(email="anna@example.com"))
        made = await asyncio.gather(*(door.login(body) for _ in range(5)))
        assert len({one.user.user_id for one in made}) == 1
        assert len({one.session_token for one in made}) == 5


@virtually
async def test_a_session_ends_when_it_is_not_used_and_at_its_time() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        door = await gateway(r)
        made = await door.login(Login(identity=identity()))
        text = made.session_token
        for _ in range(7):
            told = await door.validate_session(text)
            assert (told.valid, told.session_id) == (True, made.session_id)
            await asyncio.sleep(HOUR)
        told = await door.validate_session(text)
        assert told.user == made.user
        assert told.expires_at == told.idle_until == made.expires_at
        await asyncio.sleep(HOUR)
        assert not (await door.validate_session(text)).valid
        other = (await door.login(Login(identity=identity()))).session_token
        await asyncio.sleep(2 * HOUR)
        assert not (await door.validate_session(other)).valid
        assert await refusal(client_of(r, other).whoami()) == (401, "session_expired")
        await door.login(Login(identity=identity()))
        assert await r.store.sessions.find(digest(text)) is None


@virtually
async def test_a_session_that_is_revoked_is_gone() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        door = await gateway(r)
        made = await door.login(Login(identity=identity()))
        text = made.session_token
        held = client_of(r, text)
        assert (await held.whoami()).tenant_id == "default"
        ended = await door.end_session(text)
        assert (ended.revoked, ended.session_id) == (True, made.session_id)
        assert not (await door.end_session(text)).revoked
        for wrong in ("", "nts_x", new_token("nts_"), new_token()):
            assert not (await door.end_session(wrong)).revoked
            assert not (await door.validate_session(wrong)).valid
        assert not (await door.validate_session(text)).valid
        await asyncio.sleep(5)
        assert await refusal(held.whoami()) == (401, "session_expired")
        answer = await AsgiTransport(r.server.asgi).request("POST", "/api/auth/logout", b"{}", {})
        assert answer.status == HTTPStatus.UNAUTHORIZED


@virtually
async def test_sessions_are_listed_and_ended_by_their_ids() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        door = await gateway(r)
        made = [
            await door.login(Login(identity=identity(), client_ip=f"10.0.0.{n}")) for n in (1, 2)
        ]
        anna = client_of(r, made[0].session_token)
        listed = (await anna.sessions()).items
        assert [one.client for one in listed] == [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]
        assert [one.session_id for one in listed] == [one.session_id for one in made]
        bert = await caller(r, "bert", "viewer")
        assert (await bert.sessions()).items == ()
        assert await refusal(bert.sessions(made[0].user.user_id)) == FORBIDDEN
        assert await refusal(bert.revoke_session(made[1].session_id)) == FORBIDDEN
        await anna.revoke_session(made[1].session_id)
        assert await refusal(anna.revoke_session(made[1].session_id)) == UNKNOWN
        assert [one.session_id for one in (await anna.sessions()).items] == [made[0].session_id]
        admin = await caller(r, "root", "admin")
        elsewhere = await caller(r, "boss", "admin", tenant_id="acme")
        assert await refusal(elsewhere.revoke_session(made[0].session_id)) == UNKNOWN
        assert len((await admin.sessions(made[0].user.user_id)).items) == 1
        await admin.revoke_session(made[0].session_id)
        assert (await admin.sessions(made[0].user.user_id)).items == ()
        assert await refusal(admin.revoke_session("x")) == (422, "invalid_id")


@virtually
async def test_a_session_opens_what_its_roles_and_grants_open() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        door, admin = await gateway(r), await caller(r, "root", "admin")
        allow = PathGrant(effect="allow", actions=("execute", "modify"), path="finance/*")
        deny = PathGrant(effect="deny", actions=("execute",), path="finance/pay")
        await admin.add_role(NewRole(name="clerk", grants=(allow, deny)))
        made = await door.login(Login(identity=identity(roles=("viewer", "clerk"))))

        async def may(action, path, text=made.session_token) -> bool:
            body = PlaybookAccess(session_token=text, playbook_path=path, action=action)
            told = await door.check_playbook_access(body)
            assert told.reason
            return told.allowed

        assert await may("execute", "finance/report")
        assert not await may("execute", "finance/pay")
        assert not await may("execute", "sales/report")
        assert await may("view", "sales/report")
        assert await may("modify", "finance/report")
        assert await may("edit", "finance/report")
        assert not await may("edit", "sales/report")
        assert not await may("view", "sales/report", "nts_wrong")
        body = b'{"session_token": "x", "playbook_path": "a", "action": "eat"}'
        robot = await account(r, "other", "gateway", kind="service")
        answer = await AsgiTransport(r.server.asgi).request(
            "POST", "/api/auth/check-playbook-access", body,
            {"authorization": f"Bearer {await token(r, robot)}"},
        )  # fmt: skip
        assert answer.status == HTTPStatus.UNPROCESSABLE_ENTITY


@virtually
async def test_only_the_gateway_signs_people_in() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        for role in ("admin", "developer", "viewer"):
            other = await caller(r, role, role)
            for asked in (
                other.login(Login(identity=identity())),
                other.validate_session("x"),
                other.end_session("x"),
                other.check_playbook_access(
                    PlaybookAccess(session_token="x", playbook_path="a", action="view")  # noqa: S106 - none
                ),
            ):
                assert await refusal(asked) == FORBIDDEN
