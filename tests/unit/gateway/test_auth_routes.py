"""Signing in and out at the gateway, in front of a real server."""

from __future__ import annotations

import asyncio
import json
import logging
from urllib.parse import parse_qs, urlsplit

import pytest

from noetl.api.http import AsgiTransport
from noetl.api.identity import NewRole, NewToken, PathGrant
from noetl.settings.gateway import SignInProvider
from tests.fakes.issuer import CLIENT, SECRET, Issuer
from tests.unit.gateway.desk import through
from tests.unit.gateway.rig import INTERNAL, PASSWORD, gateway_rig
from tests.unit.gateway.streaming import events
from tests.unit.server.rig import ONE_STEP, virtually

ISSUER = "https://id.example.org"
OWN = "http://127.0.0.1:8090"
BACK = "/api/auth/oidc/corp/callback"


def told(answer):
    return json.loads(answer.body)


def code(answer):
    """The status and the code of a refusal, which is always a problem."""
    assert answer.headers["content-type"] == "application/problem+json", answer.body
    return answer.status, told(answer)["code"]


async def signed_in(rig, name="ann", roles=("developer",), **more):
    """An account, and the answer to its sign-in at the gateway."""
    await rig.account(name, *roles)
    return await login(rig, name, **more)


async def login(rig, name="ann", password=PASSWORD, **more):
    body = {"email": f"{name}@example.com", "password": password, **more}
    return await rig.caller().post("/api/auth/login", body)


def bearer(answer):
    return {"authorization": f"Bearer {told(answer)['session_token']}"}


def cookie_of(answer):
    name, _, text = answer.headers["set-cookie"].partition(";")[0].partition("=")
    return name, text


# ----------------------------------------------------------------------------- signing in


@virtually
async def test_a_local_account_signs_in_and_is_told_so():
    async with gateway_rig() as rig:
        answer = await signed_in(rig)
        body = told(answer)
        who = await rig.caller().get("/api/auth/whoami", bearer(answer))
    assert answer.status == 200
    assert set(body) == {"status", "session_token", "user", "expires_at", "message"}
    assert body["status"] == "authenticated"
    assert body["session_token"].startswith("nts_")
    assert set(body["user"]) == {"user_id", "email", "display_name", "roles"}
    assert body["user"]["roles"] == ["developer"]
    assert cookie_of(answer) == ("__Host-noetl_session", body["session_token"])
    assert "HttpOnly; SameSite=Lax; Secure" in answer.headers["set-cookie"]
    assert answer.headers["cache-control"] == "no-store"
    assert told(who)["account"] == "ann"
    assert rig.gate.metrics.login.value("ok") == 1


@virtually
async def test_on_this_machine_the_cookie_has_its_plain_name():
    async with gateway_rig() as rig:
        await rig.account("ann", "developer")
        answer = await rig.caller(host="localhost:8090").post(
            "/api/auth/login", {"email": "ann@example.com", "password": PASSWORD}
        )
        name, text = cookie_of(answer)
        who = await rig.caller(host="localhost:8090", cookie=f"{name}={text}").get(
            "/api/auth/whoami"
        )
    assert name == "noetl_session"
    assert "Secure" not in answer.headers["set-cookie"]
    assert who.status == 200


@virtually
async def test_an_unknown_user_is_answered_as_a_wrong_password_is():
    async with gateway_rig() as rig:
        await rig.account("ann", "developer")
        wrong = await login(rig, "ann", "wrong horse battery")
        unknown = await login(rig, "nobody", "wrong horse battery")
    assert code(wrong) == code(unknown) == (401, "bad_credentials")
    assert [told(one)["detail"] for one in (wrong, unknown)] == [told(wrong)["detail"]] * 2
    assert "set-cookie" not in wrong.headers


@virtually
async def test_11_wrong_passwords_over_two_replicas_lock_the_account():
    async with gateway_rig() as rig, rig.replica() as other:
        await rig.account("ann", "developer")
        answers = []
        for number in range(11):
            answers.append(await login((rig, other)[number % 2], "ann", "wrong horse battery"))
            await asyncio.sleep(13)  # as often as a replica lets somebody try
        right = [await login(one) for one in (rig, other)]
        await asyncio.sleep(16 * 60)
        later = await login(rig)
    assert [one.status for one in answers[:10]] == [401] * 10
    assert code(answers[10]) == (429, "rate_limited")
    assert [code(one) for one in right] == [(429, "rate_limited")] * 2
    assert later.status == 200


@virtually
async def test_sign_ins_are_limited_by_account_and_by_address():
    async with gateway_rig() as rig:
        by_account = [await login(rig, "ann", "wrong horse battery") for _ in range(6)]
        await asyncio.sleep(60)
        by_address = [await login(rig, f"n{number}", "wrong horse") for number in range(21)]
    assert [one.status for one in by_account] == [*[401] * 5, 429]
    assert int(by_account[-1].headers["retry-after"]) >= 1
    assert [one.status for one in by_address] == [*[401] * 20, 429]
    assert rig.gate.metrics.rate_limited.value("login_address") == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"email": "a@b"}, 422),
        ({"password": "x"}, 422),
        ({"email": "a@b", "password": "x", "session_duration_hours": 25}, 422),
        ({"email": "a@b", "password": "x", "auth0_token": "y"}, 422),
        ({"email": "a@b", "password": "x", "admin": True}, 422),
        ([], 422),
        (b"{", 400),
    ],
    ids=str,
)
async def test_a_wish_that_cannot_be_meant_is_refused(body, status):
    async with gateway_rig() as rig:
        answer = await rig.caller().post("/api/auth/login", body)
    assert answer.status == status


@virtually
async def test_where_somebody_signs_in_from_is_what_the_gateway_sees():
    forged = {"client_ip": "6.6.6.6", "client_user_agent": "Evil"}
    async with gateway_rig() as rig:
        await rig.account("ann", "developer")
        first = await rig.caller(x_forwarded_for="6.6.6.6", user_agent="Nice").post(
            "/api/auth/login", {"email": "ann@example.com", "password": PASSWORD, **forged}
        )
        await rig.caller(authorization=f"Bearer {INTERNAL}").post(
            "/api/auth/login", {"email": "ann@example.com", "password": PASSWORD, **forged}
        )
        listed = told(await rig.caller().get("/api/auth/sessions", bearer(first)))["items"]
    found = sorted((one["client"]["ip"], one["client"]["user_agent"]) for one in listed)
    assert found == [("127.0.0.1", "Nice"), ("6.6.6.6", "Evil")]


# ------------------------------------------------------------------------------- identity


@virtually
async def test_a_forged_identity_or_user_id_or_address_has_no_effect():
    forged = {
        "x-noetl-identity": "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.e30.x",
        "x-user-id": "1",
        "x-user-email": "root@example.com",
        "x-session-id": "1",
        "x-forwarded-for": "6.6.6.6",
        "forwarded": "for=6.6.6.6",
    }
    async with gateway_rig() as rig:
        answer = await signed_in(rig, roles=("viewer",))
        who = await rig.caller().get("/api/auth/whoami", {**forged, **bearer(answer)})
        users = await rig.caller().get("/api/users", {**forged, **bearer(answer)})
        nobody = await rig.caller().get("/api/auth/whoami", forged)
        through_proxy = await rig.caller().get("/noetl/auth/whoami", {**forged, **bearer(answer)})
    for one in (who, through_proxy):
        assert (told(one)["account"], told(one)["roles"]) == ("ann", ["viewer"])
    assert code(users) == (403, "forbidden")
    assert code(nobody) == (401, "missing_token")


@virtually
async def test_an_expired_session_still_in_kv_gets_401():
    async with gateway_rig() as rig:
        answer = await signed_in(rig, session_duration_hours=1)
        assert (await rig.caller().get("/api/auth/whoami", bearer(answer))).status == 200
        [key] = await rig.bus.sessions.names("s")
        kept = await rig.bus.sessions.get(key)
        await asyncio.sleep(3601)
        await rig.bus.sessions.put(key, kept.value, 600)
        late = await rig.caller().get("/api/auth/whoami", bearer(answer))
    assert code(late) == (401, "invalid_session")


@virtually
async def test_a_kv_outage_with_a_valid_session_gets_200_through_the_server():
    async with gateway_rig() as rig:
        answer = await signed_in(rig)
        rig.bus.sessions.close()
        found = await rig.caller().get("/api/auth/whoami", bearer(answer))
    assert found.status == 200
    assert rig.gate.metrics.session_cache_failed.value("get") == 1


@virtually
async def test_a_server_that_is_away_makes_503_and_never_401():
    gone = []

    async def app(scope, receive, send):
        if gone:
            raise ConnectionError
        await gone_or(scope, receive, send)

    async with gateway_rig(upstream_app=app) as rig:
        gone_or = rig.server.server.asgi
        answer = await signed_in(rig)
        gone.append(True)
        asked = [
            await rig.caller().get("/api/auth/sessions", bearer(answer)),
            await rig.caller().post("/api/auth/validate", told_token(answer)),
            await rig.caller().post(
                "/api/auth/check-access",
                {**told_token(answer), "playbook_path": "a/b", "permission_type": "view"},
            ),
        ]
        asked.append(await login(rig))
    assert [code(one) for one in asked] == [(503, "auth_unavailable")] * 4


def told_token(answer):
    return {"session_token": told(answer)["session_token"]}


@virtually
async def test_a_cookie_authenticated_post_without_origin_or_with_a_foreign_one_gets_403():
    async with gateway_rig(cors_origins=("https://app.example.org",)) as rig:
        answer = await signed_in(rig)
        sent = {"cookie": "=".join(cookie_of(answer)), "host": "gate.example.org"}
        wish = {"purpose": "events"}

        async def asked(**more):
            return await rig.caller().post("/api/auth/ticket", wish, {**sent, **more})

        refused = [
            await asked(),
            await asked(origin="https://evil.example"),
            await asked(origin="https://app.example.org.evil.example"),
            await asked(origin="https://notapp.example.org"),
            await asked(origin="null"),
        ]
        taken = [await asked(origin=one) for one in (OWN, "https://app.example.org")]
        by_header = await rig.caller().post("/api/auth/ticket", wish, bearer(answer))
    assert [code(one) for one in refused] == [(403, "csrf_rejected")] * 5
    assert [one.status for one in (*taken, by_header)] == [200] * 3


# -------------------------------------------------------------------------------- sessions


@virtually
async def test_validate_tells_whether_a_session_lasts():
    async with gateway_rig() as rig:
        answer = await signed_in(rig)
        good = told(await rig.caller().post("/api/auth/validate", told_token(answer)))
        bad = await rig.caller().post("/api/auth/validate", {"session_token": "nts_x"})
    assert good["valid"] is True
    assert good["user"] == told(answer)["user"]
    assert good["expires_at"] == told(answer)["expires_at"]
    assert bad.status == 200
    assert told(bad)["valid"] is False


@virtually
async def test_check_access_asks_the_server_and_refuses_other_words():
    async with gateway_rig() as rig:
        answer = await signed_in(rig, roles=("viewer",))

        async def asked(word):
            body = {**told_token(answer), "playbook_path": "a/b", "permission_type": word}
            return await rig.caller().post("/api/auth/check-access", body)

        found = {word: await asked(word) for word in ("view", "execute", "modify", "edit", "own")}
        nobody = await rig.caller().post(
            "/api/auth/check-access",
            {"session_token": "nts_x", "playbook_path": "a/b", "permission_type": "view"},
        )
    allowed = {word: told(one).get("allowed") for word, one in found.items()}
    assert allowed == {"view": True, "execute": False, "modify": False, "edit": False, "own": None}
    assert found["own"].status == 422
    body = told(found["view"])
    assert set(body) == {"allowed", "user", "playbook_path", "permission_type", "message"}
    assert (told(nobody)["allowed"], told(nobody)["user"]) == (False, None)


@virtually
async def test_logout_on_one_replica_ends_the_session_and_its_streams_on_the_other_within_2_s():
    async with gateway_rig() as rig, rig.replica() as other:
        answer = await signed_in(rig)
        closed = asyncio.Queue()
        other.gate.sessions.on_revoked.append(closed.put)
        for one in (rig, other):
            assert (await one.caller().get("/api/auth/whoami", bearer(answer))).status == 200
        gone = await rig.caller().post("/api/auth/logout", None, bearer(answer))
        session_id = await asyncio.wait_for(closed.get(), 2)
        after = [await one.caller().get("/api/auth/whoami", bearer(answer)) for one in (rig, other)]
        again = await rig.caller().post("/api/auth/logout", None, bearer(answer))
        listed = await rig.again("ann")
        left = told(await rig.caller(listed).get("/api/auth/sessions"))["items"]
    assert gone.status == again.status == 204
    assert "Max-Age=0" in gone.headers["set-cookie"]
    assert [code(one) for one in after] == [(401, "invalid_session")] * 2
    assert [one["session_id"] for one in left] == [listed.session_id]
    assert session_id != listed.session_id


@virtually
async def test_logout_on_replica_a_closes_the_sessions_streams_on_replica_b_within_2_s():
    async with gateway_rig() as rig, rig.replica() as other:
        ann, bob = await rig.login("ann"), await rig.login("bob")
        async with (
            events(other.gateway.asgi, ann.headers) as hers,
            events(other.gateway.asgi, bob.headers) as his,
        ):
            began = rig.gate.clock.monotonic()
            await rig.caller(ann).post("/api/auth/logout")
            await hers.over()
            took = rig.gate.clock.monotonic() - began
            still_open = not his.is_over
        after = await other.caller(ann).get("/api/auth/whoami")
    assert took < 2
    assert still_open
    assert hers.bodies("session/closed")
    assert code(after) == (401, "invalid_session")


@virtually
async def test_an_admin_who_ends_a_session_ends_it_everywhere_at_once():
    async with gateway_rig() as rig:
        ann, root = await rig.login("ann"), await rig.login("root", "admin")
        assert (await rig.caller(ann).get("/api/auth/whoami")).status == 200
        ended = await rig.caller(root).ask("DELETE", f"/api/auth/sessions/{ann.session_id}")
        await asyncio.sleep(0.1)
        after = await rig.caller(ann).get("/api/auth/whoami")
    assert ended.status == 204
    assert code(after) == (401, "invalid_session")


@virtually
async def test_new_roles_are_known_at_once():
    async with gateway_rig() as rig:
        ann, root = await rig.login("ann", "viewer"), await rig.login("root", "admin")
        await rig.caller(ann).get("/api/auth/whoami")
        changed = await rig.caller(root).ask(
            "PUT", f"/api/users/{ann.user_id}/roles", {"roles": ["admin"]}
        )
        await asyncio.sleep(0.1)
        again = await rig.again("ann", ann.user_id)
        listed = await rig.caller(again).get("/api/users")
    assert (changed.status, listed.status) == (200, 200)


@virtually
async def test_refresh_gives_another_token_and_the_old_one_lasts_60_s():
    async with gateway_rig() as rig:
        answer = await signed_in(rig)
        await rig.caller().get("/api/auth/whoami", bearer(answer))
        fresh = await rig.caller().post("/api/auth/refresh", None, bearer(answer))
        at_once = await rig.caller().get("/api/auth/whoami", bearer(answer))
        await asyncio.sleep(61)
        late = await rig.caller().get("/api/auth/whoami", bearer(answer))
        new = await rig.caller().get("/api/auth/whoami", bearer(fresh))
    assert fresh.status == 200
    assert told(fresh)["session_token"] != told(answer)["session_token"]
    assert cookie_of(fresh)[1] == told(fresh)["session_token"]
    assert at_once.status == new.status == 200
    assert code(late) == (401, "invalid_session")


@virtually
async def test_tokens_of_the_api_open_the_gateway_and_are_no_sessions():
    async with gateway_rig() as rig:
        ann = await rig.login("ann")
        made = told(await rig.caller(ann).post("/api/tokens", {"name": "ci"}))
        shown = {"authorization": f"Bearer {made['token']}"}
        who = await rig.caller().get("/api/auth/whoami", shown)
        out = await rig.caller().post("/api/auth/logout", None, shown)
        fresh = await rig.caller().post("/api/auth/refresh", None, shown)
        gone = await rig.caller(ann).ask("DELETE", f"/api/tokens/{made['token_id']}")
        await asyncio.sleep(5.1)
        after = await rig.caller().get("/api/auth/whoami", shown)
    assert told(who)["account"] == "ann"
    assert [code(one) for one in (out, fresh)] == [(403, "forbidden")] * 2
    assert gone.status == 204
    assert code(after) == (401, "invalid_session")


# --------------------------------------------------------------------------------- tickets


@virtually
async def test_a_ticket_is_given_for_30_s():
    async with gateway_rig() as rig:
        ann = await rig.login("ann")
        answer = await rig.caller(ann).post("/api/auth/ticket", {"purpose": "ws"})
        wrong = await rig.caller(ann).post("/api/auth/ticket", {"purpose": "all"})
        login_one = await rig.caller(ann).post("/api/auth/ticket", {"purpose": "login"})
        nobody = await rig.caller().post("/api/auth/ticket", {"purpose": "ws"})
    assert told(answer)["expires_in"] == 30
    assert len(told(answer)["ticket"]) == 43
    assert wrong.status == 422
    assert code(login_one) == (403, "forbidden")
    assert code(nobody) == (401, "missing_token")


@virtually
async def test_a_ticket_opens_one_stream_within_30_s():
    async with gateway_rig() as rig:
        ann = await rig.login("ann")

        async def ticket(purpose="events"):
            answer = await rig.caller(ann).post("/api/auth/ticket", {"purpose": purpose})
            return told(answer)["ticket"]

        async def opened(text):
            async with events(rig.gateway.asgi, ticket=text) as stream:
                return stream.status, None if stream.status == 200 else stream.problem["code"]

        first, wrong, late = await ticket(), await ticket("ws"), await ticket()
        found = [await opened(first), await opened(first), await opened(wrong)]
        await asyncio.sleep(31)
        found.append(await opened(late))
    assert found == [(200, None), *[(401, "ticket_used")] * 3]


@virtually
async def test_a_session_in_the_query_of_a_stream_gets_401_and_works_with_the_switch():
    for is_on, found in ((False, (401, "query_token_disabled")), (True, (200, None))):
        async with gateway_rig(takes_query_token=is_on) as rig:
            ann = await rig.login("ann")
            async with events(rig.gateway.asgi, session_token=ann.token) as stream:
                problem = None if stream.status == 200 else stream.problem["code"]
                assert (stream.status, problem) == found
            assert ann.token.encode() not in stream.body
            assert ann.token.encode() not in rig.gate.metrics.render()


@virtually
async def test_an_admins_token_makes_a_link_that_signs_in_once():
    async with gateway_rig() as rig:
        root = await rig.login("root", "admin")
        made = await rig.gate.upstream.acting_for(await rig.gate.sessions.of(root.token)).add_token(
            NewToken(name="up")
        )
        shown = {"authorization": f"Bearer {made.token}"}
        ticket = told(await rig.caller().post("/api/auth/ticket", {"purpose": "login"}, shown))
        await asyncio.sleep(14 * 60)
        await rig.caller().ask("HEAD", f"/login?ticket={ticket['ticket']}")
        first = await rig.caller().get(f"/login?ticket={ticket['ticket']}")
        second = await rig.caller().get(f"/login?ticket={ticket['ticket']}")
        who = await rig.caller(cookie="=".join(cookie_of(first))).get("/api/auth/whoami")
        late = told(await rig.caller().post("/api/auth/ticket", {"purpose": "login"}, shown))
        await asyncio.sleep(15 * 60 + 1)
        too_late = await rig.caller().get(f"/login?ticket={late['ticket']}")
    assert ticket["expires_in"] == 900
    assert (first.status, first.headers["location"]) == (302, "/")
    assert told(who)["account"] == "root"
    assert code(second) == code(too_late) == (401, "ticket_used")


# ------------------------------------------------------------------------ users and roles


@virtually
async def test_users_and_roles_are_for_admins_as_the_server_decides():
    async with gateway_rig() as rig:
        root, ann = await rig.login("root", "admin"), await rig.login("ann", "developer")
        body = {"subject": "bob", "email": "bob@example.com", "password": PASSWORD}
        made = await rig.caller(root).post("/api/users", body)
        one = f"/api/users/{told(made)['account_id']}"
        changed = await rig.caller(root).ask("PATCH", one, {"display_name": "Bob"})
        listed = await rig.caller(root).get("/api/users?q=bob")
        roles = await rig.caller(root).get("/api/roles")
        refused = [
            await rig.caller(ann).get("/api/users"),
            await rig.caller(ann).post("/api/users", body),
            await rig.caller(ann).ask("DELETE", one),
            await rig.caller(ann).get("/api/roles"),
        ]
        gone = await rig.caller(root).ask("DELETE", one)
        last = await rig.caller(root).ask("DELETE", f"/api/users/{root.user_id}")
    assert (made.status, changed.status, gone.status) == (201, 200, 204)
    assert [one["display_name"] for one in told(listed)["items"]] == ["Bob"]
    assert "admin" in [one["name"] for one in told(roles)["items"]]
    assert [code(one) for one in refused] == [(403, "forbidden")] * 4
    assert code(last) == (409, "in_use")


@virtually
async def test_a_deny_grant_beats_another_roles_allow_through_rest():
    async with gateway_rig() as rig:
        deny = PathGrant(effect="deny", actions=("execute",), path="demo/*")
        await rig.admin.add_role(NewRole(name="kept_out", grants=(deny,)))
        await rig.playbook(ONE_STEP)
        ann, bob = (
            await rig.login("ann", "developer"),
            await rig.login("bob", "developer", "kept_out"),
        )
        body = {"path": "demo/it"}
        started = [await rig.caller(who).post("/noetl/execute", body) for who in (ann, bob)]
        asked = {"playbook_path": "demo/it", "permission_type": "execute"}
        checks = [
            told(
                await rig.caller().post(
                    "/api/auth/check-access", {"session_token": who.token, **asked}
                )
            )["allowed"]
            for who in (ann, bob)
        ]
    assert started[0].status in {200, 201, 202}
    assert code(started[1]) == (403, "forbidden")
    assert checks == [True, False]


# -------------------------------------------------------------------------------- issuers


class Abroad:
    """A gateway with a provider, and a browser."""

    def __init__(self, rig, issuer, fetch):
        self.rig = rig
        self.issuer = issuer
        self.fetch = fetch

    async def start(self, return_to="/", cookie=""):
        more = {"cookie": cookie} if cookie else {}
        return await self.rig.caller(**more).get(f"/api/auth/oidc/corp/start?return_to={return_to}")

    async def visit(self, answer):
        parts = urlsplit(answer.headers["location"])
        found = await AsgiTransport(self.issuer.app).request("GET", f"{parts.path}?{parts.query}")
        back = parse_qs(urlsplit(found.headers["location"]).query)
        return back["code"][0], back["state"][0]

    async def back(self, code_, state, cookie):
        return await self.rig.caller(cookie=cookie).get(f"{BACK}?code={code_}&state={state}")


def abroad(**provider):
    """Run a test with a gateway that has a provider."""

    def decorated(test):
        @virtually
        async def run():
            issuer = Issuer(ISSUER)
            fetch = through(issuer.app)
            one = SignInProvider(
                name="corp", issuer=ISSUER, client_id=CLIENT, audience=CLIENT,
                client_secret=SECRET, role_claim="groups", role_map={"engineers": "operator"},
                **provider,
            )  # fmt: skip
            async with gateway_rig(
                fetch=fetch, providers=(one,), public_url="https://gate.example.org"
            ) as rig:
                issuer.clock = rig.gate.clock
                await test(Abroad(rig, issuer, fetch))

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorated


@abroad()
async def test_an_id_token_of_a_configured_issuer_signs_in_and_makes_the_account(world):
    body = {"auth0_token": world.issuer.id_token(), "auth0_domain": "id.example.org",
            "auth0_refresh_token": "r"}  # fmt: skip
    answers = [await world.rig.caller().post("/api/auth/login", body) for _ in range(2)]
    users = [told(one)["user"] for one in answers]
    assert users[0] == users[1]
    assert (users[0]["email"], users[0]["roles"]) == ("ada@example.org", ["operator"])
    assert users[0]["display_name"] == "Ada Lovelace"


@abroad()
async def test_an_auth0_domain_of_an_unknown_host_is_401_and_no_outbound_connection(world):
    body = {"auth0_token": world.issuer.id_token(), "auth0_domain": "evil.example"}
    answer = await world.rig.caller().post("/api/auth/login", body)
    foreign = await world.rig.caller().post(
        "/api/auth/login", {"auth0_token": world.issuer.id_token(iss="https://evil.example")}
    )
    assert code(answer) == code(foreign) == (401, "issuer_not_allowed")
    assert world.fetch.asked == []
    assert world.rig.gate.metrics.login.value("issuer_not_allowed") == 2


@abroad()
async def test_alg_none_or_hs256_wrong_aud_expiry_and_unknown_crit_are_401(world):
    now = int(world.rig.gate.clock.now().timestamp())
    good = {"iss": ISSUER, "aud": CLIENT, "sub": "x", "iat": now, "exp": now + 60}
    issuer = world.issuer
    tokens = {
        "none": issuer.signed(good, alg="none"),
        "HS256": issuer.signed(good, alg="HS256"),
        "crit": issuer.signed(good, crit=["exp"]),
        "aud": issuer.signed({**good, "aud": "another"}),
        "exp": issuer.signed({**good, "exp": now - 61}),
        "nbf": issuer.signed({**good, "nbf": now + 61}),
    }
    found = {
        name: code(await world.rig.caller().post("/api/auth/login", {"auth0_token": token}))
        for name, token in tokens.items()
    }
    assert found == {
        **dict.fromkeys(("none", "HS256", "crit"), (401, "bad_signature")),
        **dict.fromkeys(("aud", "exp", "nbf"), (401, "bad_claims")),
    }


@abroad()
async def test_a_browser_signs_in_at_the_issuer_and_comes_back(world):
    start = await world.start("/executions")
    asked = parse_qs(urlsplit(start.headers["location"]).query)
    cookie = "=".join(cookie_of(start))
    done = await world.back(*await world.visit(start), cookie)
    who = await world.rig.caller(cookie="=".join(cookie_of(done))).get("/api/auth/whoami")
    assert start.status == 302
    assert asked["redirect_uri"] == [f"https://gate.example.org{BACK}"]
    assert cookie_of(start)[0] == "__Host-noetl_sign_in"
    assert (done.status, done.headers["location"]) == (302, "/executions")
    assert cookie_of(done)[0] == "__Host-noetl_session"
    assert told(who)["email"] == "ada@example.org"


@abroad()
async def test_a_callback_with_a_reused_state_or_another_browsers_cookie_or_verifier_is_401(world):
    start, other = await world.start(), await world.start()
    cookie, foreign = ("=".join(cookie_of(one)) for one in (start, other))
    code_, state = await world.visit(start)
    by_foreign = await world.back(code_, state, foreign)
    start = await world.start(cookie=cookie)
    code_, state = await world.visit(start)
    first = await world.back(code_, state, cookie)
    reused = await world.back(code_, state, cookie)
    mine, theirs = await world.start(cookie=cookie), await world.start(cookie=cookie)
    (_, state), (stolen, _) = await world.visit(mine), await world.visit(theirs)
    verifier = await world.back(stolen, state, cookie)
    assert first.status == 302
    assert code(by_foreign) == code(reused) == (401, "bad_state")
    assert code(verifier) == (401, "code_refused")
    assert all("set-cookie" not in one.headers for one in (by_foreign, reused, verifier))


@abroad()
async def test_return_to_elsewhere_becomes_the_first_page(world):
    for where in ("//evil", "https://evil", "/%5Cevil"):
        start = await world.start(where)
        done = await world.back(*await world.visit(start), "=".join(cookie_of(start)))
        assert done.headers["location"] == "/"


@abroad(auto_provision=False)
async def test_without_provision_only_known_accounts_come_in(world):
    token = {"auth0_token": world.issuer.id_token()}
    stranger = await world.rig.caller().post("/api/auth/login", token)
    assert code(stranger) == (403, "forbidden")


@abroad()
async def test_an_unverified_email_links_to_nobody(world):
    account_id = await world.rig.account("ada", "admin")
    world.issuer.person |= {"email": "ada@example.com", "email_verified": False}
    answer = await world.rig.caller().post(
        "/api/auth/login", {"auth0_token": world.issuer.id_token()}
    )
    assert told(answer)["user"]["user_id"] != account_id
    assert told(answer)["user"]["roles"] == ["operator"]


@abroad()
async def test_an_issuer_that_is_away_is_503(world):
    world.issuer.is_down = True
    answers = [
        await world.rig.caller().post("/api/auth/login", {"auth0_token": world.issuer.id_token()}),
        await world.start(),
    ]
    unknown = await world.rig.caller().get("/api/auth/oidc/nobody/start")
    assert [code(one) for one in answers] == [(503, "auth_unavailable")] * 2
    assert code(unknown) == (404, "unknown_provider")


# --------------------------------------------------------------------------------- secrets


async def test_no_line_of_the_log_and_no_answer_holds_a_session_or_a_ticket(caplog):
    caplog.set_level(logging.DEBUG)
    async with gateway_rig(takes_query_token=True) as rig:
        ann = await rig.login("ann")
        ticket = told(await rig.caller(ann).post("/api/auth/ticket", {"purpose": "events"}))
        secrets = (ann.token, ticket["ticket"], PASSWORD)
        async with events(rig.gateway.asgi, session_token=ann.token) as stream:
            assert stream.status == 200
        answers = [
            await rig.caller().get(f"/api/auth/whoami?session_token={ann.token}"),
            await rig.caller().get(f"/nowhere?session_token={ann.token}"),
            await rig.caller().get(f"/login?ticket={ticket['ticket']}"),
            await rig.caller().post("/api/auth/login", {"email": PASSWORD, "password": PASSWORD}),
            await rig.caller().get("/metrics", {"authorization": f"Bearer {INTERNAL}"}),
        ]
    whole = caplog.text + "".join(one.body.decode() for one in answers)
    assert [one.status for one in answers] == [401, 404, 401, 401, 200]
    assert [secret for secret in secrets if secret in whole] == []


async def test_without_sign_in_everybody_is_the_developer():
    async with gateway_rig(is_auth_bypassed=True) as rig:
        await rig.playbook(ONE_STEP)
        who = told(await rig.caller().get("/api/auth/whoami"))
        users = await rig.caller().get("/api/users")
        run = await rig.caller().post("/noetl/execute", {"path": "demo/it"})
        foreign = await rig.caller(origin="https://evil.example").post(
            "/noetl/execute", {"path": "demo/it"}
        )
    assert (who["account"], who["roles"]) == ("dev@localhost", ["developer"])
    assert code(users) == (403, "forbidden")
    assert run.status in {200, 201, 202}
    assert code(foreign) == (403, "csrf_rejected")
