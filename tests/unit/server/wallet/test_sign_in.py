"""What gateways get of the wallet for sign-in: one client of a provider, sealed, and no more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from noetl.api.credentials import CredentialPut
from noetl.api.identity import NewAccount, NewTenant
from noetl.secrets.sealed import CannotOpen, KeyPair, Sealed, about_delivery
from tests.unit.server.identity.people import caller, client_of, refusal
from tests.unit.server.pushed.stage import gateway
from tests.unit.server.rig import rig, virtually

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.api.credentials import SealedAnswer

INNER = "the-internal-token-of-this-rig"
SHUT = {"is_open": False, "internal_tokens": (INNER,)}
SECRET = "sign-in-canary-0001"  # noqa: S105 - of nobody
ALIAS = "idp/corp-client"
DATA = {"client_id": "noetl", "client_secret": SECRET, "audience": "noetl"}
WHERE = "/api/internal/sign-in/idp%2Fcorp-client?process=gw-1&provider=corp"


async def put(client: Client, name: str = ALIAS, type_: str = "oauth2", **data: Any) -> None:
    await client.put_credential(CredentialPut(name=name, type=type_, data=data or DATA))


def opened(
    answer: SealedAnswer,
    keys: KeyPair,
    process: str = "gw-1",
    provider: str = "corp",
    alias: str = ALIAS,
) -> Any:
    given = Sealed(alg=answer.alg, v=answer.v, eph_pub=answer.eph_pub, ciphertext=answer.ciphertext)
    about = about_delivery(process, f"sign-in:{provider}", alias)
    return msgspec.json.decode(keys.open(given, about))


@virtually
async def test_a_gateway_gets_its_client_of_a_provider_sealed_for_it_alone() -> None:
    async with rig() as r:
        await put(r.client)
        keys = await gateway(r.client)
        found = await r.client.sign_in_secret(ALIAS, "gw-1", "corp")
        inside = {"client_id": "noetl", "client_secret": SECRET}
        assert opened(found, keys) == {"type": "oauth2", "data": inside}
        assert found.expires_at == "2026-01-01T00:05:00.000000Z"
        for wrong in ({"process": "gw-2"}, {"provider": "other"}, {"alias": "idp/other"}):
            with pytest.raises(CannotOpen):
                opened(found, keys, **wrong)
        others = await gateway(r.client, "gw-2")
        with pytest.raises(CannotOpen):
            opened(found, others)
        answer = await r.client.raw("GET", WHERE)
        assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
        assert SECRET.encode() not in answer.body


@virtually
async def test_nothing_else_of_the_wallet_leaves() -> None:
    async with rig() as r:
        await gateway(r.client)
        await put(r.client, "plain", "secret", value=SECRET)
        await put(r.client, "login", "basic", username="u", password=SECRET)
        await put(r.client, "db", "postgres", host="h", password=SECRET)
        fetches = {"token_url": "https://id.example/token"}
        await put(r.client, "of_runs", **DATA, **fetches)
        await put(r.client, "of_a_person", **DATA, refresh_token="r")  # noqa: S106 - of nobody
        await put(r.client, "bare", client_id="noetl")
        asked = r.client.sign_in_secret
        for name in ("plain", "login", "db", "of_runs", "of_a_person", "bare"):
            assert await refusal(asked(name, "gw-1", "corp")) == (403, "forbidden"), name
        assert await refusal(asked("nobody", "gw-1", "corp")) == (404, "not_found")
        counted = r.plane.metrics.credentials_sealed.value
        assert (counted("ok"), counted("refused"), counted("error")) == (0, 6, 1)


@virtually
async def test_whoever_has_no_key_or_asks_badly_gets_nothing() -> None:
    async with rig() as r:
        await put(r.client)
        found = await refusal(r.client.sign_in_secret(ALIAS, "gw-1", "corp"))
        assert found == (400, "worker_key_missing")
        await gateway(r.client)
        for query in (
            "", "?process=gw-1", "?provider=corp", "?process=gw-1&provider=A%7Cb",
            "?process=&provider=corp",
        ):  # fmt: skip
            answer = await r.client.raw("GET", WHERE.partition("?")[0] + query)
            assert answer.status == 422, query


@virtually
async def test_only_gateways_are_given_it_and_each_time_is_audited() -> None:
    async with rig(**SHUT) as r:
        admin = await caller(r, "ada", "admin")
        await put(admin)
        await put(admin, "plain", "secret", value=SECRET)
        gate = await caller(r, "gate", "gateway")
        keys = await gateway(gate)
        found = await gate.sign_in_secret(ALIAS, "gw-1", "corp")
        assert opened(found, keys)["data"]["client_secret"] == SECRET
        assert (await refusal(gate.sign_in_secret("plain", "gw-1", "corp")))[0] == 403
        await client_of(r, INNER).sign_in_secret(ALIAS, "gw-1", "corp")
        for number, role in enumerate(("admin", "developer", "viewer", "worker", "runtime")):
            other = await caller(r, f"other-{number}", role)
            assert (await refusal(other.sign_in_secret(ALIAS, "gw-1", "corp")))[0] == 403
        await asyncio.sleep(61)  # refusals of a minute are written together
        rows = [row for row in await r.store.audit.read() if row.action == "secret.seal"]
        of_gate = [(row.resource, row.outcome) for row in rows if row.actor == "gate"]
        assert of_gate == [(ALIAS, "ok"), ("plain", "forbidden")]
        assert rows[0].details["worker_id"] == "gw-1"
        assert rows[0].details["provider"] == "corp"
        assert SECRET not in str(rows)


@virtually
async def test_the_wallet_of_a_tenant_is_not_that_of_the_gateway() -> None:
    async with rig(**SHUT) as r:
        inner = client_of(r, INNER)
        await gateway(inner)
        admin = await caller(r, "ada", "admin")
        await admin.add_tenant(NewTenant(tenant_id="acme", admin=NewAccount(subject="boss")))
        boss = await caller(r, "ann", "admin", tenant_id="acme")
        await put(boss)
        found = await refusal(inner.sign_in_secret(ALIAS, "gw-1", "corp"))
        assert found == (404, "not_found")
