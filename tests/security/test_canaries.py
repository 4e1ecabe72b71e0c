"""No secret is seen anywhere: neither where it is kept, nor where it is told, nor on the way."""

import asyncio
import json
import os
import subprocess
import sys
from base64 import b64encode
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qsl, urlsplit
from urllib.request import Request, urlopen

import asyncpg
import pytest

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.credentials import CredentialPut
from noetl.api.executions import Execute
from noetl.api.sockets import SocketTransport
from noetl.clock import SystemClock
from noetl.dsl.documents.credential_types import PLAIN
from noetl.dsl.documents.credential_types import TYPES as PRODUCT_TYPES
from noetl.dsl.parse import read
from noetl.dsl.playbook.document import KeychainEntry, Playbook
from noetl.dsl.shape import Fields
from noetl.ids import Ids
from noetl.local.workshop import workshop
from noetl.telemetry.redact import Redactor
from noetl.telemetry.traces.collector import Collector
from noetl.worker.app import WorkerParts, create_worker
from tests.security.canaries import TYPES, canary, cases, forms, hits
from tests.security.neighbours import Neighbours, of_issuers, of_near, of_warehouse
from tests.servers.nats import NatsServer
from tests.servers.stack import FullStack

NOETL = Path(sys.executable).with_name("noetl")
LATE_S = 120.0
KEY = b64encode(b"the key of keys of these tests!!").decode()


class Echo(BaseHTTPRequestHandler):
    """Answers with what it heard."""

    def do_GET(self):
        heard = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        body = json.dumps({**self.headers, "body": heard}).encode()
        self.send_response({"/broken": 503, "/refused": 401}.get(self.path, 200))
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the name of http.server

    def log_message(self, *_):
        """Nothing is said."""


class Open(Redactor):
    """A redactor that lets everything through: what the control run has."""

    def redact(self, text):
        return text

    def redact_value(self, value):
        return value

    def cover(self):
        return None


@pytest.fixture(scope="module")
def echo():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def traced(postgres_server, tmp_path_factory):
    """A stack with a key that seals, which tells its spans; and all that they were."""
    folder = tmp_path_factory.mktemp("canaries")
    nats = NatsServer(folder / "nats")
    name = postgres_server.make()
    with ExitStack() as ending:
        collector = ending.enter_context(Collector())
        ending.callback(postgres_server.drop, name)
        ending.callback(nats.stop)
        nats.start()
        stack = FullStack(
            postgres_server.url_of(name), nats.url, folder, NOETL_LOG_LEVEL="debug",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, NOETL_ENCRYPTION_KEY=KEY,
            NOETL_HTTP_ALLOW="127.0.0.1",
        )  # fmt: skip
        ending.callback(stack.stop)
        yield stack, collector


class Play:
    """Every case, played once, and what could be seen of it."""

    def __init__(self, stack, pool):
        self.stack = stack
        self.pool = pool
        self.runs = {}
        self.ends = {}
        self.sinks = {}

    async def play(self, chosen):
        async with self.stack.client() as client, asyncio.timeout(LATE_S):
            watching = asyncio.create_task(self._children())
            for case in chosen:
                await client.register(Register(content=case.text))
            frames = await asyncio.gather(*(self._one(client, case) for case in chosen))
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            self.sinks["server-sent events"] = "".join(frames)
            self.sinks["api"] = "".join([await self._shown(client, run) for run in self.runs])

    async def _one(self, client, case):
        for name, (kind, data) in case.credentials.items():
            await client.put_credential(CredentialPut(name=name, type=kind, data=data))
        path = f"canary/{case.name}"
        body = Execute(path=path, payload=case.payload, execution_pool=self.pool)
        run = (await client.execute(body)).execution_id
        self.runs[run] = case
        frames = [json.dumps(one, default=str) async for one in client.stream(run, fields="full")]
        self.ends[case.name] = (await client.execution(run)).status
        return "".join(frames)

    async def _shown(self, client, run):
        page = await client.events(run, limit=1000)
        detail = await client.execution(run)
        return json.dumps([page.items, str(detail)], default=str)

    async def _children(self):
        """The environment and the words of every child of the processes, while they live."""
        found = {}
        while True:
            for pid in descendants(set(self.stack.processes.values()) | {os.getpid()}):
                found[pid] = outside(pid)
            self.sinks["children"] = b"".join(found.values()).decode("utf-8", "replace")
            await asyncio.sleep(0.1)

    def look(self):
        """What lies in the database and in files, and what processes and commands said."""
        self.sinks["database"] = asyncio.run(dumped(self.stack.database_url))
        for file in self.stack.folder.rglob("*"):
            if file.is_file():
                with suppress(OSError):
                    name = file.relative_to(self.stack.folder)
                    self.sinks[f"file {name}"] = file.read_bytes().decode("latin-1")
        for name, said in self.stack.said.items():
            self.sinks[f"log of {name}"] = said
        first = next(iter(self.runs))
        for words in (("get", first), ("events", first), ("logs", first), ("list",)):
            self.sinks[f"noetl executions {words[0]}"] = told(self.stack, "executions", *words)
        self.sinks["noetl credentials list"] = told(self.stack, "credentials", "list")
        for name, url in self.stack.metrics.items():
            self.sinks[f"metrics of {name}"] = scraped(url, self.stack.token)


def scraped(url, token):
    """What a process tells of itself in numbers."""
    request = Request(url, headers={"authorization": f"Bearer {token}"})  # noqa: S310 - our own
    with urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
        return answer.read().decode()


def outside(pid):
    """What everybody of this machine may see of a process."""
    found = b""
    for name in ("environ", "cmdline"):
        with suppress(OSError):
            found += Path(f"/proc/{pid}/{name}").read_bytes()
    return found


def descendants(roots):
    """The processes below some processes."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError):
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(words[1])
    found, last = set(), set(roots)
    while last:
        last = {pid for pid, parent in parents.items() if parent in last} - found
        found |= last
    return found


async def dumped(url):
    """Every value of every table, each as it is: a row as a whole would spell it otherwise."""
    link = await asyncpg.connect(url)
    try:
        places = await link.fetch(
            "select format('%I.%I', table_schema, table_name) as name,"
            " string_agg(format(case data_type when 'bytea' then '%I' else '%I::text' end,"
            " column_name), ', ') as columns"
            " from information_schema.columns join pg_tables"
            " on (schemaname, tablename) = (table_schema, table_name)"
            " where table_schema not in ('pg_catalog', 'information_schema') group by 1"
        )
        parts = []
        for place in places:
            words = f"select {place['columns']} from {place['name']}"  # noqa: S608 - names of columns
            for row in await link.fetch(words):
                parts += [value.decode("latin-1") if isinstance(value, bytes) else str(value)
                          for value in row.values()]  # fmt: skip
        return "\n".join(parts)
    finally:
        await link.close()


def told(stack, *words):
    """What a command says."""
    environ = {"PATH": os.defpath, "NOETL_SERVER_URL": stack.url, "NOETL_TOKEN": stack.token,
               "XDG_CONFIG_HOME": str(stack.folder)}  # fmt: skip
    done = subprocess.run(
        [NOETL, *words, "-o", "json"], env=environ, capture_output=True, check=False, timeout=60
    )
    return (done.stdout + done.stderr).decode()


async def welcomed(url, found):
    """Make the users that cases sign in as."""
    link = await asyncpg.connect(url)
    try:
        for case in found:
            kind, fields = case.credentials.get(case.name, ("", {}))
            if kind == "postgres" and fields.get("user") == case.name:
                words = await link.fetchval(
                    "select format('create role %I login password %L', $1::text, $2::text)",
                    case.name, fields["password"],
                )  # fmt: skip
                await link.execute(words)
    finally:
        await link.close()


@pytest.fixture(scope="module")
def there():
    made = Neighbours()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def near(traced, s3_server, gcs_server, mcp_server):
    """Where the other sides of some tools are, and as whom they are reached."""
    stack, _ = traced
    asked = urlsplit(stack.database_url)
    more = dict(parse_qsl(asked.query))
    return {
        "postgres": {
            "host": more.get("host") or asked.hostname, "port": more.get("port") or asked.port,
            "user": asked.username, "database": asked.path.strip("/"), "password": "?",
        },
        "nats": {"url": stack.nats_url, "user": "app", "password": "?"},
        "s3": {"access_key_id": "AKIACANARY", "secret_access_key": "?", "region": "us-east-1",
               "endpoint": s3_server.url},
        "bucket": s3_server.bucket(),
        "gcs": {"service_account": {**gcs_server.fields["service_account"], "private_key_id": "?"}},
        "gcs_bucket": gcs_server.bucket(),
        "mcp": {"url": mcp_server.url, "token": "?"},
    }  # fmt: skip


@pytest.fixture(scope="module")
def chosen(traced, echo, near, there):
    """Every case, with those whose other side is there."""
    stack, _ = traced
    found = [*cases(echo), *of_near(near), *of_issuers(there), *of_warehouse(there)]
    asyncio.run(welcomed(stack.database_url, found))
    return found


@pytest.fixture(scope="module")
def played(traced, chosen):
    stack, collector = traced
    play = Play(stack, stack.serve("canary"))
    asyncio.run(play.play(chosen))
    collector.quiet(1.0)
    play.sinks["spans"] = "".join(map(str, collector.spans))
    play.look()
    return play


def test_every_case_ended_as_it_should(played, chosen):
    assert played.ends == {case.name: case.ends for case in chosen}


def test_there_is_something_to_look_at(played, there):
    empty = [name for name, text in played.sinks.items() if not text and "file" not in name]
    assert empty == []
    assert "***" in played.sinks["database"]
    assert "tool.dispatch" in played.sinks["spans"]
    assert "half of ***" in played.sinks["api"]
    assert "noetl_worker_redactions_total" in played.sinks["metrics of canary"]
    assert there.issued


def test_every_type_of_credential_has_a_secret_in_each_of_its_fields():
    """One that says where and as whom is none."""
    assert {kind: {name for name, value in fields.items() if "?" in str(value)}
            for kind, fields in TYPES.items()} == {
        kind: {field.name for _, field in Fields.of(cls).by_name.values()} - PLAIN
        for kind, cls in PRODUCT_TYPES.items()
    }  # fmt: skip


def test_every_kind_of_tool_and_of_keychain_entry_has_a_case(chosen, tmp_path):
    async def kinds():
        async with workshop(1) as shop, shop.tools(tmp_path, SystemClock()) as tools:
            return set(tools)

    playbooks = [read(case.text, Playbook) for case in chosen]
    told = {task.kind for one in playbooks for step in one.workflow for task in step.tools}
    assert asyncio.run(kinds()) - told == set()
    entries = {entry.kind for one in playbooks for entry in one.keychain}
    assert entries == set(Fields.of(KeychainEntry).by_name["kind"][1].shape.values)


async def test_the_token_of_a_callback_was_sent(played):
    """Whoever answered was no gateway, and was told the token all the same."""
    run = next(run for run, case in played.runs.items() if case.name == "gateway")
    async with played.stack.client() as client:
        found = await client.status(run)
    assert (found.status, found.error["code"]) == ("FAILED", "bad_answer")


def test_no_secret_is_found_anywhere(played, chosen, there):
    secrets = [secret for case in chosen for secret in case.secrets] + there.issued
    given = {secret for case in chosen if case.is_given for secret in case.secrets}
    assert len(set(secrets)) >= 20
    found = hits(played.sinks, secrets)
    assert [one for one in found if one[0] != "children" or one[1] not in given] == []


@pytest.mark.parametrize("form", forms(canary("x")))
def test_the_search_finds_what_is_there(form):
    secret = canary("x")
    found = hits({"sink": f"so {forms(secret)[form]} it is"}, [secret])
    assert ("sink", secret, form) in found


async def worked(stack, tmp_path):
    """A worker of this process that covers nothing plays some of the cases."""
    clock = SystemClock()
    transport = SocketTransport(stack.url, token=stack.worker_token("control"))
    async with workshop(4) as shop, shop.tools(tmp_path, clock) as tools:
        worker = create_worker(
            WorkerParts(
                client=Client(transport), tools=tools, clock=clock, ids=Ids(clock, 7),
                worker_id="control-1", pool="control", redactor=Open(),
            )
        )  # fmt: skip
        working = asyncio.create_task(worker.run())
        play = Play(stack, "control")
        try:
            await play.play([case for case in cases("") if case.name in CONTROL])
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await transport.close()
    return play


CONTROL = {"type_postgres", "keychain_bearer", "input_done"}


def test_a_worker_that_covers_nothing_is_found_out(traced, played, tmp_path):
    del played  # what this one leaves behind must not be there before
    stack, _ = traced
    play = asyncio.run(worked(stack, tmp_path))
    play.sinks["database"] = asyncio.run(dumped(stack.database_url))

    for case in cases(""):
        if case.name in CONTROL:
            found = hits(play.sinks, list(case.secrets))
            assert {sink for sink, _, _ in found} >= {"database", "server-sent events", "api"}
