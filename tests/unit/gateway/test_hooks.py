"""Sign-in by playbook: the wait for its answer, and what becomes of a bad one."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from noetl.api.catalog import Register
from noetl.api.identity import NewAccount, NewTenant
from noetl.bus import subjects
from noetl.gateway.person import Person
from noetl.settings import GatewaySettings
from tests.unit.gateway.rig import INTERNAL, gateway_rig
from tests.unit.gateway.streaming import events
from tests.unit.server.rig import HEAD, ONE_STEP, virtually

TOKEN = "hook-token-1"  # noqa: S105 - of a test
ENDS = "2027-01-01T00:00:00Z"
USER = {"user_id": "u-7", "email": "eve@example.com", "display_name": "Eve", "roles": ["developer"]}
GOOD = {"status": "authenticated", "session_token": TOKEN, "user": USER, "expires_at": ENDS}
VALID = {"valid": True, "user": USER, "expires_at": ENDS}
LOGIN = {"email": "eve@example.com", "password": "wrong horse battery"}


def told(answer):
    return json.loads(answer.body)


def code(answer):
    return answer.status, told(answer)["code"]


class Playbooks:
    """The server, and playbooks that answer hooks: each start is seen on its way there."""

    def __init__(self):
        self.seen = []
        """What hooks were given."""
        self.answers = []
        """What playbooks call back with, one after the other; none: nothing ever."""
        self.replies = asyncio.Queue()
        """What they are answered."""
        self.shown = None
        """The token that they show; none: their own."""
        self.rig = self.near = None
        self.is_away = False
        self._tasks = set()

    async def __call__(self, scope, receive, send):
        app = self.rig.server.server.asgi
        if self.is_away:
            raise ConnectionError
        if scope["path"] != "/api/execute":
            await app(scope, receive, send)
            return
        message = await receive()

        async def again():
            return message

        await app(scope, again, send)
        body = json.loads(message["body"])
        self.seen.append(
            {**body["workload"], **{key: body[key] for key in ("path", "execution_id")}}
        )
        if self.answers:
            task = asyncio.create_task(self._call_back(body["workload"], self.answers.pop(0)))
            self._tasks.add(task)

    async def _call_back(self, given, data):
        body = {"request_id": given["request_id"], "status": "success", "data": data}
        header = {"x-noetl-callback-token": self.shown or given["callback_token"]}
        caller = (self.near or self.rig).caller()
        await self.replies.put(await caller.post("/api/internal/callback", body, header))


@asynccontextmanager
async def hooked(*answers, **more):
    """A gateway whose sign-in is a playbook, with the playbooks in the catalog."""
    given = {
        "auth_mode": "playbook", "login_hook": "auth/in", "validate_hook": "auth/session",
        "access_hook": "auth/may", **more,
    }  # fmt: skip
    playbooks = Playbooks()
    async with gateway_rig(upstream_app=playbooks, **given) as rig:
        playbooks.rig, playbooks.answers = rig, list(answers)
        for path in ("auth/in", "auth/session", "auth/may"):
            await rig.playbook(ONE_STEP, path)
        yield rig, playbooks


async def login(rig, **more):
    return await rig.caller().post("/api/auth/login", {**LOGIN, **more})


@virtually
async def test_a_playbook_signs_somebody_in_and_knows_the_session():
    async with hooked(GOOD, VALID) as (rig, playbook):
        answer = await login(rig)
        shown = {"authorization": f"Bearer {TOKEN}"}
        who = [await rig.caller().get("/api/auth/whoami", shown) for _ in range(2)]
        replies = [await playbook.replies.get() for _ in range(2)]
    assert answer.status == 200
    assert told(answer)["session_token"] == TOKEN
    assert told(answer)["user"]["email"] == "eve@example.com"
    assert TOKEN in answer.headers["set-cookie"]
    assert [one.status for one in who] == [200, 200]
    assert (told(who[0])["account"], told(who[0])["roles"]) == ("eve@example.com", ["developer"])
    assert [one["path"] for one in playbook.seen] == ["auth/in", "auth/session"]
    given = playbook.seen[0]
    assert (given["email"], given["gateway_url"]) == (LOGIN["email"], rig.gate.settings.url)
    assert given["callback_subject"] == subjects.hook(given["request_id"])
    assert [told(one) for one in replies] == [{"delivered": True, "message": "delivered"}] * 2


@virtually
async def test_the_callback_may_reach_another_replica():
    async with hooked(GOOD) as (rig, playbook), rig.replica() as other:
        playbook.near = other
        answer = await login(rig)
    assert answer.status == 200


@virtually
async def test_a_playbook_may_answer_on_the_bus():
    async with hooked() as (rig, playbook):
        asking = asyncio.create_task(login(rig))
        while not playbook.seen:  # noqa: ASYNC110 - the time is virtual
            await asyncio.sleep(0.01)
        given = playbook.seen[0]
        for word in (
            b"no json",
            b"{}",
            json.dumps({"callback_token": "wrong", "data": GOOD}).encode(),
            json.dumps({"relay": "wrong", "data": GOOD}).encode(),
            json.dumps({"callback_token": given["callback_token"], "data": GOOD}).encode(),
        ):
            await rig.bus.bus.tell(given["callback_subject"], word)
        answer = await asking
    assert answer.status == 200


@virtually
async def test_a_playbook_that_is_late_is_cancelled_and_makes_503():
    async with hooked(hook_timeout_s=12.0) as (rig, playbook):
        began = rig.gate.clock.monotonic()
        answer = await login(rig)
        took = rig.gate.clock.monotonic() - began
        given = playbook.seen[0]
        run = await rig.system.execution(given["execution_id"])
        log = (await rig.system.events(given["execution_id"])).items
        pools = {one["context"]["pool"] for one in log if one["event_type"] == "command.issued"}
        late = await rig.caller().post(
            "/api/internal/callback",
            {"request_id": given["request_id"], "data": GOOD},
            {"x-noetl-callback-token": given["callback_token"]},
        )
    assert code(answer) == (503, "auth_backend_busy")
    assert 12 <= took < 14
    assert run.status == "CANCELLED"
    assert [run.workload[name] for name in ("password", "callback_token")] == ["***", "***"]
    assert run.workload["email"] == LOGIN["email"]
    assert pools == {"system"}
    assert told(late)["delivered"] is False
    assert rig.gate.metrics.login.value("auth_backend_busy") == 1
    assert rig.gate.metrics.auth_cancel_failed.value() == 0


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"status": "authenticated"},
        {**GOOD, "status": "perhaps"},
        {**GOOD, "session_token": ""},
        {**GOOD, "session_token": "a; Domain=evil"},
        {**GOOD, "session_token": 7},
        {**GOOD, "user": {"user_id": "u"}},
        {**GOOD, "user": {**USER, "user_id": ""}},
        {**GOOD, "user": {**USER, "roles": "admin"}},
        {**GOOD, "expires_at": "tomorrow"},
        {**GOOD, "expires_at": "2027-01-01T00:00:00"},
    ],
    ids=lambda data: json.dumps(data)[:60],
)
def test_an_answer_that_nobody_understands_makes_502(data):
    @virtually
    async def story():
        async with hooked(data) as (rig, _):
            answer = await login(rig)
        assert code(answer) == (502, "auth_hook_invalid")
        assert "set-cookie" not in answer.headers

    story()


@virtually
async def test_a_playbook_that_cannot_be_asked_makes_503():
    async with hooked(login_hook="no/such") as (rig, _):
        missing = await login(rig)
    async with hooked() as (rig, _):
        rig.bus.requests.close()
        without_bucket = await login(rig)
    async with hooked() as (rig, playbook):
        playbook.is_away = True
        without_server = await login(rig)
    found = [code(one) for one in (missing, without_bucket, without_server)]
    assert found == [(503, "auth_backend_busy")] * 3


@virtually
async def test_a_run_that_cannot_be_cancelled_is_counted():
    async with hooked() as (rig, playbook):
        asking = asyncio.create_task(login(rig))
        await asyncio.sleep(1)
        playbook.is_away = True
        answer = await asking
    assert code(answer) == (503, "auth_backend_busy")
    assert rig.gate.metrics.auth_cancel_failed.value() == 1


@virtually
async def test_a_callback_without_a_token_or_for_nobody_wakes_nobody():
    async with hooked(hook_timeout_s=2.0) as (rig, playbook):
        asking = asyncio.create_task(login(rig))
        await asyncio.sleep(1)
        body = {"request_id": playbook.seen[0]["request_id"], "data": GOOD}
        bare = await rig.caller().post("/api/internal/callback", body)
        ours = await rig.caller(authorization=f"Bearer {INTERNAL}").post(
            "/api/internal/callback", body
        )
        answer = await asking
    assert code(bare) == (401, "callback_token_missing")
    assert told(ours)["delivered"] is True
    assert answer.status == 200


@virtually
async def test_a_playbook_that_says_no_makes_401():
    async with hooked({"status": "rejected"}, {"valid": False}) as (rig, _):
        answer = await login(rig)
        who = await rig.caller().get("/api/auth/whoami", {"authorization": "Bearer other"})
    assert code(answer) == (401, "bad_credentials")
    assert code(who) == (401, "invalid_session")


@virtually
async def test_a_session_that_no_playbook_can_judge_makes_503_and_never_401():
    async with hooked() as (rig, _):
        who = await rig.caller().get("/api/auth/whoami", {"authorization": "Bearer other"})
    assert code(who) == (503, "auth_backend_busy")


@pytest.mark.parametrize(
    ("data", "allowed"),
    [
        ({"allowed": True}, True),
        ({"allow": True}, True),
        ({"allowed": False}, False),
        ({"allowed": "true"}, False),
        ({"allowed": 1}, False),
        ({}, False),
    ],
    ids=str,
)
def test_only_a_clear_yes_allows(data, allowed):
    @virtually
    async def story():
        async with hooked(VALID, data) as (rig, playbook):
            answer = await rig.caller().post(
                "/api/auth/check-access",
                {"session_token": TOKEN, "playbook_path": "a/b", "permission_type": "edit"},
            )
        assert told(answer)["allowed"] is allowed
        assert playbook.seen[1]["permission_type"] == "modify"

    story()


@virtually
async def test_a_forged_callback_wakes_nobody():
    async with hooked(GOOD, hook_timeout_s=2.0) as (rig, playbook):
        playbook.shown = "of somebody else"
        answer, wrong = await login(rig), await playbook.replies.get()
    assert code(answer) == (503, "auth_backend_busy")
    assert code(wrong) == (403, "callback_token_wrong")


@virtually
async def test_accounts_of_the_server_sign_in_when_the_playbook_is_broken():
    async with hooked() as (rig, _):
        await rig.account("ann", "developer")
        body = {"email": "ann@example.com", "password": "correct horse battery", "local": True}
        answer = await rig.caller().post("/api/auth/login", body)
        shown = {"authorization": f"Bearer {told(answer)['session_token']}"}
        who = await rig.caller().get("/api/auth/whoami", shown)
    assert (answer.status, told(who)["account"]) == (200, "ann")


@virtually
async def test_whom_a_playbook_knows_gets_no_ticket_for_the_account_that_has_his_id():
    async with hooked() as (rig, playbook):
        root = await rig.account("root", "admin")
        user = {**USER, "user_id": root, "roles": ["admin"], "tenant": "acme"}
        playbook.answers.append({**VALID, "user": user})
        shown = {"authorization": f"Bearer {TOKEN}"}
        for purpose, status in (("ws", 200), ("login", 403)):
            answer = await rig.caller().post("/api/auth/ticket", {"purpose": purpose}, shown)
            assert answer.status == status, answer.body


@virtually
async def test_a_tenants_own_playbook_comes_first():
    async with hooked(GOOD, login_hook="system/auth") as (rig, playbook):
        for path in ("default/system/auth", "system/auth"):
            await rig.playbook(ONE_STEP, path)
        answer = await login(rig)
        run = await rig.system.execution(playbook.seen[0]["execution_id"])
    assert answer.status == 200
    assert run.path == "default/system/auth"


@virtually
async def test_a_playbook_that_is_only_called_like_a_tenants_own_is_not_run():
    async with hooked(*[GOOD] * 4, login_hook="system/auth") as (rig, playbook):
        await rig.playbook(ONE_STEP, "system/auth")
        eve = await rig.login("eve", "developer")
        for path in ("acme/system/auth", "nobody/system/auth"):
            text = HEAD.replace("demo/it", path) + ONE_STEP
            made = await rig.caller(eve).post("/noetl/catalog/register", {"content": text})
            assert made.status < 300, made.body
        await rig.admin.add_tenant(NewTenant(tenant_id="acme", admin=NewAccount(subject="boss")))
        answers = [await login(rig, tenant=tenant) for tenant in ("acme", "nobody")]
        ids = dict.fromkeys(one["execution_id"] for one in playbook.seen)  # both tries have one
        runs = [await rig.system.execution(one) for one in ids]
    assert [one.status for one in answers] == [200, 200]
    assert [run.path for run in runs] == ["system/auth", "system/auth"]


@virtually
async def test_a_tenants_own_playbook_runs_in_its_tenant():
    async with hooked(GOOD, login_hook="system/auth") as (rig, playbook):
        await rig.playbook(ONE_STEP, "system/auth")
        await rig.admin.add_tenant(NewTenant(tenant_id="acme", admin=NewAccount(subject="boss")))
        boss = Person(user_id="77", subject="boss", roles=("admin",), tenant="acme")
        text = HEAD.replace("demo/it", "acme/system/auth") + ONE_STEP
        await rig.gate.upstream.acting_for(boss).register(Register(content=text))
        answer = await login(rig, tenant="acme")
        run = await rig.gate.upstream.acting_for(boss).execution(playbook.seen[-1]["execution_id"])
    assert (answer.status, run.path) == (200, "acme/system/auth")


# ------------------------------------------------------------------------------ signing out

SHOWN = {"authorization": f"Bearer {TOKEN}"}


async def who(rig):
    answer = await rig.caller().get("/api/auth/whoami", SHOWN)
    return answer.status, told(answer).get("code")


async def logout(rig):
    return (await rig.caller().post("/api/auth/logout", None, SHOWN)).status


@virtually
async def test_a_session_of_a_playbook_ends_at_every_replica_though_the_playbook_knows_it():
    async with hooked(GOOD, *[VALID] * 9) as (rig, playbook):
        given = {"auth_mode": "playbook", "validate_hook": "auth/session"}
        async with rig.replica(upstream_app=playbook, **given) as other:
            await login(rig)
            assert [await who(one) for one in (rig, other)] == [(200, None)] * 2
            async with events(other.gateway.asgi, SHOWN) as stream:
                began = rig.gate.clock.monotonic()
                assert await logout(rig) == 204
                await stream.over()
                assert rig.gate.clock.monotonic() - began <= 2.0
                assert stream.seen[-1]["event"] == "session/closed"
            asked = len(playbook.seen)
            for seconds in (0, 2, 40):
                await asyncio.sleep(seconds)
                for one in (rig, other):
                    assert await who(one) == (401, "invalid_session")
            async with rig.replica(upstream_app=playbook, **given) as fresh:
                assert await who(fresh) == (401, "invalid_session")
                async with events(fresh.gateway.asgi, SHOWN) as refused:
                    assert refused.status == 401
            assert len(playbook.seen) == asked, "no playbook is asked about it any more"
            assert await logout(other) == 204
            assert await rig.bus.sessions.names("s") == []


@virtually
async def test_who_signs_in_again_may_be_given_the_same_token():
    async with hooked(GOOD, VALID, GOOD, VALID) as (rig, _):
        await login(rig)
        assert await who(rig) == (200, None)
        assert await logout(rig) == 204
        assert await who(rig) == (401, "invalid_session")
        await asyncio.sleep(1)
        assert (await login(rig)).status == 200
        assert await who(rig) == (200, None)


@virtually
async def test_an_end_that_cannot_be_written_down_is_not_answered():
    async with hooked(GOOD, VALID) as (rig, _):
        await login(rig)
        assert await who(rig) == (200, None)
        rig.bus.sessions.close()
        assert await logout(rig) == 503
    async with hooked(VALID) as (rig, playbook):
        rig.bus.sessions.close()
        assert await who(rig) == (503, "auth_unavailable")
        assert playbook.seen == [], "nobody can say whether it was ended"


@virtually
async def test_a_session_of_a_playbook_is_not_renewed_here():
    async with hooked(VALID) as (rig, _):
        answer = await rig.caller().post("/api/auth/refresh", None, SHOWN)
        assert code(answer) == (403, "forbidden")
        assert await who(rig) == (200, None)


def test_the_time_of_a_hook_is_that_of_the_settings():
    assert GatewaySettings().hook_timeout_s == 12.0
