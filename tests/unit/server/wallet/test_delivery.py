"""Sealed delivery: to the holder of a claim, of what its playbook names, opened by it alone."""

from __future__ import annotations

import asyncio
import base64
from urllib.parse import urlencode

import msgspec
import pytest

from noetl.api.credentials import CredentialPut, KeychainPut
from noetl.api.executions import Control
from noetl.api.problems import Refused
from noetl.secrets.sealed import CannotOpen, KeyPair
from noetl.server.claimed import BELIEVED_S
from noetl.server.wallet import delivery
from noetl.server.wallet.errors import WorkerKeyMissing
from tests.security.people import INNER, ask, code, person
from tests.unit.server.rig import virtually
from tests.unit.server.wallet.scene import CANARY, Asked, scene

PG = {"host": "db", "password": CANARY}
PUT = CredentialPut(name="pg", type="postgres", data=PG)
USES = "workflow:\n  - {step: start, tool: {kind: postgres, auth: pg, command: select 1}}\n"


async def code_of(asking) -> str:
    with pytest.raises(Refused) as caught:
        await asking
    assert CANARY not in str(caught.value.problem)
    return caught.value.problem.code


@virtually
async def test_the_holder_of_a_claim_gets_what_its_playbook_names() -> None:
    async with scene() as s:
        await s.client.put_credential(PUT)
        command = await s.claimed(USES)
        assert await s.sealed("pg", command) == {"type": "postgres", "data": PG}


@virtually
async def test_an_envelope_opens_with_that_key_for_that_worker_run_and_name_only() -> None:
    async with scene() as s:
        await s.client.put_credential(PUT)
        command = await s.claimed(USES)
        asked = {"worker_id": "w", "execution_id": command.execution_id,
                 "command_id": command.command_id}  # fmt: skip
        answer = await s.client.sealed("pg", **asked)
        assert CANARY not in str(answer)
        assert answer.expires_at > "2026-01-01T00:00:00"
        run = command.execution_id
        assert s.opened(answer, "pg", run)["data"] == PG
        for name, worker_id, other in (("pg2", "w", run), ("pg", "w2", run), ("pg", "w", "9")):
            with pytest.raises(CannotOpen):
                s.opened(answer, name, other, worker_id)
        flipped = bytearray(base64.b64decode(answer.ciphertext))
        flipped[3] ^= 1
        changed = msgspec.structs.replace(
            answer, ciphertext=base64.b64encode(bytes(flipped)).decode()
        )
        with pytest.raises(CannotOpen):
            s.opened(changed, "pg", run)
        s.keys = KeyPair.make()
        with pytest.raises(CannotOpen):
            s.opened(answer, "pg", run)


@virtually
async def test_everybody_else_is_refused() -> None:
    async with scene() as s:
        await s.client.put_credential(PUT)
        await s.client.put_credential(msgspec.structs.replace(PUT, name="other"))
        command = await s.claimed(USES)
        await s.join("w2")
        assert await code_of(s.sealed("other", command)) == "forbidden"
        assert await code_of(s.sealed("pg", command, worker_id="w2")) == "forbidden"
        assert await code_of(s.sealed("pg", command, command_id="77")) == "forbidden"
        assert await code_of(s.sealed("pg", command, execution_id="77")) == "forbidden"
        assert await code_of(s.sealed("none", command, kind="keychain")) == "not_found"
        await s.client.delete_credential("pg", force=True)
        assert await code_of(s.sealed("pg", command)) == "not_found"
        await s.r.done(command)
        await s.client.put_credential(PUT)
        assert await code_of(s.sealed("pg", command)) == "forbidden"


@virtually
async def test_after_the_lease_nothing_is_given_and_the_refusal_is_audited() -> None:
    async with scene(is_open=False, internal_tokens=(INNER,)) as s:
        r = s.r
        admin = await person(r, "admin")
        worker = await person(r, "worker", pool="shared")
        other = await person(r, "worker", pool="gpu", name="elsewhere")
        status, _ = await ask(r, admin, "POST", "/api/credentials", msgspec.to_builtins(PUT))
        assert status == 200
        content = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a, path: a}\n" + USES
        await ask(r, admin, "POST", "/api/catalog/register", {"content": content})
        await ask(r, worker, "POST", "/api/worker/pool/register", {
            "name": "w", "runtime": {"pool": "shared", "worker_public_key": s.keys.public},
        })  # fmt: skip
        _, run = await ask(r, admin, "POST", "/api/execute", {"path": "a"})
        claim = {"worker_id": "w", "pool": "shared", "free_slots": 1}
        _, told = await ask(r, worker, "POST", "/api/commands/claim", claim)
        about = {"worker_id": "w", "execution_id": run["execution_id"],
                 "command_id": told["claimed"][0]["command_id"]}  # fmt: skip
        path = f"/api/credentials/pg/sealed?{urlencode(about)}"
        assert (await code(r, worker, "GET", path))[0] == 200
        assert await code(r, other, "GET", path) == (403, "pool_forbidden")
        developer = await person(r, "developer")
        assert await code(r, developer, "GET", path) == (403, "forbidden")
        unnamed = path.replace("/pg/", "/not_named/")
        assert await code(r, worker, "GET", unnamed) == (403, "forbidden")
        revealing = "/api/credentials/pg?include_data=true"
        assert await code(r, worker, "GET", revealing) == (403, "forbidden")
        assert (await code(r, admin, "GET", revealing))[0] == 200
        await asyncio.sleep(16)
        assert await code(r, worker, "GET", path) == (403, "forbidden")
        _, rows = await ask(r, INNER, "GET", "/api/internal/secret-audit?credential=pg")
        seen = [(row["action"], row["outcome"]) for row in rows["rows"]]
        assert {("secret.put", "ok"), ("secret.seal", "ok"), ("secret.seal", "forbidden"),
                ("secret.reveal", "ok"), ("secret.read", "ok")} <= set(seen)  # fmt: skip
        _, every = await ask(r, INNER, "GET", "/api/internal/secret-audit")
        refused = [one["resource"] for one in every["rows"] if one["outcome"] == "forbidden"]
        assert "GET /api/credentials/{name:path}" in refused  # at the door
        of_run = f"/api/internal/secret-audit?execution_id={run['execution_id']}&limit=1"
        _, page = await ask(r, INNER, "GET", of_run)
        _, rest = await ask(r, INNER, "GET", f"{of_run}&cursor={page['next_cursor']}")
        assert len(page["rows"]) == len(rest["rows"]) == 1
        assert page["rows"] != rest["rows"]
        assert CANARY not in str((rows, page, rest))


@virtually
async def test_a_worker_without_a_key_is_told_so() -> None:
    async with scene() as s:
        await s.client.put_credential(PUT)
        command = await s.claimed(USES)
        await s.join(worker_public_key=None)
        assert await code_of(s.sealed("pg", command)) == "worker_key_missing"


@virtually
async def test_a_templated_alias_is_named_by_the_workload() -> None:
    body = USES.replace("auth: pg", 'auth: "{{ workload.db }}"')
    async with scene() as s:
        await s.client.put_credential(PUT)
        command = await s.claimed(body, {"db": "pg"})
        assert (await s.sealed("pg", command))["data"] == PG
        assert await code_of(s.sealed("other", command)) == "forbidden"


@virtually
async def test_a_value_that_was_put_for_a_run_is_given_to_that_run() -> None:
    async with scene() as s:
        command = await s.claimed(USES)
        body = KeychainPut(
            data={"value": CANARY}, scope_type="local", execution_id=command.execution_id
        )
        entry = await s.client.execution(command.execution_id)
        await s.client.put_keychain(entry.catalog_id, "handle", body)
        found = await s.sealed("handle", command, kind="keychain")
        assert found == {"type": "static", "data": {"value": CANARY}}


@virtually
async def test_a_client_of_an_oauth_server_is_given_its_token_and_not_its_secret() -> None:
    issuer = Asked(lambda _: {"access_token": "minted-canary-9", "expires_in": 3600})
    body = 'workflow:\n  - {step: start, tool: {kind: http, auth: api, url: "http://x"}}\n'
    data = {"client_id": "me", "client_secret": CANARY, "token_url": "https://idp/token"}
    async with scene(fetch=issuer) as s:
        await s.client.put_credential(CredentialPut(name="api", type="oauth2", data=data))
        command = await s.claimed(body)
        found = await s.sealed("api", command)
        assert (found["type"], found["data"]["token"]) == ("oauth2", "minted-canary-9")
        assert CANARY not in str(found)
        await s.sealed("api", command)
        assert len(issuer.asks) == 1


@virtually
async def test_a_claim_of_a_moment_ago_is_not_read_and_an_older_one_is() -> None:
    async with scene() as s:
        await s.client.put_credential(PUT)
        command = await s.claimed(USES)
        commands = s.r.plane.parts.store.commands
        asked, get = [], commands.get

        async def counted(command_id):
            asked.append(command_id)
            return await get(command_id)

        commands.get = counted
        await s.sealed("pg", command)
        assert not asked
        await asyncio.sleep(BELIEVED_S)
        await s.sealed("pg", command)
        assert asked == [command.command_id]


@virtually
async def test_a_claim_that_another_server_gave_meanwhile_counts() -> None:
    async with scene() as s:
        await s.client.put_credential(PUT)
        command = await s.claimed(USES)
        await s.join("w2")
        commands = s.r.plane.parts.store.commands
        get = commands.get

        async def elsewhere(command_id):
            return msgspec.structs.replace(await get(command_id), worker_id="w2")

        commands.get = elsewhere
        answer = await s.client.sealed(
            "pg", worker_id="w2", execution_id=command.execution_id, command_id=command.command_id
        )
        assert s.opened(answer, "pg", command.execution_id, "w2")["data"] == PG


@virtually
async def test_a_claim_that_this_server_took_away_is_believed_no_longer() -> None:
    async with scene() as s:
        await s.client.put_credential(PUT)
        command = await s.claimed(USES)
        await s.sealed("pg", command)
        await s.client.cancel(command.execution_id, Control(reason="enough"))
        assert await code_of(s.sealed("pg", command)) == "forbidden"


@virtually
async def test_nothing_counts_as_given_to_a_key_that_is_none() -> None:
    async with scene() as s:
        await s.client.put_credential(PUT)
        command = await s.claimed(USES)
        asked = delivery.Asked(
            name="pg", worker_id="w",
            execution_id=command.execution_id, command_id=command.command_id,
        )  # fmt: skip
        given, deliveries = [], s.r.plane.secrets.deliveries
        await deliveries.sealed(asked, given=lambda: given.append(1))
        assert given == [1]
        await s.join(worker_public_key=base64.b64encode(bytes(32)).decode())
        with pytest.raises(WorkerKeyMissing):
            await deliveries.sealed(asked, given=lambda: given.append(2))
        assert given == [1]
