"""Keychain entries: every kind, kept and renewed in time, one renewal at a time."""

from __future__ import annotations

import asyncio
import base64
from urllib.parse import parse_qs

import pytest

from noetl.api.credentials import CredentialPut, KeychainPut
from noetl.api.executions import Execute
from noetl.api.problems import Refused
from noetl.secrets.fetch import Answer
from tests.unit.server.rig import virtually
from tests.unit.server.wallet.scene import CANARY, Asked, scene

FLOW = 'workflow:\n  - {step: start, tool: {kind: python, code: "return 1"}}\n'
ENTRY = (
    "keychain:\n  - {name: t, kind: oauth2, scope: %s, endpoint: 'https://idp/token',"
    " data: {grant_type: client_credentials, client_id: me, client_secret: x}}\n"
)


class Issuer(Asked):
    """Gives tokens with a number, as many as are asked for."""

    def __init__(self, **more):
        super().__init__(self._token)
        self.more = {"expires_in": 3600} | more
        self.gate = None

    def _token(self, ask):
        del ask
        return {"access_token": f"token-{len(self.asks)}"} | self.more

    async def __call__(self, ask):
        answer = await super().__call__(ask)
        if self.gate is not None:
            await self.gate.wait()
        return answer


async def credentials(s, **given):
    for name, (kind, data) in given.items():
        await s.client.put_credential(CredentialPut(name=name, type=kind, data=data))


async def refusal(asking) -> Refused:
    with pytest.raises(Refused) as caught:
        await asking
    assert CANARY not in str(caught.value.problem)
    return caught.value


@virtually
async def test_every_kind_of_the_wallet() -> None:
    chain = """keychain:
  - {name: fixed, kind: static, map: {tenant: "42", of: "{{ workload.who }}"}}
  - {name: hook, kind: bearer, credential: tok}
  - {name: said, kind: bearer, token: "{{ workload.who }}-1", token_type: Token}
  - {name: ftp, kind: basic, credential: login}
  - {name: maps, kind: api_key, credential: mapkey}
  - {name: db, kind: credential, credential: pg}
"""
    async with scene() as s:
        await credentials(
            s, tok=("bearer", {"token": CANARY}), pg=("postgres", {"host": "h"}),
            login=("basic", {"username": "u", "password": CANARY}),
            mapkey=("api_key", {"key": CANARY, "header": "X-K"}),
        )  # fmt: skip
        command = await s.claimed(chain + FLOW, {"who": "ann"})

        async def got(name):
            return await s.sealed(name, command, kind="keychain")

        assert await got("fixed") == {"type": "secret", "data": {"tenant": "42", "of": "ann"}}
        bearer = {"token": CANARY, "access_token": CANARY, "token_type": "Bearer"}
        assert await got("hook") == {"type": "bearer", "data": bearer}
        assert "ann-1" in (await got("said"))["data"].values()
        assert (await got("ftp"))["data"] == {"username": "u", "password": CANARY}
        assert await got("maps") == {"type": "api_key", "data": {"header": "X-K", "key": CANARY}}
        assert await got("db") == {"type": "postgres", "data": {"host": "h"}}
        assert (await refusal(got("nobody"))).problem.code == "not_found"


@virtually
async def test_an_entry_of_variables_is_told_by_names_and_nothing_is_built_on_it() -> None:
    chain = """keychain:
  - {name: mail, kind: secret_manager, provider: env, map: {user: "{{ workload.who }}_USER"}}
  - {name: none, kind: secret_manager, provider: env}
  - {name: built, kind: static, map: {of: "{{ keychain.mail.user }}"}}
"""
    async with scene() as s:
        command = await s.claimed(chain + FLOW, {"who": "MAIL"})
        found = await s.sealed("mail", command, kind="keychain")
        assert found == {"type": "secret", "data": {}, "variables": {"user": "MAIL_USER"}}
        for name, code in (("none", "secret_refused"), ("built", "secret_missing")):
            told = await refusal(s.sealed(name, command, kind="keychain"))
            assert told.problem.code == code


MANAGED = {
    "aws": ("aws", {"access_key": "a", "secret_key": CANARY, "aws_region": "r-1",
                    "endpoint_url": "https://a"}, "https://a"),
    "azure": ("azure", {"tenant": "t-1", "client_id": "c", "client_secret": CANARY,
                        "endpoint": "https://z", "authority": "https://login"},
              "https://login/t-1/oauth2/v2.0/token"),
    "vault": ("vault", {"address": "https://v", "token": CANARY, "mount": "m-1", "namespace": "n"},
              "https://v/v1/m-1/data/s"),
    "k8s": ("kubernetes", {"server": "https://k", "token": CANARY, "namespace": "n-1"},
            "https://k/api/v1/namespaces/n-1/secrets/s"),
}  # fmt: skip


@virtually
async def test_a_secret_manager_is_asked_with_the_fields_of_its_type_by_any_name() -> None:
    for provider, (kind, data, url) in MANAGED.items():
        chain = (
            f"keychain: [{{name: it, kind: secret_manager, provider: {provider}, auth: own,"
            f" map: {{v: {'s' if provider == 'azure' else 's#f'}}}}}]\n"
        )
        asked = Asked(lambda _: Answer(status=403, headers={}, body=b"{}"))
        async with scene(fetch=asked) as s:
            await credentials(s, own=(kind, data))
            command = await s.claimed(chain + FLOW)
            await refusal(s.sealed("it", command, kind="keychain"))
        assert [ask.url for ask in asked.asks] == [url]


@virtually
async def test_an_entry_builds_on_earlier_ones_and_asks_for_a_token() -> None:
    chain = """keychain:
  - {name: app, kind: secret_manager, provider: vault, auth: vault, map: {id: "kv/app#id"}}
  - name: t
    kind: oauth2
    endpoint: "https://idp/{{ workload.realm }}/token"
    data: {grant_type: client_credentials, client_id: "{{ keychain.app.id }}", client_secret: s}
"""

    def answer(ask):
        if "idp" in ask.url:
            return {"access_token": CANARY, "expires_in": 3600}
        return {"data": {"data": {"id": "the-id-77"}}}

    asked = Asked(answer)
    async with scene(fetch=asked) as s:
        await credentials(s, vault=("vault", {"url": "https://vault", "token": "vault-tok-1"}))
        command = await s.claimed(chain + FLOW, {"realm": "r1"})
        found = await s.sealed("t", command, kind="keychain")
        assert found["data"]["access_token"] == CANARY
        last = asked.asks[-1]
        assert last.url == "https://idp/r1/token"
        assert parse_qs(last.body.decode())["client_id"] == ["the-id-77"]
        assert len(asked.asks) == 2
        await s.sealed("app", command, kind="keychain")
        await s.sealed("t", command, kind="keychain")
        assert len(asked.asks) == 2
        rows = s.r.store.keychain
        kept = await rows.get(f"t:{(await s.client.execution(s.run)).catalog_id}:{s.run}")
        assert CANARY not in str(kept)


@virtually
async def test_a_name_that_is_not_there_is_told() -> None:
    chain = 'keychain:\n  - {name: t, kind: static, map: {y: "{{ workload.nothing.there }}"}}\n'
    async with scene() as s:
        command = await s.claimed(chain + FLOW)
        fault = await refusal(s.sealed("t", command, kind="keychain"))
        assert (fault.problem.status, fault.problem.code) == (422, "secret_refused")
        assert "`t`" in fault.problem.detail


@virtually
async def test_a_fresh_token_is_kept_an_old_one_is_served_while_one_refresh_runs() -> None:
    issuer = Issuer()
    async with scene(fetch=issuer, lease_s=100_000) as s:
        command = await s.claimed(ENTRY % "global" + FLOW)

        async def token():
            return (await s.sealed("t", command, kind="keychain"))["data"]["token"]

        assert await token() == "token-1"
        await asyncio.sleep(3530)
        assert await token() == "token-1"
        assert len(issuer.asks) == 1
        await asyncio.sleep(15)
        issuer.gate = asyncio.Event()
        assert await asyncio.gather(token(), token()) == ["token-1", "token-1"]
        await asyncio.sleep(0.1)
        assert len(issuer.asks) == 2
        issuer.gate.set()
        await asyncio.sleep(0.1)
        assert await token() == "token-2"
        assert len(issuer.asks) == 2


@virtually
async def test_an_entry_that_renews_needs_no_reader_as_long_as_its_run_goes_on() -> None:
    issuer = Issuer()
    chain = (ENTRY % "local").replace("kind: oauth2", "kind: oauth2, auto_renew: true")
    async with scene(fetch=issuer, lease_s=100_000) as s:
        command = await s.claimed(chain + FLOW)
        await s.sealed("t", command, kind="keychain")
        await asyncio.sleep(3600)
        assert len(issuer.asks) == 2
        found = await s.sealed("t", command, kind="keychain")
        assert "token-2" in found["data"].values()
        await s.r.done(command)
        await asyncio.sleep(3600)
        assert len(issuer.asks) == 2
        document = (await s.client.execution(s.run)).catalog_id
        assert (await s.client.keychain_entries(document)).items == ()


@virtually
async def test_many_who_need_the_same_token_ask_once() -> None:
    issuer = Issuer()
    issuer.gate = asyncio.Event()
    async with scene(fetch=issuer) as s:
        command = await s.claimed(ENTRY % "shared" + FLOW)
        asking = [asyncio.create_task(s.sealed("t", command, kind="keychain")) for _ in range(20)]
        await asyncio.sleep(0.1)
        asking[0].cancel()
        issuer.gate.set()
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert {one["data"]["token"] for one in found if isinstance(one, dict)} == {"token-1"}
        assert sum(isinstance(one, dict) for one in found) == 19
        assert len(issuer.asks) == 1


@virtually
async def test_a_refused_token_is_told_without_a_secret_and_asked_for_again() -> None:
    answers = [Answer(status=401, headers={}, body=CANARY.encode()), {"access_token": "late-1"}]
    issuer = Asked(lambda _: answers.pop(0))
    async with scene(fetch=issuer) as s:
        command = await s.claimed(ENTRY % "local" + FLOW)
        fault = await refusal(s.sealed("t", command, kind="keychain"))
        assert (fault.problem.status, fault.problem.code) == (422, "secret_refused")
        found = await s.sealed("t", command, kind="keychain")
        assert "late-1" in found["data"].values()


@virtually
async def test_a_refresh_token_that_was_given_anew_is_used_next() -> None:
    chain = (
        "keychain:\n  - {name: t, kind: oauth2, ttl: 5, endpoint: 'https://idp/token',"
        " data: {grant_type: refresh_token, client_id: me, refresh_token: first-one}}\n"
    )
    rotated = {"refresh_token": "second-one", "expires_in": 60}
    issuer = Issuer(**rotated)
    async with scene(fetch=issuer) as s:
        command = await s.claimed(chain + FLOW)
        await s.sealed("t", command, kind="keychain")
        await asyncio.sleep(6)
        await s.sealed("t", command, kind="keychain")
        await asyncio.sleep(0.1)
        given = [parse_qs(ask.body.decode())["refresh_token"][0] for ask in issuer.asks]
        assert given == ["first-one", "second-one"]


@virtually
async def test_scopes_decide_who_shares_a_value() -> None:
    for scope, asks in (("local", 2), ("global", 1)):
        issuer = Issuer()
        async with scene(fetch=issuer) as s:
            for _ in range(2):
                command = await s.claimed(ENTRY % scope + FLOW)
                await s.sealed("t", command, kind="keychain")
            assert len(issuer.asks) == asks, scope


@virtually
async def test_a_shared_value_is_that_of_a_run_and_all_that_it_has_started() -> None:
    issuer = Issuer()
    async with scene(fetch=issuer) as s:
        parent = await s.claimed(ENTRY % "shared" + FLOW)
        first = await s.sealed("t", parent, kind="keychain")
        child = Execute(path="demo/it", parent_execution_id=s.run)
        started = await s.client.execute(child)
        (command,) = await s.r.claim()
        assert command.execution_id == started.execution_id
        assert await s.sealed("t", command, kind="keychain") == first
        assert len(issuer.asks) == 1
        other = await s.claimed(ENTRY % "shared" + FLOW)
        assert await s.sealed("t", other, kind="keychain") != first
        assert len(issuer.asks) == 2


@virtually
async def test_a_strict_entry_is_refused_in_another_region() -> None:
    chain = (
        "keychain:\n  - {name: t, kind: static, map: {a: b}, residency: strict,"
        " allowed_regions: [eu-west6]}\n"
    )
    async with scene(region="us-east1") as s:
        command = await s.claimed(chain + FLOW)
        fault = await refusal(s.sealed("t", command, kind="keychain"))
        assert (fault.problem.status, fault.problem.code) == (403, "residency_denied")
    async with scene(region="eu-west6") as s:
        command = await s.claimed(chain + FLOW)
        assert (await s.sealed("t", command, kind="keychain"))["data"] == {"a": "b"}


@virtually
async def test_routes_tell_what_is_kept_and_data_only_to_those_who_may_see_it() -> None:
    async with scene() as s:
        await s.claimed(FLOW)
        document = (await s.client.execution(s.run)).catalog_id
        at = (document, "x")
        assert (await s.client.keychain_entry(*at)).status == "not_found"
        made = await s.client.put_keychain(*at, KeychainPut(data={"a": CANARY}, expires_in=30))
        assert made.cache_key == f"x:{document}:global"
        shown = await s.client.keychain_entry(*at)
        assert (shown.status, CANARY in str(shown)) == ("found", False)
        revealed = await s.client.keychain_entry(*at, include_data="true")
        assert revealed.data == {"a": CANARY}
        (item,) = (await s.client.keychain_entries(document)).items
        assert (item.name, item.access_count, CANARY in str(item)) == ("x", 1, False)
        soon = await s.client.expiring_secrets(60)
        assert [one.name for one in soon.items] == ["x"]
        await asyncio.sleep(31)
        assert (await s.client.keychain_entry(*at)).status == "expired"
        assert (await s.client.delete_keychain(*at)).status == "deleted"
        assert (await s.client.delete_keychain(*at)).status == "not_found"
        fault = await refusal(s.client.keychain_entry("99", "x"))
        assert fault.problem.code == "unknown_path"


@virtually
async def test_a_credential_is_read_where_it_lies() -> None:
    secret = base64.b64encode(CANARY.encode()).decode()
    asked = Asked(lambda _: {"payload": {"data": secret}, "data": {"data": {"v": CANARY}}})
    body = 'workflow:\n  - {step: start, tool: {kind: http, auth: %s, url: "http://x"}}\n'
    async with scene(fetch=asked) as s:
        await credentials(s, vault=("vault", {"url": "https://vault", "token": "vault-tok-1"}))
        await s.client.put_credential(CredentialPut(
            name="far", type="bearer",
            from_={"provider": "vault", "map": {"token": "app#v"}, "auth": "vault"},
        ))  # fmt: skip
        assert (await s.client.credential("far")).meta["from"]["auth"] == "vault"
        assert asked.asks == []
        command = await s.claimed(body % "far")
        assert (await s.sealed("far", command)) == {"type": "bearer", "data": {"token": CANARY}}
        assert len(asked.asks) == 1
