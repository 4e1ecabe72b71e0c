"""Whom a gateway speaks for: he is the caller, with all that he may and no more."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.api.catalog import Register
from noetl.api.executions import Execute
from noetl.api.http import AsgiTransport
from noetl.api.identity import Login
from noetl.errors import NoetlError
from noetl.secrets.signed import key_of, sign
from noetl.server.access.tokens import new_token
from noetl.store.identity import Grant, RoleRow
from tests.unit.server.identity.people import CHEAP, account, caller, client_of, token
from tests.unit.server.rig import rig, virtually

INNER, OLDER = "the-internal-token", "the-one-before"
RUN = "/api/executions/12"
WHO = "/api/auth/whoami"
BAD = (401, "bad_identity")


def closed(**more):
    return rig(is_open=False, internal_tokens=(INNER, OLDER), password_kib=CHEAP, **more)


def word(r, key: str = INNER, late_s: float = 0.0, **claims) -> str:
    known = {
        "sub": "7", "name": "anna", "email": None, "roles": ["viewer"], "tenant": "default",
        "org": "default", "sid": "s-1",
    }  # fmt: skip
    now = r.plane.parts.clock.now().timestamp() + late_s
    return sign(known | claims, key_of(key), now, "j")


async def ask(r, bearer, *words, method="GET", path=WHO, body=b"{}"):
    headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
    app = AsgiTransport(r.server.asgi)
    if words:
        headers["x-noetl-identity"] = words[0]
    answer = await app.request(method, path, body, headers)
    return answer.status, msgspec.json.decode(answer.body)


async def code(*asked, **more):
    status, told = await ask(*asked, **more)
    return status, told.get("code", "")


@virtually
async def test_the_caller_is_who_is_spoken_for() -> None:
    async with closed() as r:
        status, who = await ask(r, INNER, word(r, roles=["developer"], tenant="acme"))
        assert status == 200
        assert (who["account"], who["account_id"], who["tenant_id"], who["roles"]) == (
            "anna", "7", "acme", ["developer"],
        )  # fmt: skip
        assert (who["session_id"], who["token_id"]) == ("s-1", None)
        assert "internal" not in who["permissions"]
        assert (await code(r, INNER, word(r), path=RUN))[0] == 404
        refused = await code(r, INNER, word(r), method="POST", path="/api/users")
        assert refused == (403, "forbidden")
        inner = await code(
            r, INNER, word(r, roles=["admin"]), path="/api/internal/outbox/pending-count"
        )
        assert inner == (403, "internal_token_mismatch")
        status, who = await ask(r, INNER)
        assert (who["account"], who["roles"]) == ("system", ["system", "gateway"])


@virtually
async def test_a_service_of_that_role_may_speak_and_nobody_else() -> None:
    async with closed() as r:
        robot = await token(r, await account(r, "gw", "gateway", kind="service"))
        status, who = await ask(r, robot, word(r))
        assert (status, who["account"]) == (200, "anna")
        for role in ("admin", "viewer", "system", "runtime", "worker"):
            own = await token(r, await account(r, f"the-{role}", role))
            status, who = await ask(r, own, word(r, roles=["admin"]))
            assert (status, who["account"], who["roles"]) == (200, f"the-{role}", [role])
        assert await code(r, None, word(r)) == (401, "auth_required")
        assert await code(r, new_token(), word(r)) == (401, "auth_required")


@virtually
async def test_a_wrong_word_never_falls_back_to_the_gateways_own_rights() -> None:
    async with closed() as r:
        robot = await token(r, await account(r, "gw", "gateway", kind="service"))
        for bearer in (INNER, robot):
            for wrong in (
                "", "x", "a.b.c", word(r, "another token"), word(r, late_s=-120.0),
                word(r, late_s=120.0), word(r, sub=""), word(r, sub=7), word(r, roles="admin"),
                word(r, tenant=""), word(r)[:-4] + "AAAA",
            ):  # fmt: skip
                assert await code(r, bearer, wrong) == BAD
        assert r.plane.access.outcomes["bad_identity"] == 22
        await r.plane.audits.settle()
        rows = [row for row in await r.store.audit.read() if row.outcome == "bad_identity"]
        assert {(row.actor, row.action, row.details["count"]) for row in rows} == {
            ("system", "access.refused", 11), ("gw", "access.refused", 11),
        }  # fmt: skip


@virtually
async def test_two_words_are_none() -> None:
    async with closed() as r:

        class Request:
            client = None
            scope = {  # noqa: RUF012 - of one request
                "headers": [
                    (b"authorization", f"Bearer {INNER}".encode()),
                    (b"x-noetl-identity", word(r).encode()),
                    (b"x-noetl-identity", word(r, roles=["admin"]).encode()),
                ]
            }

        with pytest.raises(NoetlError) as refused:
            await r.plane.access.caller(Request(), "token")
        assert (refused.value.status, refused.value.code) == BAD


@virtually
async def test_the_token_before_signs_too_and_one_in_a_file_may_change() -> None:
    async with closed() as r:
        assert (await ask(r, INNER, word(r, OLDER)))[0] == 200
        assert (await ask(r, OLDER, word(r, INNER)))[0] == 200


def test_the_key_follows_the_file_of_the_token(tmp_path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n", encoding="utf-8")

    @virtually
    async def test() -> None:
        async with rig(is_open=False, internal_token_file=file) as r:
            assert (await ask(r, "first", word(r, "first")))[0] == 200
            file.with_suffix(".new").write_text("second", encoding="utf-8")
            file.with_suffix(".new").replace(file)
            await asyncio.sleep(2)
            assert (await ask(r, "second", word(r, "second")))[0] == 200
            assert await code(r, "second", word(r, "first")) == BAD

    test()


@virtually
async def test_roles_that_were_made_here_give_what_they_give_now() -> None:
    async with closed() as r:
        grant = Grant(effect="allow", actions=("execute",), path="finance/*")
        await r.store.rights.put(
            RoleRow(name="clerk", permissions=("audit:read",), grants=(grant,))
        )
        _, who = await ask(r, INNER, word(r, roles=["clerk"]))
        assert who["permissions"] == ["audit:read", "execution:run"]
        await r.store.rights.put(RoleRow(name="clerk"))
        await asyncio.sleep(5)
        _, who = await ask(r, INNER, word(r, roles=["clerk"]))
        assert who["permissions"] == []


@virtually
async def test_nobody_is_a_process_of_the_platform_by_the_word_of_a_gateway() -> None:
    async with closed() as r:
        roles = ["system", "gateway", "worker", "runtime", "viewer"]
        _, who = await ask(r, INNER, word(r, roles=roles))
        assert who["roles"] == ["viewer"]


@virtually
async def test_a_session_that_has_ended_here_opens_nothing_whatever_a_gateway_remembers() -> None:
    async with closed() as r:
        door = client_of(r, INNER)
        anna = await account(r, "anna", "developer", "viewer")
        made = await door.login(Login(account_id=anna.account_id))
        own = {"sub": anna.account_id, "sid": made.session_id}
        _, who = await ask(r, INNER, word(r, **own, roles=["developer", "admin"]))
        assert (who["account"], who["roles"], who["expires_at"]) == (
            "anna", ["developer"], made.expires_at,
        )  # fmt: skip
        assert await code(r, INNER, word(r, sub="8", sid=made.session_id)) == BAD
        assert await code(r, INNER, word(r, **own, tenant="acme")) == BAD
        await door.end_session(made.session_token)
        await asyncio.sleep(5)
        assert await code(r, INNER, word(r, **own)) == (401, "session_expired")


@virtually
async def test_a_token_of_his_own_ends_with_its_account() -> None:
    async with closed() as r:
        anna = await account(r, "anna", "viewer")
        told = await client_of(r, INNER).validate_session(await token(r, anna))
        own = {"sub": anna.account_id, "sid": told.session_id}
        assert told.session_id.startswith("token-")
        _, who = await ask(r, INNER, word(r, **own))
        assert (who["token_id"], who["session_id"]) == (told.session_id[6:], None)
        await r.store.accounts.change(msgspec.structs.replace(anna, active=False))
        await asyncio.sleep(5)
        assert await code(r, INNER, word(r, **own)) == (401, "session_expired")


@virtually
async def test_a_stream_outlives_the_word_that_it_began_with_and_not_its_session() -> None:
    async with closed() as r:
        door = client_of(r, INNER)
        anna = await account(r, "anna", "viewer")
        made = await door.login(Login(account_id=anna.account_id))

        class Request:
            client = None

            def __init__(self):
                text = word(r, sub=anna.account_id, sid=made.session_id)
                self.scope = {
                    "headers": [
                        (b"authorization", f"Bearer {INNER}".encode()),
                        (b"x-noetl-identity", text.encode()),
                    ]
                }

        request = Request()
        access = r.plane.access
        assert (await access.caller(request, "execution:read")).account == "anna"
        await asyncio.sleep(600)
        assert (await access.again(request, "execution:read", 1.0)).account == "anna"
        await door.end_session(made.session_token)
        await asyncio.sleep(1)
        with pytest.raises(NoetlError) as refused:
            await access.again(request, "execution:read", 1.0)
        assert refused.value.code == "session_expired"


@virtually
async def test_the_audit_names_the_person_and_where_he_is() -> None:
    async with closed() as r:
        told = word(r, roles=["admin"], ip="203.0.113.9")
        body = b'{"name": "clerk"}'
        assert (await ask(r, INNER, told, method="POST", path="/api/roles", body=body))[0] == 201
        odd = word(r, roles=["viewer"], ip="<script>")
        assert (await code(r, INNER, odd, method="POST", path="/api/roles"))[0] == 403
        await r.plane.audits.settle()
        rows = await r.store.audit.read()
        assert [(row.action, row.actor, row.source_ip, row.outcome) for row in rows] == [
            ("role.created", "anna", "203.0.113.9", "ok"),
            ("role.created", "anna", "127.0.0.1", "forbidden"),
        ]  # fmt: skip


@virtually
async def test_wrong_tokens_do_not_shut_out_those_who_come_through_a_gateway() -> None:
    async with closed() as r:
        for _ in range(12):
            await code(r, new_token())
        late = await token(r, await account(r, "late", "viewer"))
        assert await code(r, late) == (429, "rate_limited")
        assert (await ask(r, INNER, word(r)))[0] == 200
        assert (await ask(r, late))[0] == 200
        for _ in range(12):
            assert await code(r, new_token()) == (401, "auth_required")


@virtually
async def test_only_what_a_gateway_asks_itself_names_runs_and_requests() -> None:
    async with closed() as r:
        boss = await caller(r, "boss", "admin")
        await boss.register(Register(content=HEAD))
        run = r.ids.new()
        request = {"request_id": "r-1", "user_id": "7", "client_id": "client-01"}
        body = msgspec.json.encode(Execute(path="demo/it", execution_id=run, request=request))
        his = word(r, roles=["developer"])
        refused = await code(r, INNER, his, method="POST", path="/api/execute", body=body)
        assert refused == (403, "field_not_allowed")
        ours = word(r, roles=["developer"], own=True)
        status, told = await ask(r, INNER, ours, method="POST", path="/api/execute", body=body)
        assert (status, told["execution_id"], told["status"]) == (200, run, "started")
        status, told = await ask(r, INNER, ours, method="POST", path="/api/execute", body=body)
        assert (told["execution_id"], told["status"]) == (run, "duplicate")
        other = msgspec.json.encode(Execute(path="demo/it", request=request | {"user_id": "8"}))
        refused = await code(r, INNER, ours, method="POST", path="/api/execute", body=other)
        assert refused == (403, "field_not_allowed")
        viewer = word(r, own=True)
        fresh = msgspec.json.encode(Execute(path="demo/it", request=request))
        refused = await code(r, INNER, viewer, method="POST", path="/api/execute", body=fresh)
        assert refused == (403, "forbidden")
        row = await boss.execution(run)
        assert (row.created_by, row.tenant_id) == ("anna", "default")


HEAD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: demo, path: demo/it}
workflow:
  - step: start
    tool: {kind: python, code: "return 1"}
"""
