"""Secrets on their way: from the caller, through the server, to the worker that needs them."""

import asyncio
import json
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.request import urlopen

import pytest

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
from noetl.tools.http.egress import Egress
from noetl.tools.objects.store import Stores
from noetl.worker.app import WorkerParts, create_worker

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: way/p}\n"
LATE_S = 60.0
FIELD = "kept-field-9a1"
TOKEN = "kept-token-9a2"  # noqa: S105 - a canary of these tests
GIVEN = "given-input-9a3"


class Wire:
    """The transport of a worker, and all that went over it."""

    def __init__(self, below):
        self._below = below
        self.heard = []

    async def request(self, method, path, body=b"", headers=None):
        answer = await self._below.request(method, path, body, headers or {})
        self.heard.append((method, path, body + b" " + answer.body))
        return answer

    def __getattr__(self, name):
        return getattr(self._below, name)

    def of(self, part):
        return [path for _, path, _ in self.heard if part in path]


class Site:
    def __init__(self, client, wire, store, changed):
        self.changed = changed
        self.client = client
        self.wire = wire
        self.store = store

    async def put(self, name, kind, **data):
        await self.client.put_credential(CredentialPut(name=name, type=kind, data=data))

    async def run(self, text, **payload):
        """The detail of a run that has ended."""
        entry = await self.client.register(Register(content=HEAD + text))
        started = await self.client.execute(Execute(catalog_id=entry.catalog_id, payload=payload))
        async with asyncio.timeout(LATE_S):
            while True:
                self.changed.clear()
                found = await self.client.execution(started.execution_id)
                if found.status in {"COMPLETED", "FAILED"}:
                    return found
                await self.changed.wait()


@asynccontextmanager
async def site(folder, lifted=None):
    clock = SystemClock()
    changed = asyncio.Event()
    store = MemoryStore(on_commit=lambda *_: changed.set())
    server = create_server(
        ServerParts(
            store=store, bus=MemoryBus(), blobs=MemoryBlobs(), clock=clock, ids=Ids(clock, 1),
            wallet=wallet(clock),
        )
    )  # fmt: skip
    async with workshop(4) as shop, shop.tools(folder, clock) as tools, server:
        wire = Wire(AsgiTransport(server.asgi))
        worker = create_worker(
            WorkerParts(
                client=Client(wire), tools=tools, clock=clock, ids=Ids(clock, 2),
                worker_id="w-1", slots=4, stores=Stores(Egress(mode="open")), lifted=lifted or {},
            )
        )  # fmt: skip
        working = asyncio.create_task(worker.run())
        try:
            yield Site(Client(AsgiTransport(server.asgi)), wire, store, changed)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


@pytest.fixture
async def at(tmp_path):
    async with site(tmp_path) as made:
        yield made


@pytest.fixture
def remote():
    """A server that keeps what it hears."""
    heard = []

    class Remote(BaseHTTPRequestHandler):
        def do_GET(self):
            heard.append(dict(self.headers))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            """Nothing is said."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Remote)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    server.server_close()
    thread.join()


def code(value, text="result = [len(v), v]", more=""):
    return (
        f"{more}workflow:\n  - step: start\n    tool:\n      kind: python\n"
        f"      input: {{v: '{value}'}}\n      code: |\n        {text}\n"
    )


KINDS = {
    "credential": ("credential: c", "{{ keychain.k.token }}"),
    "static": ("map: {a: '{{ workload.it }}'}", "{{ keychain.k.a }}"),
    "bearer": ("token: '{{ workload.it }}'", "{{ keychain.k.token }}"),
    "basic": ("map: {username: u, password: '{{ workload.it }}'}", "{{ keychain.k.password }}"),
    "api_key": ("credential: c", "{{ keychain.k.key }}"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_task_gets_the_value_of_a_keychain_entry_and_nobody_else_does(at, kind):
    shape, named = KINDS[kind]
    await at.put("c", "bearer", token=TOKEN)
    more = (
        "inputs: {it: {type: string, secret: true}}\n"
        f"keychain: [{{name: k, kind: {kind}, {shape}}}]\n"
    )
    run = await at.run(code(named, more=more), it=GIVEN)

    secret = GIVEN if "workload.it" in shape else TOKEN
    assert (run.status, run.result) == ("COMPLETED", [len(secret), "***"])
    over_the_wire = b"".join(body for _, _, body in at.wire.heard).decode()
    assert secret not in over_the_wire


async def test_what_a_task_is_given_is_asked_for_once_per_command(at):
    await at.put("c", "bearer", token=TOKEN)
    text = code(
        "{{ keychain.k.token }}{{ keychain.k.token_type }}",
        more="keychain: [{name: k, kind: bearer, credential: c}]\n",
    )
    await at.run(text)
    assert len(at.wire.of("/sealed")) == 1
    await at.run(text)
    assert len(at.wire.of("/sealed")) == 2


async def test_a_missing_entry_fails_the_task_and_nothing_reaches_the_remote_side(at, remote):
    url, heard = remote
    run = await at.run(
        "keychain: [{name: k, kind: credential, credential: nowhere}]\nworkflow:\n"
        f"  - step: start\n    tool: {{kind: http, url: '{url}', "
        "headers: {X-Key: '{{ keychain.k.token }}'}}\n"
    )
    assert (run.status, run.error["code"]) == ("FAILED", "keychain_missing")
    assert heard == []


async def test_an_alias_becomes_a_header(at, remote):
    url, heard = remote
    await at.put("c", "bearer", token=TOKEN)
    run = await at.run(
        f"workflow:\n  - step: start\n    tool: {{kind: http, url: '{url}', auth: c}}\n"
    )
    assert run.status == "COMPLETED"
    assert [one["authorization"] for one in heard] == [f"Bearer {TOKEN}"]


@pytest.mark.parametrize(
    ("workload", "told"), [("", "credential_forbidden"), ("nowhere", "credential_not_found")]
)
async def test_a_credential_that_cannot_be_had_is_said(at, remote, workload, told):
    url, heard = remote
    await at.put("other", "bearer", token=TOKEN)
    alias = "'{{ workload.alias }}'" if workload else '\'{{ "oth" ~ "er" }}\''
    run = await at.run(
        f"workload: {{alias: '{workload}'}}\nworkflow:\n"
        f"  - step: start\n    tool: {{kind: http, url: '{url}', auth: {alias}}}\n"
    )
    assert (run.error["kind"], run.error["code"]) == ("auth", told)
    assert heard == []


async def test_a_secret_input_reaches_the_task_that_names_it(at):
    more = "inputs: {it: {type: object, properties: {pin: {type: string, secret: true}}}}\n"
    run = await at.run(code("{{ workload.it.pin }}", more=more), it={"pin": GIVEN, "x": 1})

    assert run.result == [len(GIVEN), "***"]
    assert GIVEN not in b"".join(body for _, _, body in at.wire.heard).decode()


async def test_a_task_gives_a_secret_a_name_that_later_tasks_use(at):
    await at.put("mail/relay", "basic", username="u", password=FIELD)
    run = await at.run("""\
workflow:
  - step: start
    tool: {kind: secrets, provider: wallet, name: mail/relay}
    next: {arcs: [{step: use}]}
  - step: use
    tool:
      kind: python
      input: {p: "{{ keychain.relay.password }}", h: "{{ start }}"}
      code: "result = [len(p), p, h]"
""")
    told = {"name": "mail/relay", "version": "latest", "handle": "relay"}
    assert (run.status, run.result) == ("COMPLETED", [len(FIELD), "***", told])


async def test_a_variable_is_no_secret_of_an_ordinary_pool(at):
    run = await at.run(
        "workflow:\n  - step: start\n    tool: {kind: secrets, provider: env, name: HOME}\n"
    )
    assert (run.error["kind"], run.error["code"]) == ("not_found", "secret_missing")


VARIABLES = """\
keychain:
  - name: mail
    kind: secret_manager
    provider: env
    map: {user: "MAIL_{{ workload.what }}", password: MAIL_PASSWORD}
workflow:
  - step: start
    tool: {kind: secrets, provider: env, name: MAIL_PASSWORD}
    next: {arcs: [{step: use}]}
  - step: use
    tool:
      kind: python
      input: {m: "{{ keychain.mail }}", p: "{{ keychain.MAIL_PASSWORD.value }}", h: "{{ start }}"}
      code: "result = [sorted(m), [len(v) for v in m.values()], m['password'] == p, p, h]"
"""


VARIABLE = """\
workflow:
  - step: start
    tool: {kind: secrets, provider: env, name: NAME}
    next: {arcs: [{step: use}]}
  - step: use
    tool:
      kind: python
      input: {p: "{{ keychain.NAME.value }}", h: "{{ start }}"}
      code: "result = [len(p), p, h]"
"""


async def test_variables_of_the_pool_that_may_are_entries_and_secrets(tmp_path):
    lifted = {
        "MAIL_USER": {"type": "secret", "data": {"value": "relay-user-9b4"}},
        "MAIL_PASSWORD": {"type": "secret", "data": {"value": FIELD}},
    }
    async with site(tmp_path, lifted) as at:
        run = await at.run(VARIABLES, what="USER")
    told = {"name": "MAIL_PASSWORD", "version": "latest", "handle": "MAIL_PASSWORD"}
    fields = [["password", "user"], [len("relay-user-9b4"), len(FIELD)]]
    assert (run.status, run.result) == ("COMPLETED", [*fields, True, "***", told]), run.error
    assert FIELD not in b"".join(body for _, _, body in at.wire.heard).decode()


@pytest.mark.parametrize("name", ["_MAIL_TOKEN", "MAIL_TOKEN_"])
async def test_a_variable_keeps_the_underscores_of_its_name(tmp_path, name):
    lifted = {name: {"type": "secret", "data": {"value": FIELD}}}
    async with site(tmp_path, lifted) as at:
        run = await at.run(VARIABLE.replace("NAME", name))
    told = {"name": name, "version": "latest", "handle": name}
    assert (run.status, run.result) == ("COMPLETED", [len(FIELD), "***", told]), run.error


async def test_an_entry_of_variables_is_not_found_in_an_ordinary_pool(at):
    more = "keychain: [{name: home, kind: secret_manager, provider: env, map: {it: HOME}}]\n"
    run = await at.run(code("{{ keychain.home.it }}", more=more))
    assert (run.error["kind"], run.error["code"]) == ("auth", "credential_not_found")


async def test_new_values_of_a_credential_are_those_of_the_next_task(at):
    await at.put("c", "bearer", token=TOKEN)
    text = code(
        "{{ keychain.k.token }}",
        "import hashlib; result = hashlib.sha256(v.encode()).hexdigest()",
        "keychain: [{name: k, kind: credential, credential: c}]\n",
    )
    first = (await at.run(text)).result
    await at.put("c", "bearer", token=FIELD)
    assert (await at.run(text)).result != first


async def test_the_tables_hold_records_and_no_values(at):
    await at.put("c", "bearer", token=TOKEN)
    more = "inputs: {it: {type: string, secret: true}}\n"
    run = await at.run(code("{{ workload.it }}", more=more), it=GIVEN)
    rows = [
        await at.store.credentials.get("default", "c"),
        await at.store.execution_secrets.get(run.execution_id),
    ]
    assert not any(secret in json.dumps(rows, default=str) for secret in (TOKEN, GIVEN))


LINK = """workflow:
- step: start
  tool: {{kind: s3, auth: store, operation: put, bucket: {bucket}, key: k, data: text}}
  next: {{arcs: [{{step: link}}]}}
- step: link
  tool: {{kind: s3, auth: store, operation: sign, bucket: {bucket}, key: k}}
"""


def fetched(url):
    with urlopen(url, timeout=10) as answer:  # noqa: S310 - of our own server
        return answer.read()


async def test_a_link_that_a_run_signed_can_be_followed(at, s3_server):
    await at.put("store", "s3", **s3_server.fields)
    found = await at.run(LINK.format(bucket=s3_server.bucket()))
    assert found.error is None
    assert s3_server.fields["access_key_id"] in found.result["url"]
    assert await asyncio.to_thread(fetched, found.result["url"]) == b"text"


async def test_a_link_that_would_show_a_session_token_is_refused(at, s3_server):
    token = "session-token/9a4+x"  # noqa: S105 - a canary of these tests
    await at.put("store", "s3", **s3_server.fields, session_token=token)
    found = await at.run(LINK.format(bucket=s3_server.bucket()))
    assert (found.error["kind"], found.error["code"]) == ("auth", "link_shows_secret")
    assert "session token" in found.error["message"]
    assert token not in str(found)
