"""Values that somebody puts: kept to their end, and renewed where it was said how."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.api.credentials import CredentialPut, KeychainPut
from noetl.api.problems import Refused
from noetl.secrets.fetch import Answer
from tests.security.people import INNER, ask, code, person
from tests.unit.server.rig import virtually
from tests.unit.server.wallet.scene import CANARY, HEAD, Asked, scene
from tests.unit.server.wallet.test_keychain import FLOW, Issuer

RENEWS = {
    "kind": "oauth2", "endpoint": "https://idp/token",
    "data": {"grant_type": "client_credentials", "client_id": "me", "client_secret": "x"},
}  # fmt: skip
STATIC = "keychain:\n  - {name: x, kind: static, scope: %s}\n"


@pytest.mark.parametrize("scope", ["local", "shared", "global"])
def test_a_value_is_renewed_as_its_config_says(scope: str) -> None:
    @virtually
    async def test() -> None:
        issuer = Issuer()
        async with scene(fetch=issuer, lease_s=100_000) as s:
            command = await s.claimed(STATIC % scope + FLOW)
            document = (await s.client.execution(s.run)).catalog_id
            body = KeychainPut(
                data={"token": "the first"}, scope_type=scope, expires_in=3600, auto_renew=True,
                renew_config=RENEWS, execution_id=None if scope == "global" else s.run,
            )  # fmt: skip
            await s.client.put_keychain(document, "x", body)

            async def token():
                await s.join()  # one that is not heard of for an hour is forgotten
                return (await s.sealed("x", command, kind="keychain"))["data"]["token"]

            await asyncio.sleep(3570)
            assert await token() == "the first"
            assert issuer.asks == []
            await asyncio.sleep(60)
            assert await token() == "token-1"
            await asyncio.sleep(3600)
            assert await token() == "token-2"
            (item,) = (await s.client.keychain_entries(document)).items
            assert (item.cache_type, item.auto_renew) == ("secret", True)

    test()


@virtually
async def test_one_that_cannot_be_renewed_stays_until_its_end() -> None:
    async with scene(lease_s=100_000) as s:
        command = await s.claimed(STATIC % "global" + FLOW)
        document = (await s.client.execution(s.run)).catalog_id
        for config in (None, {"kind": "static"}, {"what": "ever"}):
            body = KeychainPut(
                data={"token": CANARY}, expires_in=100, auto_renew=True, renew_config=config
            )
            await s.client.put_keychain(document, "x", body)
            await asyncio.sleep(99)
            assert (await s.client.keychain_entry(document, "x")).status == "found"
            assert CANARY in (await s.sealed("x", command, kind="keychain"))["data"].values()
            await asyncio.sleep(30)
            with pytest.raises(Refused) as caught:
                await s.sealed("x", command, kind="keychain")
            assert caught.value.problem.code == "not_found"


@virtually
async def test_one_whose_run_has_ended_stays_until_its_end_and_is_not_renewed() -> None:
    issuer = Issuer()
    async with scene(fetch=issuer, lease_s=100_000) as s:
        command = await s.claimed(FLOW)
        document = (await s.client.execution(s.run)).catalog_id
        where = {"scope_type": "local", "execution_id": s.run}
        body = KeychainPut(
            data={"t": CANARY}, expires_in=100, auto_renew=True, renew_config=RENEWS, **where
        )
        await s.client.put_keychain(document, "x", body)
        await s.r.done(command)
        await asyncio.sleep(95)
        assert (await s.client.keychain_entry(document, "x", **where)).status == "found"
        await asyncio.sleep(60)
        assert (await s.client.keychain_entry(document, "x", **where)).status == "not_found"
        assert issuer.asks == []


@virtually
async def test_a_source_that_is_away_is_asked_again_and_one_that_refuses_is_not() -> None:
    for status, is_kept in ((503, True), (401, False)):
        issuer = Asked(lambda _, status=status: Answer(status=status, headers={}, body=b""))
        async with scene(fetch=issuer, lease_s=100_000) as s:
            await s.claimed(FLOW)
            document = (await s.client.execution(s.run)).catalog_id
            body = KeychainPut(
                data={"t": CANARY}, expires_in=100, auto_renew=True, renew_config=RENEWS
            )
            await s.client.put_keychain(document, "x", body)
            await asyncio.sleep(150)
            assert len(issuer.asks) > 1
            found = (await s.client.keychain_entry(document, "x")).status
            assert found == ("expired" if is_kept else "not_found")


@virtually
async def test_a_worker_gets_by_a_value_nothing_that_it_would_not_be_given() -> None:
    asked = Asked(lambda _: {"data": {"data": {"value": CANARY, "v": CANARY}}})
    flow = """workflow:
  - step: start
    tool: {kind: secrets, provider: vault, name: "app/{{ workload.which }}", auth: vault}
    next: {arcs: [{step: more}]}
  - {step: more, tool: {kind: http, auth: named, url: "http://x"}}
"""
    async with scene(fetch=asked, is_open=False, internal_tokens=(INNER,)) as s:
        r = s.r
        admin = await person(r, "admin")
        worker = await person(r, "worker", pool="shared")
        for put in (
            CredentialPut(name="vault", type="vault", data={"url": "https://v", "token": CANARY}),
            CredentialPut(name="named", type="bearer", data={"token": "given-anyway-1"}),
            CredentialPut(name="hidden", type="bearer", data={"token": CANARY}),
        ):
            status, _ = await ask(r, admin, "POST", "/api/credentials", msgspec.to_builtins(put))
            assert status == 200
        await ask(r, admin, "POST", "/api/catalog/register", {"content": HEAD + flow})
        await ask(r, worker, "POST", "/api/worker/pool/register", {
            "name": "w", "runtime": {"pool": "shared", "worker_public_key": s.keys.public},
        })  # fmt: skip
        _, run = await ask(
            r, admin, "POST", "/api/execute", {"path": "demo/it", "payload": {"which": "db"}}
        )
        claim = {"worker_id": "w", "pool": "shared", "free_slots": 1}
        _, told = await ask(r, worker, "POST", "/api/commands/claim", claim)
        (command,) = told["claimed"]
        document = command["catalog_id"]

        async def put(config, who=worker):
            body = {"data": {}, "scope_type": "local", "execution_id": run["execution_id"],
                    "renew_config": config}  # fmt: skip
            return await code(r, who, "POST", f"/api/keychain/{document}/h", body)

        async def given():
            path = (
                f"/api/credentials/h/sealed?kind=keychain&worker_id=w"
                f"&execution_id={run['execution_id']}&command_id={command['command_id']}"
            )
            return (await code(r, worker, "GET", path))[0]

        manager = {"kind": "secret_manager", "provider": "vault", "auth": "vault"}
        for config, is_given in (
            ({**manager, "map": {"value": "app/db#v"}}, 200),
            ({**manager, "map": {"value": "app/db"}}, 200),
            ({**manager, "map": {"value": {"name": "app/db", "version": "3"}}}, 200),
            ({**manager, "map": {"value": "else/db"}}, 403),
            ({**manager, "provider": "aws", "map": {"value": "app/db"}}, 403),
            ({**manager, "auth": "hidden", "map": {"value": "app/db"}}, 403),
            ({"kind": "credential", "credential": "named"}, 200),
            ({"kind": "credential", "credential": "hidden"}, 403),
        ):
            assert (await put(config))[0] == 200, config
            found = await given()
            assert found == is_given, config
        for config in (
            RENEWS,
            {**manager, "auth": {"credential": "vault", "url": "https://evil"}, "map": {"a": "b"}},
            {"kind": "google_id_token", "endpoint": "https://evil", "auth": "named"},
            {"kind": "credential", "credential": "named", "endpoint": "https://evil"},
        ):
            assert await put(config) == (403, "forbidden"), config
        assert (await put({"kind": "oauth2", "headers": 7}, admin))[0] == 422
        assert (await put(RENEWS, admin))[0] == 200
        assert all("evil" not in ask.url for ask in asked.asks)
