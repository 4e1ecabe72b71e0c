"""Signing in at a provider that is a process of its own, over sockets and through the guard."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from noetl.api.credentials import CredentialPut
from noetl.api.sockets import SocketTransport
from noetl.bus.gateway import GatewayBus
from noetl.gateway.errors import InvalidSession, TicketUsed
from noetl.gateway.metrics import GatewayMetrics
from noetl.gateway.oidc.flow import challenge_of
from noetl.gateway.sessions import Sessions, digest
from noetl.gateway.tickets import Tickets
from noetl.settings.gateway import SignInProvider
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.http.fetching import Fetcher
from tests.fakes.issuer import CLIENT, SECRET, Process
from tests.unit.gateway.desk import Clock, People
from tests.unit.gateway.rig import gateway_rig, until
from tests.unit.gateway.served import served

VERIFIER = "verifier-" + "v" * 43
LOOPBACK = "http://127.0.0.1:45678/back"
TOKEN = "nts_" + "a" * 51


@pytest.fixture(scope="module")
def provider():
    process = Process()
    yield process
    process.stop()


class Browser:
    """Goes where it is sent, with the cookies that it was given."""

    def __init__(self, url):
        self._way = SocketTransport(url, timeout_s=30)
        self.cookies = {}

    async def go(self, path, method="GET", body=None):
        headers = {"content-type": "application/json"}
        if self.cookies:
            headers["cookie"] = "; ".join(f"{name}={text}" for name, text in self.cookies.items())
        data = b"" if body is None else json.dumps(body).encode()
        answer = await self._way.request(method, path, data, headers)
        given = answer.headers.get("set-cookie", "").partition(";")[0]
        if given:
            name, _, text = given.partition("=")
            self.cookies[name] = text
        return answer

    async def close(self):
        await self._way.close()


@asynccontextmanager
async def stood(provider, *, is_let_through=True, **secret):
    """A gateway on a socket that knows the provider, and a browser."""
    always = (provider.url,) if is_let_through else ()
    fetch = Fetcher(Guard(egress=Egress(always=always)))
    one = SignInProvider(
        name="corp", issuer=provider.url, client_id=CLIENT, audience=CLIENT,
        role_claim="groups", role_map={"engineers": "developer"},
        **(secret or {"client_secret": SECRET}),
    )  # fmt: skip
    async with gateway_rig(fetch=fetch, providers=(one,)) as rig:
        now = int(rig.gate.clock.now().timestamp())  # which is another one than the provider's
        await asyncio.to_thread(provider.tell, "set", claims={"iat": now, "exp": now + 300})
        async with served(rig.gateway.asgi) as url:
            browser = Browser(url)
            try:
                async with asyncio.timeout(50):
                    yield rig, browser
            finally:
                await browser.close()
                await fetch.close()


def told(answer):
    return json.loads(answer.body)


def code(answer):
    return answer.status, told(answer)["code"]


async def test_a_browser_signs_in_at_a_provider_in_another_process(provider):
    async with stood(provider) as (_, browser):
        start = await browser.go("/api/auth/oidc/corp/start?return_to=/executions")
        back = await asyncio.to_thread(provider.visit, start.headers["location"])
        done = await browser.go(f"/api/auth/oidc/corp/callback?{urlencode(back)}")
        who = await browser.go("/api/auth/whoami")
        again = await browser.go(f"/api/auth/oidc/corp/callback?{urlencode(back)}")
    assert (done.status, done.headers["location"]) == (302, "/executions")
    assert sorted(browser.cookies) == ["noetl_session", "noetl_sign_in"]
    assert (told(who)["email"], told(who)["roles"]) == ("ada@example.org", ["developer"])
    assert code(again) == (401, "bad_state")


async def test_a_program_exchanges_its_code_for_a_session(provider):
    asked = {
        "client_id": CLIENT, "response_type": "code", "redirect_uri": LOOPBACK, "scope": "openid",
        "state": "s", "nonce": "n-1", "code_challenge": challenge_of(VERIFIER),
        "code_challenge_method": "S256",
    }  # fmt: skip
    async with stood(provider) as (_, browser):
        answers = []
        for verifier in ("w" * 43, VERIFIER):
            back = await asyncio.to_thread(
                provider.visit, f"{provider.url}/authorize?{urlencode(asked)}"
            )
            body = {
                "code": back["code"], "code_verifier": verifier, "redirect_uri": LOOPBACK,
                "nonce": "n-1",
            }  # fmt: skip
            answers.append(await browser.go("/api/auth/oidc/corp/exchange", "POST", body))
    assert code(answers[0]) == (401, "code_refused")
    assert told(answers[1])["status"] == "authenticated"
    assert told(answers[1])["user"]["email"] == "ada@example.org"


async def test_keys_of_the_provider_may_rotate_while_people_sign_in(provider):
    async with stood(provider) as (_, browser):
        found = []
        for _ in range(2):
            token = await asyncio.to_thread(provider.id_token)
            found.append(await browser.go("/api/auth/login", "POST", {"auth0_token": token}))
            await asyncio.to_thread(provider.tell, "rotate")
    assert [one.status for one in found] == [200, 200]


async def test_the_guard_keeps_an_address_of_this_machine_from_being_asked(provider):
    before = (await asyncio.to_thread(provider.tell, "seen"))["seen"]
    async with stood(provider, is_let_through=False) as (_, browser):
        token = await asyncio.to_thread(provider.id_token)
        answer = await browser.go("/api/auth/login", "POST", {"auth0_token": token})
        start = await browser.go("/api/auth/oidc/corp/start")
    after = (await asyncio.to_thread(provider.tell, "seen"))["seen"]
    assert code(answer) == code(start) == (503, "auth_unavailable")
    assert after == before


async def test_an_unknown_domain_makes_no_connection(provider):
    before = (await asyncio.to_thread(provider.tell, "seen"))["seen"]
    async with stood(provider) as (_, browser):
        token = await asyncio.to_thread(provider.id_token)
        body = {"auth0_token": token, "auth0_domain": "localhost"}
        answer = await browser.go("/api/auth/login", "POST", body)
    after = (await asyncio.to_thread(provider.tell, "seen"))["seen"]
    assert code(answer) == (401, "issuer_not_allowed")
    assert after == before


async def test_where_a_browser_is_sent_says_what_the_provider_needs(provider):
    async with stood(provider) as (_, browser):
        start = await browser.go("/api/auth/oidc/corp/start")
    parts = urlsplit(start.headers["location"])
    asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
    assert f"{parts.scheme}://{parts.netloc}" == provider.url
    assert set(asked) == {
        "response_type", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge",
        "code_challenge_method",
    }  # fmt: skip
    assert SECRET not in start.headers["location"]


async def test_the_secret_of_the_gateway_may_lie_in_the_wallet_and_be_renewed_there(provider):
    async def signs_in():
        start = await browser.go("/api/auth/oidc/corp/start")
        back = await asyncio.to_thread(provider.visit, start.headers["location"])
        return await browser.go(f"/api/auth/oidc/corp/callback?{urlencode(back)}")

    async def put(name, type_, **data):
        await rig.admin.put_credential(CredentialPut(name=name, type=type_, data=data))

    async with stood(provider, client_secret_alias="idp/corp") as (rig, browser):  # noqa: S106 - a name
        await until(lambda: rig.gate.registration.is_known)
        missing = await signs_in()
        await put("idp/corp", "secret", value=SECRET)
        of_another_type = await signs_in()
        await rig.admin.delete_credential("idp/corp")
        await put("idp/corp", "oauth2", client_id=CLIENT, client_secret="of-yesterday")  # noqa: S106 - of a test
        wrong = await signs_in()
        rig.gate.sign_ins._secrets._kept.clear()  # noqa: SLF001 - a while has passed
        await rig.gate.sign_ins._secret(rig.gate.providers.named("corp"))  # noqa: SLF001 - held
        await put("idp/corp", "oauth2", client_id=CLIENT, client_secret=SECRET)
        renewed = await signs_in()
        who = await browser.go("/api/auth/whoami")
        rows = [one for one in await rig.server.store.audit.read() if one.action == "secret.seal"]
        shown = rig.gate.seen.masked(f"it is {SECRET}")
    assert [code(one) for one in (missing, of_another_type)] == [(503, "auth_unavailable")] * 2
    assert code(wrong) == (401, "code_refused")
    assert (renewed.status, renewed.headers["location"]) == (302, "/")
    assert told(who)["email"] == "ada@example.org"
    assert {one.resource for one in rows} == {"idp/corp"}
    assert SECRET not in shown
    assert SECRET not in str(rows)


# ------------------------------------------------------------------------------- real NATS


@asynccontextmanager
async def replicas(url, count=2):
    """Sessions and tickets of several gateways on one NATS, each with a connection of its own."""
    clock = Clock()
    people = People(clock)
    people.add(TOKEN)
    opened = [await GatewayBus.open(url) for _ in range(count)]
    made = []
    try:
        for bus in opened:
            await bus.ready(30)
            sessions = Sessions(
                keys=bus.sessions, bus=bus.bus, upstream=people, clock=clock,
                metrics=GatewayMetrics(),
            )  # fmt: skip
            tickets = Tickets(keys=bus.sessions, sessions=sessions, clock=clock)
            made.append((sessions, tickets))
        yield people, made
    finally:
        for bus in opened:
            await bus.close()


async def test_a_ticket_is_taken_once_by_however_many_replicas(clean_nats_url):
    async with replicas(clean_nats_url) as (_, made):
        (sessions, tickets), (_, others) = made
        person = await sessions.of(TOKEN)
        for _ in range(5):
            ticket = await tickets.issue(person, "ws")
            found = await asyncio.gather(
                *(one.redeem(ticket, "ws") for one in (tickets, others) * 4),
                return_exceptions=True,
            )
            kinds = sorted(type(one).__name__ for one in found)
            assert kinds == ["Person", *["TicketUsed"] * 7]
        ticket = await tickets.issue(person, "ws")
        with pytest.raises(TicketUsed):
            await others.redeem(ticket, "events")


async def test_the_end_of_a_session_reaches_the_other_replica(clean_nats_url):
    async with replicas(clean_nats_url) as (people, made):
        (here, _), (there, _) = made
        closed = asyncio.Queue()
        there.on_revoked.append(closed.put)
        listening = asyncio.create_task(there.listen())
        for sessions in (here, there):
            await sessions.of(TOKEN)
        assert people.asked == [TOKEN]
        people.known.clear()
        async with asyncio.timeout(30):
            while closed.empty():  # what was told before somebody listened is heard by nobody
                await here.ended("7001", digest(TOKEN))
                await asyncio.sleep(0.05)
        assert closed.get_nowait() == "7001"
        for sessions in (here, there):
            with pytest.raises(InvalidSession):
                await sessions.of(TOKEN)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
