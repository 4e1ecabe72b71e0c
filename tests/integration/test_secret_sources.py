"""Secrets of other systems, and trials of credentials: a real worker, and systems that check."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from google.pubsub_v1.types import PubsubMessage

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.credentials import CredentialPut
from noetl.api.executions import Execute
from noetl.api.http import AsgiTransport
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.ids import Ids
from noetl.local.credentials import wallet
from noetl.local.workshop import workshop
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.store.memory.store import MemoryStore
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.http.fetching import Fetcher
from noetl.tools.objects.store import Stores
from noetl.worker.app import WorkerParts, create_worker
from tests.fakes import oauth as known
from tests.fakes.azure import SCOPE, Azure
from tests.fakes.google import EMAIL, OTHER, Google, decoded
from tests.fakes.oauth import OAuth
from tests.fakes.pubsub import Desk

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: far/p}\n"
LATE_S = 60.0
GOOGLE = ("iamcredentials.googleapis.com", "metadata.google.internal")


class Towards:
    """Requests to the addresses of Google go to the stand-in; all others go where they say."""

    def __init__(self, below, url):
        self._below = below
        self._url = url

    async def __call__(self, ask):
        parts = urlsplit(ask.url)
        if parts.hostname in GOOGLE:
            query = f"?{parts.query}" if parts.query else ""
            ask = type(ask)(
                method=ask.method, url=f"{self._url}{parts.path}{query}", headers=ask.headers,
                body=ask.body, timeout_s=ask.timeout_s,
            )  # fmt: skip
        return await self._below(ask)


class Site:
    def __init__(self, client, store, changed):
        self.client = client
        self.store = store
        self._changed = changed

    async def put(self, name, kind, data, **more):
        await self.client.put_credential(CredentialPut(name=name, type=kind, data=data, **more))

    async def ended(self, run):
        async with asyncio.timeout(LATE_S):
            while True:
                self._changed.clear()
                found = await self.client.execution(run)
                if found.status in {"COMPLETED", "FAILED"}:
                    return found
                await self._changed.wait()

    async def run(self, text, **payload):
        entry = await self.client.register(Register(content=HEAD + text))
        started = await self.client.execute(Execute(catalog_id=entry.catalog_id, payload=payload))
        return await self.ended(started.execution_id)


@asynccontextmanager
async def site(folder, **more):
    clock, changed = SystemClock(), asyncio.Event()
    store = MemoryStore(on_commit=lambda *_: changed.set())
    parts = ServerParts(
        store=store, bus=MemoryBus(), blobs=MemoryBlobs(), clock=clock, ids=Ids(clock, 1),
        wallet=wallet(clock), **more,
    )  # fmt: skip
    async with workshop(4) as shop, shop.tools(folder, clock) as tools, create_server(parts) as s:
        client = Client(AsgiTransport(s.asgi))
        worker = create_worker(
            WorkerParts(
                client=client, tools=tools, clock=clock, ids=Ids(clock, 2), worker_id="w-1",
                slots=4, blobs=MemoryBlobs(), stores=Stores(Egress(mode="open")),
            )
        )  # fmt: skip
        working = asyncio.create_task(worker.run())
        try:
            yield Site(client, store, changed)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


def served(fake):
    @pytest.fixture(scope="module")
    def web():
        made = fake()
        yield made
        made.stop()

    return web


oauth_web, google_web, azure_web = served(OAuth), served(Google), served(Azure)


@pytest.fixture
async def at(tmp_path, google_web):
    fetcher = Fetcher(Guard(egress=Egress(mode="open")))
    fetch = Towards(fetcher, google_web.url)
    async with site(tmp_path, fetch=fetch, metadata=fetch) as made:
        yield made
    await fetcher.close()


# ---------------------------------------------------------------------- through the keychain


def reading(entry, *fields):
    """A playbook whose task tells what it sees, letter by letter: nothing else is covered."""
    given = ", ".join(f"{name}: '{{{{ keychain.k.{name} }}}}'" for name in fields)
    return (
        f"keychain:\n  - {{name: k, {entry}}}\nworkflow:\n  - step: start\n    tool:\n"
        f"      kind: python\n      input: {{{given}}}\n"
        f"      code: 'result = {{n: list(v) for n, v in [{_pairs(fields)}]}}'\n"
    )


def _pairs(fields):
    return ", ".join(f'("{name}", {name})' for name in fields)


async def seen(at, entry, *fields):
    run = await at.run(reading(entry, *fields))
    assert run.status == "COMPLETED", run.error
    return {name: "".join(text) for name, text in run.result.items()}


async def test_an_identity_token_of_google(at, google_web):
    await at.put("sa", "gcp", {"service_account": google_web.account})
    entry = "kind: google_id_token, auth: sa, endpoint: 'https://svc.example'"
    found = await seen(at, entry, "id_token", "token")
    claims = json.loads(decoded(found["id_token"].split(".")[1]))
    assert (claims["aud"], found["token"]) == ("https://svc.example", found["id_token"])
    entry = "kind: google_id_token, endpoint: 'https://machine.example'"
    claims = (await seen(at, entry, "id_token"))["id_token"].split(".")[1]
    assert json.loads(decoded(claims))["aud"] == "https://machine.example"


async def test_tokens_of_an_account_of_google_and_of_one_it_acts_for(at, google_web):
    await at.put("sa", "gcp", {"service_account": google_web.account})
    token = (await seen(at, "kind: oauth2, token_type: gcp-iam, auth: sa", "token"))["token"]
    assert token in google_web.tokens
    entry = (
        f"kind: oauth2, provider: gcp, auth: sa, data: {{impersonate: '{OTHER}', scope: 'scope-a'}}"
    )
    token = (await seen(at, entry, "access_token"))["access_token"]
    assert google_web.tokens[token] == "scope-a"
    entry = f"kind: google_id_token, auth: {{credential: sa, impersonate: '{OTHER}'}}, endpoint: a"
    claims = (await seen(at, entry, "id_token"))["id_token"].split(".")[1]
    assert json.loads(decoded(claims))["email"] == OTHER != EMAIL


async def test_the_identity_of_the_servers_machine_is_not_given_away(at, google_web):
    before = len(google_web.asked)
    managed = "kind: secret_manager, provider: gcp, map: {token: projects/p/secrets/s}"
    for entry in (
        "kind: oauth2, token_type: gcp-iam",
        f"{managed}, auth: {{endpoint: '{google_web.url}'}}",
    ):
        run = await at.run(reading(entry, "token"))
        assert (run.status, run.error["code"]) == ("FAILED", "secret_refused"), run.error
    assert len(google_web.asked) == before


async def test_keys_of_aws_that_end(at, s3_server):
    await at.put("aws", "aws", s3_server.fields)
    for entry in ("token_type: aws-sts", "provider: aws, data: {duration_seconds: 1200}"):
        found = await seen(
            at, f"kind: oauth2, auth: aws, {entry}", "access_key_id", "session_token"
        )
        assert all(found.values())
        assert found["access_key_id"] != s3_server.fields["access_key_id"]


async def test_a_token_of_azure(at, azure_web):
    fields = ", ".join(f"{name}: '{value}'" for name, value in azure_web.fields.items())
    entry = f"kind: oauth2, token_type: azure-oauth, auth: {{{fields}, scope: '{SCOPE}'}}"
    token = (await seen(at, entry, "access_token"))["access_token"]
    assert token in azure_web.tokens


async def test_a_client_is_never_given_away_by_any_kind_of_entry(at, oauth_web):
    data = {
        "client_id": known.CLIENT, "client_secret": known.SECRET,
        "token_url": f"{oauth_web.url}/oauth/token",
    }  # fmt: skip
    await at.put("api", "oauth2", data)
    before = len(oauth_web.asked)
    for kind in ("static", "bearer", "credential", "api_key"):
        entry = f"kind: {kind}, credential: api"
        name = "key" if kind == "api_key" else "token"
        assert (await seen(at, entry, name))[name].startswith("canary-access-"), kind
        for hidden in ("client_secret", "refresh_token"):
            run = await at.run(reading(entry, hidden))
            assert run.status == "FAILED", (kind, hidden)
    run = await at.run(reading("kind: oauth2, auth: api", "refresh_token"))
    assert run.status == "FAILED"
    assert len(oauth_web.asked) - before == 2  # the credential's token, and the entry's


async def test_an_entry_is_asked_for_with_the_secret_of_a_client_that_never_goes_out(at, oauth_web):
    await at.put("app", "oauth2", {"client_id": known.CLIENT, "client_secret": known.SECRET})
    chain = f"""\
keychain:
  - {{name: app, kind: credential, credential: app}}
  - {{name: both, kind: static, map: {{id: "{{{{ keychain.app.client_id }}}}",
     word: "{{{{ keychain.app.client_secret }}}}"}}, endpoint: "https://never.asked"}}
  - name: k
    kind: oauth2
    endpoint: "{oauth_web.url}/oauth/token"
    data: {{grant_type: client_credentials, client_id: "{{{{ keychain.both.id }}}}",
      client_secret: "{{{{ keychain.both.word }}}}"}}
"""
    text = reading("x", "token").partition("workflow:")[2]
    run = await at.run(f"{chain}workflow:{text}")
    assert run.status == "COMPLETED", run.error
    assert "".join(run.result["token"]).startswith("canary-access-")
    for name in ("app.client_secret", "both.word"):
        hidden = reading("x", "token").partition("workflow:")[2].replace("k.token", name)
        run = await at.run(f"{chain}workflow:{hidden}")
        assert (run.status, known.SECRET in str(run)) == ("FAILED", False), name


# ------------------------------------------------------------------------------- trials


async def tried(at, name):
    run = (await at.client.test_credential(name)).execution_id
    return await at.ended(run)


async def test_a_database_is_tried(at, postgres_url):
    parts = urlsplit(postgres_url)
    right = {"url": postgres_url}
    await at.put("right", "postgres", right)
    run = await tried(at, "right")
    assert run.status == "COMPLETED", run.error
    wrong = postgres_url.replace(parts.path, "/no_such_database")
    await at.put("wrong", "postgres", {"url": wrong})
    assert (await tried(at, "wrong")).status == "FAILED"


async def test_a_bus_is_tried(at, nats_url):
    await at.put("right", "nats", {"url": nats_url})
    run = await tried(at, "right")
    assert run.status == "COMPLETED", run.error
    at_host = nats_url.rpartition("@")[2]
    wrong = {"url": f"nats://{at_host}", "user": "noetl", "password": "wrong-canary-1"}
    await at.put("wrong", "nats", wrong)
    failed = await tried(at, "wrong")
    assert failed.status == "FAILED"
    assert "wrong-canary-1" not in str(failed)


async def test_a_bucket_is_tried(at, s3_server):
    await at.put("right", "s3", s3_server.fields, meta={"test": {"bucket": s3_server.bucket()}})
    run = await tried(at, "right")
    assert run.status == "COMPLETED", run.error
    await at.put("wrong", "s3", s3_server.fields, meta={"test": {"bucket": "no-such-bucket-1"}})
    assert (await tried(at, "wrong")).status == "FAILED"


async def test_a_topic_is_tried(at, kafka_cluster):
    data, topic = {"brokers": kafka_cluster.brokers.split(",")}, kafka_cluster.topic()
    await at.put("right", "kafka", data, meta={"test": {"topic": topic}})
    run = await tried(at, "right")
    assert run.status == "COMPLETED", run.error
    await at.put("wrong", "kafka", data, meta={"test": {"topic": "no-such-topic"}})
    failed = await tried(at, "wrong")
    assert (failed.status, failed.error["code"]) == ("FAILED", "topic_not_found")
    login = {"sasl_username": "noetl", "sasl_password": "wrong-canary-2"}
    away = {"brokers": ["127.0.0.1:1"], **login}
    await at.put("away", "kafka", away, meta={"test": {"topic": topic, "group": "g"}})
    failed = await tried(at, "away")
    assert (failed.status, failed.error["kind"], "wrong-canary-2" in str(failed)) == (
        "FAILED", "connection", False,
    )  # fmt: skip


async def test_a_subscription_of_pubsub_is_tried(at, pubsub_emulator):
    desk = Desk(pubsub_emulator.host)
    path = await desk.subscription("trial")
    await desk.publish("trial", PubsubMessage(data=b"1"))
    data = {"endpoint": f"http://{pubsub_emulator.host}", "token": "wrong-canary-3"}
    await at.put("right", "pubsub", data, meta={"test": {"subscription": path}})
    run = await tried(at, "right")
    assert run.status == "COMPLETED", run.error
    await at.put("wrong", "pubsub", data, meta={"test": {"subscription": f"{path}-not"}})
    failed = await tried(at, "wrong")
    assert (failed.status, failed.error["code"], "wrong-canary-3" in str(failed)) == (
        "FAILED", "subscription_not_found", False,
    )  # fmt: skip
    await desk.close()


async def test_a_token_is_tried_where_its_credential_says(at, azure_web):
    azure_web.tokens.add("trial-token-1")
    azure_web.kept["it"] = ["kept-1"]
    where = {"test": {"url": f"{azure_web.url}/secrets/it/?api-version=7.4"}}
    await at.put("right", "bearer", {"token": "trial-token-1"}, meta=where)
    run = await tried(at, "right")
    assert run.status == "COMPLETED", run.error
    await at.put("wrong", "bearer", {"token": "trial-token-2"}, meta=where)
    failed = await tried(at, "wrong")
    assert (failed.status, "trial-token-2" in str(failed)) == ("FAILED", False)


async def test_an_mcp_server_is_tried(at, mcp_server):
    await at.put("right", "mcp", {"url": mcp_server.url, "token": "mcp-canary-1"})
    run = await tried(at, "right")
    assert run.status == "COMPLETED", run.error
    assert any("mcp-canary-1" in one.get("authorization", "") for one in mcp_server.headers)
    await at.put("wrong", "mcp", {"url": "http://127.0.0.1:9/mcp", "token": "mcp-canary-2"})
    assert (await tried(at, "wrong")).status == "FAILED"
