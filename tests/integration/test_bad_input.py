"""Ten bad inputs through every tool that can meet them: the documented error, and its remedy.

The tools are the real ones, and so is what they talk to: servers on local sockets.
"""

from __future__ import annotations

import socket
import socketserver
import ssl
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from noetl.clock import SystemClock
from noetl.telemetry.redact import Redactor
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.duckdb.engine import Engine
from noetl.tools.duckdb.tool import DuckdbTool
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.http.tool import HttpTool
from noetl.tools.interpreter.process import Processes
from noetl.tools.interpreter.sandbox import Sandbox
from noetl.tools.mcp.places import Known
from noetl.tools.mcp.tool import McpTool
from noetl.tools.nats.connections import Connections
from noetl.tools.nats.tool import NatsTool
from noetl.tools.objects.store import Stores
from noetl.tools.objects.tool import GcsTool, S3Tool
from noetl.tools.postgres.tool import PostgresTool
from noetl.tools.snowflake.tool import SnowflakeTool
from noetl.tools.sqlite import SqliteTool
from noetl.tools.subscription.tool import SubscriptionTool
from tests.fakes.objects import RefusingStore
from tests.fakes.snowflake import Snowflake
from tests.fakes.web import Asked, Refused, Web
from tests.integration.test_http_proof import Authority
from tests.servers.nats import NatsServer
from tests.servers.sql_stage import fields_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytest.importorskip("snowflake.connector", reason="the extra snowflake")

CANARY = "canary-bad-input-5d1e"
LARGE = 9 << 20


class Site(Web):
    """A web service: pages that are not there, that fail, and that are no JSON."""

    def answer(self, asked: Asked) -> Any:
        match asked.path:
            case "/broken":
                return "{no json"
            case "/large":
                return ["x" * 4096]
            case "/failing":
                raise Refused(500, {"said": "no"})
            case "/busy":
                raise Refused(429)
            case "/members":
                raise Refused(401)
            case "/owners":
                raise Refused(403)
        return super().answer(asked)


class NoTls(socketserver.BaseRequestHandler):
    """A database that does not speak TLS."""

    def handle(self) -> None:
        self.request.recv(8)
        self.request.sendall(b"N")
        self.request.recv(1)


@dataclass
class Bench:
    """The tools, the names of what they talk to, and credentials whose secrets are canaries."""

    root: Path
    names: dict[str, Any]
    postgres: dict[str, Any]
    tools: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        egress, clock = Egress(mode="open"), SystemClock()
        brokers, guard = Connections(Guard(egress=egress)), Guard(egress=egress)
        processes = Processes(Sandbox.detect(), {})
        self.stores = Stores(egress)
        made = [
            HttpTool(egress, clock), PostgresTool(), SqliteTool((self.root,)),
            DuckdbTool((self.root,)), SnowflakeTool(connect_s=2), NatsTool(brokers, clock),
            McpTool(guard, processes, Known()), S3Tool((self.root,)), GcsTool((self.root,)),
            SubscriptionTool(brokers, clock),
        ]  # fmt: skip
        self.tools = {tool.kind: tool for tool in made}

    def filled(self, value: Any) -> Any:
        """The value with the names of this bench in its texts."""
        if isinstance(value, dict):
            return {key: self.filled(item) for key, item in value.items()}
        return value.format(**self.names) if isinstance(value, str) else value

    async def secrets(self, alias: str) -> dict[str, Any]:
        here, login = "127.0.0.1", {"user": "u", "password": CANARY}
        kept: dict[str, tuple[str, dict[str, Any]]] = {
            "bearer": ("bearer", {"token": CANARY}),
            "pg": ("postgres", self.postgres),
            "pg_login": ("postgres", {**self.postgres, "password": CANARY}),
            "pg_tls": ("postgres", {**login, "host": here, "port": "{no_tls}", "database": "d",
                                    "sslmode": "require"}),
            "pg_away": ("postgres", {**login, "host": here, "port": "{closed}", "database": "d"}),
            "sf": ("snowflake", self.names["snowflake"]),
            "sf_login": ("snowflake", {**self.names["snowflake"], "password": CANARY}),
            "sf_away": ("snowflake", {**login, "account": "a", "host": here, "port": "{closed}",
                                      "protocol": "http"}),
            "gcs": ("gcs", {}),
            "nats": ("nats", {"url": "{nats}"}),
            "nats_login": ("nats", {"url": "{nats_bare}", "user": "noetl", "password": CANARY}),
            "nats_away": ("nats", {"url": "nats://127.0.0.1:{closed}", "token": CANARY}),
            "nats_tls": ("nats", {"url": "{nats_tls}", "token": CANARY}),
            "kafka": ("kafka", {"brokers": "127.0.0.1:{closed}", "username": "u",
                                "password": CANARY}),
            **{
                name: ("s3", {"access_key_id": "k", "secret_access_key": CANARY,
                              "region": "us-east-1", "endpoint": f"{{{place}}}"})
                for name, place in (("s3", "store"), ("s3_away", "away"), ("s3_tls", "tls"),
                                    ("s3_failing", "failing"))
            },
        }  # fmt: skip
        type_, data = kept[alias]
        return {"type": type_, "data": self.filled(data)}

    async def error(self, config: dict[str, Any]) -> dict[str, Any]:
        ctx = ToolContext(
            execution_id="7", step="s", command_id="c", idempotency_key="k", stores=self.stores,
            secrets=self.secrets, redactor=Redactor(),
        )  # fmt: skip
        outcome = await run_tool(self.tools[config["kind"]], self.filled(config), ctx)
        assert outcome.error is not None, outcome.data
        assert CANARY not in repr(outcome)
        return outcome.error

    async def close(self) -> None:
        for tool in self.tools.values():
            if hasattr(tool, "close"):
                await tool.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, nats_server: NatsServer) -> Iterator[dict]:
    folder = tmp_path_factory.mktemp("bad-input")
    cert, key = Authority("nobody trusts it").issue("127.0.0.1")
    (folder / "cert.pem").write_text(cert)
    (folder / "key.pem").write_text(key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    web, tls, store, snowflake = Site(), Site(), RefusingStore(), Snowflake()
    failing = RefusingStore()
    store.refuse_with(400, "ExpiredToken", CANARY)
    tls.wrap(context)
    files = f'cert_file: "{folder}/cert.pem", key_file: "{folder}/key.pem"'
    bare = socketserver.ThreadingTCPServer(("127.0.0.1", 0), NoTls)
    bare.daemon_threads = True
    thread = Thread(target=bare.serve_forever, args=(0.02,))
    thread.start()
    guarded = NatsServer(folder / "nats", more=f"tls {{ {files} }}\n")
    guarded.start()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens, and nobody else gets the port
        port = closed.getsockname()[1]
        yield {
            "web": web.url, "tls": tls.url.replace("http:", "https:"),
            "no_tls": bare.server_address[1], "closed": port,
            "away": f"http://127.0.0.1:{port}", "store": store.url, "failing": failing.url,
            "snowflake": snowflake.fields, "nats": nats_server.url,
            "nats_bare": f"nats://127.0.0.1:{nats_server.nats.port}",
            "nats_tls": f"tls://127.0.0.1:{guarded.nats.port}",
        }  # fmt: skip
    guarded.stop()
    bare.shutdown()
    bare.server_close()
    thread.join()
    for each in (web, tls, store, failing, snowflake):
        each.stop()


@pytest.fixture
async def bench(served: dict, postgres_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path, served, fields_of(postgres_url))
    yield made
    await made.close()


HTTP = {"kind": "http"}
PG = {"kind": "postgres", "auth": "pg", "command": "select 1"}
SF = {"kind": "snowflake", "auth": "sf", "command": "select 1 as a"}
DUCK = {"kind": "duckdb", "command": "select 1"}
LITE = {"kind": "sqlite", "path": "t.db"}
NATS = {"kind": "nats", "auth": "nats", "operation": "kv_get", "bucket": "nowhere", "key": "k"}
MCP = {"kind": "mcp", "method": "tools/list", "endpoint": "{web}/"}
S3 = {"kind": "s3", "auth": "s3", "operation": "get", "bucket": "my-bucket", "key": "k"}
GCS = {**S3, "kind": "gcs", "auth": "gcs"}
KAFKA = {"kind": "subscription", "source": "kafka", "auth": "kafka", "topic": "t", "group": "g"}

NO_CREDENTIAL = ("auth", "credential_not_found", "`noetl credentials put nobody` makes one")
NO_AUTH = ("auth", "auth_required", "/auth: name a credential of type {kind}")
WRONG = ("auth", "credential_type", "is of type postgres: name a credential of type {types}")
REFUSED = ("connection", "CONN_REFUSED", "Start the service, or mend the address")
UNTRUSTED = ("connection", "TLS_ERROR", "Check the certificate of the server")
RETRY = "let the step retry; look after the service if it lasts"
ROTATE = "give the task `auth`, or mend its credential (`noetl credentials rotate`)"


def wrong(types: str) -> tuple[str, str, str]:
    return WRONG[0], WRONG[1], WRONG[2].format(types=types)


def unnamed(kind: str) -> tuple[str, str, str]:
    return NO_AUTH[0], NO_AUTH[1], NO_AUTH[2].format(kind=kind)


ROWS: list[tuple[str, dict[str, Any], tuple[str, str, str]]] = [
    *(("missing credential", {**config, "auth": "nobody"}, NO_CREDENTIAL)
      for config in ({**HTTP, "url": "{web}/"}, PG, SF, NATS, MCP, S3, GCS, KAFKA)),
    *(("missing credential", {**config, "auth": None}, unnamed(kind))
      for config, kind in ((PG, "postgres"), (SF, "snowflake"), (NATS, "nats"), (S3, "aws or s3"),
                           (GCS, "gcp or gcs"))),
    ("wrong kind of credential", {**HTTP, "url": "{web}/", "auth": "pg"},
     ("auth", "credential_type", "name a credential of type bearer, basic, api_key, oauth2")),
    *(("wrong kind of credential", {**config, "auth": "pg"}, wrong(types))
      for config, types in ((SF, "snowflake"), (NATS, "nats"), (MCP, "mcp or bearer or api_key"),
                            (S3, "aws or s3"), (GCS, "gcp or gcs"), (KAFKA, "kafka"))),
    ("wrong kind of credential", {**PG, "auth": "bearer"},
     ("auth", "credential_type", "is of type bearer: name a credential of type postgres")),
    ("expired token", {**HTTP, "url": "{web}/members", "auth": "bearer"},
     ("auth", "http_401", ROTATE)),
    ("expired token", {**MCP, "endpoint": "{web}/members", "auth": "bearer"},
     ("auth", "http_401", ROTATE)),
    ("expired token", S3,
     ("auth", "auth_failed", "check key, secret and expiry of the credential")),
    ("expired token", {**PG, "auth": "pg_login"},
     ("auth", "PG_28P01", "check `user` and `password` of the credential")),
    ("expired token", {**SF, "auth": "sf_login"},
     ("auth", "SF_390100", "check `user` and `password` of the credential")),
    ("expired token", {**NATS, "auth": "nats_login"},
     ("auth", "bad_login", "Mend user, password or token of the credential.")),
    ("unreachable host", {**HTTP, "url": "{away}/"}, REFUSED),
    ("unreachable host", {**HTTP, "url": "http://no-such-host.invalid/"},
     ("connection", "DNS_ERROR", "Mend the name, or the DNS of the worker.")),
    ("unreachable host", {**PG, "auth": "pg_away"},
     ("connection", "CONN_REFUSED", "check `host` and `port`")),
    ("unreachable host", {**SF, "auth": "sf_away"},
     ("db_connection", "SF_14", "check `account` and `host` of the credential")),
    ("unreachable host", {**NATS, "auth": "nats_away"}, REFUSED),
    ("unreachable host", {**MCP, "endpoint": "{away}/mcp"}, REFUSED),
    ("unreachable host", {**S3, "auth": "s3_away"}, REFUSED),
    ("unreachable host", KAFKA,
     ("connection", "CONN_RESET", "look after the service if it lasts")),
    ("TLS failure", {**HTTP, "url": "{tls}/"},
     ("connection", "TLS_ERROR", "a credential of type tls in `auth` names the authorities")),
    ("TLS failure", {**PG, "auth": "pg_tls"},
     ("connection", "TLS_ERROR", "check `sslmode` and the certificates")),
    ("TLS failure", {**NATS, "auth": "nats_tls"}, UNTRUSTED),
    ("TLS failure", {**MCP, "endpoint": "{tls}/mcp"}, UNTRUSTED),
    ("TLS failure", {**S3, "auth": "s3_tls"}, UNTRUSTED),
    ("SQL error", {**PG, "command": "select * from nowhere"},
     ("db_error", "PG_42P01", "make the table, or mend its name or `schema`")),
    ("SQL error", {**PG, "command": "selec 1"}, ("db_error", "PG_42601", "mend the statement")),
    ("SQL error", {**PG, "command": "select 1 / 0"}, ("db_error", "PG_22012", "mend the values")),
    ("SQL error", {**SF, "command": "select * from nowhere"},
     ("db_error", "SF_2003", "make it, mend its name, or grant the role of the credential")),
    ("SQL error", {**DUCK, "command": "select * from nowhere"},
     ("db_error", "DUCKDB_CATALOG", "make it, or mend its name")),
    ("SQL error", {**DUCK, "command": "selec 1"},
     ("db_error", "DUCKDB_PARSER", "mend the statement")),
    ("SQL error", {**LITE, "command": "select * from nowhere"},
     ("db_error", "SQLITE_ERROR", "mend the statement")),
    ("4xx and 5xx", {**HTTP, "url": "{web}/owners", "auth": "bearer"},
     ("auth", "http_403", "the credential of `auth` may not do this")),
    ("4xx and 5xx", {**HTTP, "url": "{web}/none"}, ("not_found", "http_404", "mend the address")),
    ("4xx and 5xx", {**HTTP, "url": "{web}/busy"},
     ("rate_limit", "http_429", "let the step retry, or ask less often")),
    ("4xx and 5xx", {**HTTP, "url": "{web}/failing"}, ("server_error", "http_500", RETRY)),
    ("4xx and 5xx", {**MCP, "endpoint": "{web}/none"},
     ("not_found", "http_404", "mend the address")),
    ("4xx and 5xx", {**MCP, "endpoint": "{web}/failing"}, ("server_error", "http_500", RETRY)),
    ("4xx and 5xx", {**S3, "auth": "s3_failing"}, ("server_error", "http_500", RETRY)),
    ("malformed JSON", {**HTTP, "url": "{web}/broken", "response_type": "json"},
     ("parse", "invalid_json", "`response_type: text` takes it as it is")),
    ("malformed JSON", {**MCP, "method": "tools/call", "tool": "t", "arguments": "{{"},
     ("config", "invalid_config", "write a map")),
    ("malformed JSON", {**MCP, "endpoint": "{web}/broken"},
     ("parse", "invalid_json", "check the address of the server")),
    ("oversized body", {**HTTP, "url": "{web}/large", "max_bytes": 64},
     ("limit", "output_limit", "larger than 64 bytes (`max_bytes`)")),
    ("oversized body",
     {**NATS, "operation": "js_publish", "subject": "a.b", "data": "x" * LARGE},
     ("limit", "output_limit", "put it into an object (`object_put`)")),
    ("oversized body", {**PG, "command": "select repeat('x', 99) as a", "max_bytes": 64},
     ("limit", "output_limit", "Return less, or store it as a file")),
    ("oversized body", {**DUCK, "command": "select * from range(9)", "max_rows": 4},
     ("limit", "row_limit", "Ask for fewer rows, or export them to a file.")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "told"),
    [pytest.param(*row, id=f"{name} {row[0]['kind']} {row[1][1]}") for name, *row in ROWS],
)
async def test_bad_input_is_told_with_its_remedy(
    bench: Bench, config: dict[str, Any], told: tuple[str, str, str]
) -> None:
    error = await bench.error(config)
    kind, code, remedy = told
    assert (error["kind"], error["code"], remedy in error["message"]) == (kind, code, True), error


EXTRAS = [
    ("snowflake.connector", SF, "snowflake"),
    ("mcp", MCP, "mcp"),
    ("obstore", S3, "s3"),
    ("obstore", GCS, "gcs"),
]


@pytest.mark.parametrize(("module", "config", "extra"), EXTRAS, ids=[row[2] for row in EXTRAS])
async def test_a_missing_extra_is_told_with_its_remedy(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    config: dict[str, Any],
    extra: str,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    error = await bench.error(config)
    assert (error["kind"], error["code"], error["message"]) == (
        "config", "missing_extra",
        f'kind {config["kind"]} needs the extra: pip install "noetl[{extra}]"',
    )  # fmt: skip


async def test_a_python_without_duckdb_is_told_with_its_remedy(
    bench: Bench, tmp_path: Path
) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    [packages] = (tmp_path / "bare").glob("lib/python*/site-packages")
    (packages / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    engine = Engine((tmp_path,), str(tmp_path / "bare" / "bin" / "python"))
    bench.tools["duckdb"] = DuckdbTool((tmp_path,), engine=engine)
    error = await bench.error(DUCK)
    assert (error["kind"], error["code"], error["message"]) == (
        "config", "missing_extra", 'kind duckdb needs the extra: pip install "noetl[duckdb]"',
    )  # fmt: skip


def test_a_certificate_of_snowflake_that_is_not_trusted_is_no_matter_of_time() -> None:
    from snowflake.connector.errors import OperationalError  # noqa: PLC0415 - an extra

    from noetl.tools.snowflake.failures import unconnected  # noqa: PLC0415 - brings the driver

    # Its connector tries again for a quarter of a minute before it says so.
    said = "Failed to login: invalid peer certificate: UnknownIssuer"
    error = unconnected(OperationalError(msg=said, errno=250_001))
    assert (error.kind, error.code, error.is_retryable) == (*UNTRUSTED[:2], False)
    assert UNTRUSTED[2] in error.message
