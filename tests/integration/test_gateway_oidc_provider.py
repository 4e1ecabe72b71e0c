"""Signing in at an OpenID provider that is not ours: the code flow with PKCE, as browsers go it."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from noetl.clock import SystemClock
from noetl.settings.gateway import SignInProvider
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.http.fetching import Fetcher
from tests.integration.test_gateway_oidc import Browser, code, told
from tests.servers.oidc import Provider
from tests.unit.gateway.rig import gateway_rig
from tests.unit.gateway.served import served

CLIENT = "noetl-gateway"
SECRET = "a-secret-of-nobody"  # noqa: S105 - of a test
BACK = "https://gate.example.org/api/auth/oidc/corp/callback"
PERSON = {
    "email": "ada@example.org", "email_verified": True, "name": "Ada Lovelace",
    "groups": ["engineers"],
}  # fmt: skip


@pytest.fixture(scope="module")
def provider():
    made = Provider(client_id=CLIENT, client_secret=SECRET, redirect_uris=[BACK], person=PERSON)
    yield made
    made.stop()


async def test_a_browser_signs_in_at_a_provider_that_others_have_written(provider):
    fetch = Fetcher(Guard(egress=Egress(always=(provider.url,))))
    one = SignInProvider(
        name="corp", issuer=provider.url, client_id=CLIENT, audience=CLIENT, client_secret=SECRET,
        redirect_uri=BACK, role_claim="groups", role_map={"engineers": "developer"},
    )  # fmt: skip
    clock = {"clock": SystemClock()}  # the one that the provider has
    async with (
        gateway_rig(clock, fetch=fetch, providers=(one,)) as rig,
        served(rig.gateway.asgi) as url,
        asyncio.timeout(50),
    ):
        browser = Browser(url)
        start = await browser.go("/api/auth/oidc/corp/start?return_to=/executions")
        asked = parse_qs(urlsplit(start.headers["location"]).query)
        back = await asyncio.to_thread(provider.sign_in, start.headers["location"], "ada")
        done = await browser.go(f"/api/auth/oidc/corp/callback?{urlencode(back)}")
        who = told(await browser.go("/api/auth/whoami"))
        again = await browser.go(f"/api/auth/oidc/corp/callback?{urlencode(back)}")
        await browser.close()
        await fetch.close()
    assert asked["code_challenge_method"] == ["S256"]
    assert (back["state"], back["iss"]) == (asked["state"][0], provider.url)
    assert (done.status, done.headers.get("location")) == (302, "/executions")
    assert (who["email"], who["roles"]) == ("ada@example.org", ["developer"])
    assert code(again) == (401, "bad_state")
