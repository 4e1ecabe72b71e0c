"""Credentials for workers of other regions: minted like all, and not more trusted than needed."""

from __future__ import annotations

import msgspec
import pytest

from noetl.api.credentials import CredentialPut, CrossRegion
from noetl.api.problems import Refused
from noetl.secrets.sealed import KeyPair
from tests.unit.server.rig import virtually
from tests.unit.server.wallet.scene import CANARY, Asked, scene

CLIENT = {"client_id": "me", "client_secret": CANARY, "token_url": "https://idp/token"}
FAR = {"worker_id": "far", "execution_id": "77", "region": "us-east1"}


async def refused(asking) -> tuple[int, str]:
    with pytest.raises(Refused) as caught:
        await asking
    assert CANARY not in str(caught.value.problem)
    return caught.value.problem.status, caught.value.problem.code


@virtually
async def test_a_client_goes_out_as_its_token_and_without_its_secret() -> None:
    answer = {"access_token": "far-token-1", "refresh_token": CANARY, "expires_in": 3600}
    issuer = Asked(lambda _: answer)
    async with scene(fetch=issuer) as s:
        await s.client.put_credential(CredentialPut(name="api", type="oauth2", data=CLIENT))
        body = CrossRegion(name="api", public_key=s.keys.public, **FAR)
        for _ in range(2):
            sealed = await s.client.resolve_for_region(body)
            found = s.opened(sealed, "api", "77", "far")
            assert (found["type"], found["data"]["access_token"]) == ("oauth2", "far-token-1")
            assert CANARY not in str(found)
        assert len(issuer.asks) == 1


@virtually
async def test_what_this_server_knows_better_is_not_taken_on_trust() -> None:
    uses = "workflow:\n  - {step: start, tool: {kind: http, auth: tok, url: 'http://x'}}\n"
    async with scene() as s:
        for name in ("tok", "other"):
            await s.client.put_credential(
                CredentialPut(name=name, type="bearer", data={"token": CANARY})
            )
        await s.claimed(uses)
        body = CrossRegion(
            name="tok", public_key=s.keys.public, worker_id="w", execution_id=s.run, region="far"
        )

        def ask(**more):
            return s.client.resolve_for_region(msgspec.structs.replace(body, **more))

        assert s.opened(await ask(), "tok", s.run)["data"] == {"token": CANARY}
        assert await refused(ask(public_key=KeyPair.make().public)) == (403, "forbidden")
        assert await refused(ask(name="other")) == (403, "forbidden")
        assert await refused(ask(tenant_id="another")) == (403, "forbidden")
        assert await refused(ask(public_key="short")) == (400, "worker_key_missing")
        elsewhere = {"execution_id": "77", "worker_id": "unknown"}
        assert await refused(ask(name="none", **elsewhere)) == (404, "not_found")
        assert await refused(ask(tenant_id="another", **elsewhere)) == (404, "not_found")


@virtually
async def test_a_strict_credential_leaves_for_its_regions_only() -> None:
    key = KeyPair.make().public
    data = {"token": CANARY}
    strict = {"residency": "strict"}
    async with scene(region="eu-west6") as s:
        for name, region, meta in (
            ("home", "eu-west6", strict),
            ("both", "eu-west6", {**strict, "allowed_regions": ["eu-west6", "us-east1"]}),
            ("free", "eu-west6", {"residency": "advisory"}),
            ("away", "us-east1", {}),
            ("text", "eu-west6", {**strict, "allowed_regions": "us-east1"}),
        ):
            await s.client.put_credential(
                CredentialPut(name=name, type="bearer", data=data, region=region, meta=meta)
            )

        async def ask(name):
            return await s.client.resolve_for_region(CrossRegion(name=name, public_key=key, **FAR))

        for name in ("both", "free"):
            await ask(name)
        for name in ("home", "away", "text"):
            assert await refused(ask(name)) == (403, "residency_denied"), name


@virtually
async def test_allowed_regions_decide_where_a_credential_is_used() -> None:
    uses = "workflow:\n  - {step: start, tool: {kind: http, auth: %s, url: 'http://x'}}\n"
    strict = {"residency": "strict"}
    for region, allowed, is_given in (
        ("eu-west6", ["eu-west6"], True),
        ("eu-west6", ["us-east1", "eu-west6"], True),
        ("us-east1", ["eu-west6"], False),
        ("", ["eu-west6"], False),
    ):
        async with scene(region=region) as s:
            await s.client.put_credential(
                CredentialPut(
                    name="tok", type="bearer", data={"token": CANARY},
                    meta={**strict, "allowed_regions": allowed},
                )
            )  # fmt: skip
            command = await s.claimed(uses % "tok")
            if is_given:
                assert (await s.sealed("tok", command))["data"] == {"token": CANARY}
            else:
                assert await refused(s.sealed("tok", command)) == (403, "residency_denied")
