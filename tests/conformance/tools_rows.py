"""The tasks with which every kind of tool is tried, on the real servers of the tests."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import duckdb as duckdb_library
from nats.js.api import ConsumerConfig

from noetl.api.gateway import MOST_CALLBACK_BYTES
from noetl.blobs.objects import ObjectBlobs, open_store
from noetl.bus.address import Address
from noetl.clock import SystemClock
from noetl.ids import random_key
from noetl.sources.connecting import connect
from noetl.tools.base import Callback
from noetl.tools.duckdb.child import wheel_of
from tests.conformance.tools_suite import SECRET, UNKNOWN, Row
from tests.servers.sql_stage import fields_of
from tests.unit.server.rig import rig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nats.js import JetStreamContext

    from tests.conformance.tools_suite import Bench

NOBODY = "http://127.0.0.1:1"
GATEWAY = "/gateway"
ENDLESS = (
    "with recursive c(n) as (select 1 union all select n + 1 from c) select count(*) as n from c"
)


class Web(BaseHTTPRequestHandler):
    """Answers with the status that is the path, and says what it was asked to say.

    It is a cluster, too, that takes a job and never says so.
    """

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        said = parse_qs(asked.query).get("say", ["hello"])[0]
        body = json.dumps({"said": said, "items": [1, 2]}).encode()
        self.send_response(int(asked.path.strip("/")))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Never answer, until whoever asked has gone; a gateway answers for requests it knows."""
        if self.path.startswith(GATEWAY) and self._is_told():
            return
        self.close_connection = True
        while self.rfile.read1(65_536):
            pass

    def do_DELETE(self) -> None:
        """There is nothing."""
        self.send_response(404)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def _is_told(self) -> bool:
        """Whether the word for the client of a request was answered."""
        word = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if word["request_id"] == "unheard":
            return False
        status, told = 200, {"delivered": True, "message": "delivered", "status": "sent"}
        if word["request_id"] == "refused":
            status = 422
            about = {"type": "about:blank", "title": "no", "status": status, "code": "bad_value"}
            told = {**about, "detail": str(word.get("data"))}
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return True

    do_PATCH = do_DELETE  # noqa: N815 - the names of http.server


@contextmanager
def web() -> Iterator[str]:
    """A web server for as long as the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def silent() -> Iterator[str]:
    """A socket that nobody answers at."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def _for_ever(*_: object) -> None:
    await asyncio.Event().wait()


class Rows:
    """One row for each kind, under its name."""

    def __init__(self, bench: Bench, of: Callable[[str], Any]) -> None:
        """Take what the tools work with, and how to get at a server of the tests."""
        self.bench = bench
        self.of = of

    @property
    def web(self) -> str:
        return str(self.of("web"))

    @property
    def silent(self) -> str:
        """An address that takes every connection and never says a word."""
        return str(self.of("silent"))

    @property
    def _nobody(self) -> dict[str, Any]:
        """Where that address is, in two fields."""
        parts = urlsplit(self.silent)
        return {"host": parts.hostname, "port": parts.port}

    @property
    def _silent_broker(self) -> str:
        return self.silent.replace("http", "nats")

    # ------------------------------------------------------------------ code

    async def python(self) -> Row:
        says = f"print('{SECRET}'); progress(0.5, '{SECRET}'); result = {{'at': '{SECRET}'}}"
        return Row(
            works=({"code": "result = {'n': 1}"},),
            fails=({"code": "raise ValueError('x' * 9000)"},),
            hangs=({"code": "while True: pass"},),
            echoes=({"code": says}, {"code": f"raise ValueError('{SECRET}')"}),
            nested={f"/libs/a/{UNKNOWN}": {"code": "result = 1", "libs": {"a": {UNKNOWN: "os"}}}},
        )

    async def shell(self) -> Row:
        return Row(
            works=({"command": "echo hello"},),
            fails=({"command": "echo no >&2; exit 3"},),
            hangs=({"command": "sleep 60 & sleep 60"},),
            echoes=({"command": f"echo {SECRET}"}, {"command": f"echo {SECRET} >&2; exit 1"}),
        )

    async def script(self) -> Row:
        def inline(code: str) -> dict[str, Any]:
            return {"script": {"source": {"type": "inline", "code": code}}}

        return Row(
            works=(inline("print('hello')"),),
            fails=(inline("raise SystemExit(3)"),),
            hangs=(inline("import time; time.sleep(60)"),),
            echoes=(inline(f"print('{SECRET}')"), inline(f"raise ValueError('{SECRET}')")),
            nested={f"/job/{UNKNOWN}": {**inline("print(1)"), "job": {UNKNOWN: 1}}},
        )

    async def agent(self) -> Row:
        custom = {"framework": "custom"}
        return Row(
            works=({**custom, "entrypoint": "json:dumps", "payload": {"n": 1}},),
            fails=({**custom, "entrypoint": "json:loads", "payload": "{"},),
            hangs=({**custom, "entrypoint": "time:sleep", "payload": 60},),
            echoes=(
                {**custom, "entrypoint": "json:dumps", "payload": {"n": SECRET}},
                {**custom, "entrypoint": "importlib:import_module", "payload": SECRET},
            ),
            nested={
                f"/on_failure/{UNKNOWN}": {
                    **custom,
                    "entrypoint": "json:dumps",
                    "on_failure": {UNKNOWN: "a/playbook"},
                }
            },
        )

    async def container(self) -> Row:
        self.bench.client = (
            await self.bench.held.enter_async_context(rig(clock=SystemClock()))
        ).client
        self.bench.cluster_url = self.web
        image = {"image": "img"}
        secret = {"secret_name": "s", "secret_key": "k", UNKNOWN: 1}
        volume = {"name": "v", "secret": {"secret_name": "s", UNKNOWN: 1}}
        item = {"key": "k", "path": "p", UNKNOWN: 1}
        files = {"name": "v", "config_map": {"name": "c", "items": [item]}}
        mount = {"name": "v", "mount_path": "/v", UNKNOWN: 1}
        return Row(
            works=({**image, "runtime": "process", "command": ["sh", "-c", "echo hello"]},),
            fails=({**image, "runtime": "kubernetes", "namespace": "kube-system"},),
            hangs=({**image, "runtime": "kubernetes"},),
            nested={
                f"/resources/{UNKNOWN}": {**image, "resources": {UNKNOWN: {"cpu": 1}}},
                f"/env/0/value_from/{UNKNOWN}": {
                    **image,
                    "env": [{"name": "A", "value_from": secret}],
                },
                f"/tolerations/0/{UNKNOWN}": {**image, "tolerations": [{UNKNOWN: "gpu"}]},
                f"/volumes/0/secret/{UNKNOWN}": {**image, "volumes": [volume]},
                f"/volumes/0/config_map/items/0/{UNKNOWN}": {**image, "volumes": [files]},
                f"/volume_mounts/0/{UNKNOWN}": {**image, "volume_mounts": [mount]},
            },
        )

    # ------------------------------------------------------------------ SQL

    async def postgres(self) -> Row:
        self.bench.credentials["db"] = {
            "type": "postgres",
            "data": fields_of(self.of("shared_url")),
        }
        notice = f"do $$ begin raise notice '{SECRET}'; end $$"
        copied = {"command": "create temp table t (n int)", "copy": {"table": "t", "data": [[1]]}}
        return Row(
            works=(
                {"auth": "db", "command": "select 1 as n"},
                {"auth": "db", "command": "select generate_series(1, 9) as n", "max_rows": 5},
                {"auth": "db", "commands": ["select 1 as n", "select 2 as n"]},
                {"auth": "db", **copied},
            ),
            fails=(
                {"auth": "db", "command": "select 1/0"},
                {"auth": "db", "command": "insert into pg_class select * from pg_class"},
                {
                    "auth": "db",
                    "command": "create temp table t (n int check (n > 0));"
                    " insert into t values (0)",
                },
                {"auth": "db", "command": "select pg_sleep(9)", "statement_timeout": "50ms"},
                {"auth": "db", "command": "select 1", "connection": {"password": "wrong-8f"}},
                {"auth": "none", "command": "select 1"},
                {"command": "select 1"},
                {
                    "command": "select 1",
                    "connection": {"host": "127.0.0.1", "port": 1, "user": "u", "database": "d"},
                },
            ),
            hangs=(
                {"auth": "db", "command": "select pg_sleep(60)"},
                {
                    "command": "select 1",
                    "connection": {**self._nobody, "user": "u", "database": "d"},
                },
            ),
            echoes=(
                {"auth": "db", "command": f"select '{SECRET}' as n"},
                {"auth": "db", "command": f"select '{SECRET}'::int"},
                {"auth": "db", "command": notice},
            ),
        )

    async def sqlite(self) -> Row:
        where = {"path": "t.db"}
        return Row(
            works=(
                {**where, "command": "select 1 as n"},
                {**where, "command": "select 1 as n union select 2", "max_rows": 1},
                {**where, "commands": ["create table t (n)", "insert into t values (1)"]},
            ),
            fails=(
                {**where, "command": "select * from nothing"},
                {
                    **where,
                    "commands": ["create table u (n unique)", "insert into u values (1), (1)"],
                },
                {**where, "command": "attach 'other.db' as o"},
                {"path": "/etc/t.db", "command": "select 1"},
            ),
            hangs=({**where, "command": ENDLESS},),
            echoes=(
                {**where, "command": f"select '{SECRET}' as n"},
                {**where, "command": f'select "{SECRET}".n'},
            ),
        )

    async def duckdb(self) -> Row:
        return Row(
            works=(
                {"command": "select 1 as n"},
                {"command": "select * from range(9)", "max_rows": 5},
                {"commands": ["select 1 as n", "select 2 as n"]},
                {"command": "select 1 as n", "export": {"format": "csv", "to": "blob"}},
            ),
            fails=({"command": "select * from nothing"},),
            hangs=({"command": "select count(*) from range(1000000000) a, range(1000000000) b"},),
            echoes=(
                {"command": f"select '{SECRET}' as n"},
                {"command": f"select '{SECRET}'::int"},
            ),
            nested={
                f"/attach/0/{UNKNOWN}": {
                    "command": "select 1",
                    "attach": [{"path": "a.db", UNKNOWN: True}],
                },
                f"/attach/a/{UNKNOWN}": {
                    "command": "select 1",
                    "attach": {"a": {"path": "a.db", UNKNOWN: True}},
                },
                f"/export/{UNKNOWN}": {"command": "select 1", "export": {UNKNOWN: "blob"}},
                f"/auth/a/{UNKNOWN}": {
                    "command": "select 1",
                    "auth": {"a": {"type": "s3", "credential": "own", UNKNOWN: 1}},
                },
            },
        )

    async def ducklake(self) -> Row:
        lake = {"catalog": "meta.ducklake", "data_path": "lake"}
        plain = await self.duckdb()
        works = tuple({**lake, **config} for config in plain.works[:3])
        fails = ({**lake, **plain.fails[0]}, {**lake, "catalog": "none", "command": "select 1"})
        if wheel_of("ducklake", duckdb_library.__version__) is None:
            return Row(works=works, fails=fails, lacks="missing_extension")
        echoes = tuple({**lake, **config} for config in plain.echoes)
        hangs = tuple({**lake, **config} for config in plain.hangs)
        return Row(works=works, fails=fails, hangs=hangs, echoes=echoes)

    async def snowflake(self) -> Row:
        server = self.of("snowflake_server")
        self.bench.credentials["sf"] = {"type": "snowflake", "data": server.fields}
        return Row(
            works=(
                {"auth": "sf", "command": "select 1 as n"},
                {"auth": "sf", "commands": ["select 1 as n", "select 2 as n"]},
            ),
            fails=({"auth": "sf", "command": "select * from nothing"},),
            hangs=({"auth": "sf", "command": "select wait()"},),
            echoes=(
                {"auth": "sf", "command": f"select '{SECRET}' as n"},
                {"auth": "sf", "command": f'select "{SECRET}".n'},
            ),
        )

    async def snowflake_transfer(self) -> Row:
        return await self.transfer()

    async def transfer(self) -> Row:
        (self.bench.root / "from.db").touch()

        def moved(query: str) -> dict[str, Any]:
            source = {"kind": "sqlite", "path": "from.db", "query": query}
            target = {"kind": "sqlite", "path": "to.db", "table": "t", "create": True}
            return {"source": source, "target": target, "mode": "replace"}

        unheard = {"kind": "http", "url": self.silent}
        return Row(
            works=(moved("select 1 as n"),),
            fails=(moved("select * from nothing"),),
            hangs=(moved(ENDLESS), {**moved("select 1"), "source": unheard}),
            echoes=(moved(f'select "{SECRET}".n'),),
        )

    # ------------------------------------------------------------------ brokers

    async def _jetstream(self) -> JetStreamContext:
        async def as_it_is(host: str, _port: int) -> list[str]:
            return [host]

        url = self.of("nats_url")
        self.bench.credentials["broker"] = {"type": "nats", "data": {"url": url}}
        client = await connect(Address.of(url), as_it_is)
        self.bench.held.push_async_callback(client.close)
        return client.jetstream()

    async def _stream(self, js: JetStreamContext, *said: str) -> dict[str, Any]:
        """A stream with messages, and a consumer of it."""
        name = f"S{random_key()[:16]}"
        await js.add_stream(name=name, subjects=[f"{name}.>"])
        self.bench.held.push_async_callback(js.delete_stream, name)
        await js.add_consumer(name, ConsumerConfig(durable_name="c", ack_policy="explicit"))
        for one in said:
            await js.publish(f"{name}.a", one.encode())
        return {"stream": name, "consumer": "c"}

    async def nats(self) -> Row:
        js = await self._jetstream()
        bucket = f"B{random_key()[:16]}"
        await js.create_key_value(bucket=bucket)
        self.bench.held.push_async_callback(js.delete_key_value, bucket)
        empty = await self._stream(js)
        where = {"auth": "broker", "bucket": bucket, "key": "k"}
        asks = {"auth": "broker", **empty, "operation": "js_consume"}
        return Row(
            works=({**where, "operation": "kv_put", "value": {"n": 1}},
                   {**where, "operation": "kv_get"}, {**asks, "timeout_ms": 10}),
            fails=({"auth": "broker", "operation": "kv_get", "bucket": "nothing", "key": "k"},),
            hangs=(
                {**asks, "timeout_ms": 5000},
                {"operation": "kv_keys", "bucket": "b", "url": self._silent_broker},
            ),
            echoes=(
                {**where, "operation": "kv_create", "key": SECRET, "value": 1},
                {"auth": "broker", "operation": "kv_get", "bucket": SECRET, "key": "k"},
            ),
        )  # fmt: skip

    async def subscription(self) -> Row:
        js = await self._jetstream()
        polls = {"source": "nats", "auth": "broker", "ack": "auto", "timeout_ms": 50}
        empty = await self._stream(js)
        return Row(
            works=(
                {**polls, **await self._stream(js, '{"n": 1}')},
                {**polls, "ack": "defer", **await self._stream(js, "x")},
                {"source": "nats", "auth": "broker", "operation": "ack", "ack_ids": []},
            ),
            fails=({**polls, "stream": "nothing", "consumer": "c"},),
            hangs=(
                {**polls, **empty, "timeout_ms": 5000},
                {"source": "nats", "url": self._silent_broker, "stream": "s", "consumer": "c"},
            ),
            echoes=({**polls, **await self._stream(js, SECRET)},),
        )

    # ------------------------------------------------------------------ services

    async def http(self) -> Row:
        page = {"next": "{{ none }}", "items": "$.items"}
        return Row(
            works=(
                {"url": f"{self.web}/200"},
                {"url": f"{self.web}/200", "response_type": "blob"},
                {"url": f"{self.web}/200", "paginate": page},
            ),
            fails=(
                *({"url": f"{self.web}/{status}"} for status in (404, 401, 409, 429, 503)),
                {"url": NOBODY},
                {"url": "http://no-such-name.invalid/"},
                {"url": "http://169.254.169.254/"},
                {"url": f"{self.web}/200", "auth": "none"},
            ),
            hangs=({"url": self.silent},),
            echoes=(
                {"url": f"{self.web}/200?say={SECRET}"},
                {"url": f"{self.web}/503?say={SECRET}"},
            ),
            nested={
                f"/files/a/{UNKNOWN}": {"url": self.web, "files": {"a": {UNKNOWN: "x"}}},
                f"/files/a/0/{UNKNOWN}": {"url": self.web, "files": {"a": [{UNKNOWN: "x"}]}},
                f"/files/0/{UNKNOWN}": {"url": self.web, "files": [{"name": "a", UNKNOWN: "x"}]},
            },
        )

    async def gateway(self) -> Row:
        async def token() -> str:
            return SECRET

        self.bench.callback = Callback(url=self.web + GATEWAY, token=token)
        known = {"request_id": "r-1"}
        return Row(
            works=(
                {**known, "data": {"n": 1}},
                {**known, "operation": "progress", "progress": 0.5, "message": "half"},
                {**known, "status": "FAILED", "message": "no"},
            ),
            fails=(
                {"request_id": "refused"},
                {**known, "status": "LOST"},
                {**known, "data": "x" * (MOST_CALLBACK_BYTES + 1)},
            ),
            hangs=({"request_id": "unheard"},),
            echoes=({"request_id": "refused", "data": SECRET},),
        )

    async def mcp(self) -> Row:
        where = {"endpoint": self.of("mcp_server").url}
        greets = {"method": "prompts/get", "prompt": "greet", "arguments": {"name": SECRET}}
        return Row(
            works=(
                {**where, "tool": "add", "arguments": {"a": 1, "b": 2}},
                {**where, "method": "tools/list"},
            ),
            fails=(
                {**where, "tool": "fail", "arguments": {"why": "x" * 9000}},
                {**where, "method": "resources/read", "uri": "desk://nothing/here"},
                {"endpoint": NOBODY, "tool": "add"},
                {"transport": "stdio", "argv": ["false"], "method": "tools/list"},
                {"tool": "add"},
            ),
            hangs=({**where, "tool": "wait"}, {"endpoint": self.silent, "tool": "add"}),
            echoes=(
                {**where, **greets},
                {**where, "tool": "fail", "arguments": {"why": SECRET}},
            ),
        )

    async def secrets(self) -> Row:
        named = {"provider": "wallet", "name": "db-password"}
        return Row(
            works=(named,),
            fails=({"provider": "env", "name": "NO_SUCH_VARIABLE"},),
            hangs=(named,),
            hanging={"name_secret": _for_ever},
            echoes=({"provider": "wallet", "name": SECRET}, {"provider": "env", "name": SECRET}),
        )

    # ------------------------------------------------------------------ objects

    def _objects(self, bucket: str, data: dict[str, Any], silent: dict[str, Any]) -> Row:
        self.bench.credentials["store"] = data
        self.bench.credentials["silent"] = silent
        where = {"auth": "store", "bucket": bucket}
        return Row(
            works=(
                {**where, "operation": "put", "key": "a", "data": {"n": 1}},
                {**where, "operation": "get", "key": "a"},
                {**where, "operation": "head", "key": "a"},
                {**where, "operation": "list"},
                {**where, "operation": "copy", "key": "b", "source": "a"},
                {**where, "operation": "delete", "key": "b"},
                {**where, "operation": "put", "key": "large", "data": "x" * 70_000},
                {**where, "operation": "get", "key": "large"},
            ),
            fails=({**where, "operation": "get", "key": "nothing"},),
            hangs=({**where, "auth": "silent", "operation": "get", "key": "a"},),
            echoes=(
                {**where, "operation": "put", "key": SECRET, "data": 1},
                {**where, "operation": "get", "key": f"{SECRET}-not"},
            ),
            nested={
                f"/range/{UNKNOWN}": {
                    **where,
                    "operation": "get",
                    "key": "a",
                    "range": {UNKNOWN: 1},
                }
            },
        )

    async def s3(self) -> Row:
        server = self.of("s3_server")
        bucket, data = server.bucket(), {"type": "s3", "data": server.fields}
        silent = {"type": "s3", "data": {**server.fields, "endpoint": self.silent}}
        row = self._objects(bucket, data, silent)
        signed = {"auth": "store", "bucket": bucket, "operation": "sign", "key": "a"}
        return replace(row, works=(*row.works, signed))

    async def gcs(self) -> Row:
        server = self.of("gcs_server")
        account = {**server.fields["service_account"], "gcs_base_url": self.silent}
        data = {"type": "gcs", "data": server.fields}
        silent = {"type": "gcs", "data": {"service_account": account}}
        return self._objects(server.bucket(), data, silent)

    async def artifact(self) -> Row:
        server = self.of("s3_server")
        silent = {"type": "s3", "data": {**server.fields, "endpoint": self.silent}}
        self.bench.credentials["silent"] = silent
        file, run = f"file://{self.bench.root}/a.json", "noetl://execution/7/result/start/a"

        def asks(action: str, uri: str, **more: Any) -> dict[str, Any]:
            return {"action": action, "input": {"uri": uri, **more}}

        return Row(
            works=(
                *(asks("put", uri, data={"n": 1}) for uri in (file, run)),
                *(asks(action, uri) for uri in (file, run) for action in ("head", "get")),
                asks("list", f"file://{self.bench.root}"),
                asks("list", ""),
                asks("delete", file),
                asks("delete", run),
            ),
            fails=(asks("get", f"file://{self.bench.root}/nothing"),),
            hangs=({**asks("get", "s3://bucket/key"), "auth": "silent"},),
            echoes=(
                asks("put", f"file://{self.bench.root}/{SECRET}", data=1),
                asks("get", f"file://{self.bench.root}/{SECRET}-not"),
            ),
            nested={f"/input/{UNKNOWN}": asks("get", file, **{UNKNOWN: 1})},
        )

    async def result_fetch(self) -> Row:
        at_7 = "execution/7/result/start"
        await self.bench.blobs.put(
            f"{at_7}/rows", b'[{"n": 1}, {"n": 2}]', media_type="application/json"
        )
        said = json.dumps({"said": SECRET}).encode()
        await self.bench.blobs.put(f"{at_7}/secret", said, media_type="application/json")
        given = {**self.of("s3_server").fields, "endpoint": self.silent}
        slow = ObjectBlobs(open_store("s3://bucket", given), "", "s3")
        ref = f"noetl://{at_7}"
        return Row(
            works=(
                {"ref": f"{ref}/rows"},
                {"ref": f"{ref}/rows", "rows": {"limit": 1}},
                {"ref": f"{ref}/rows", "range": {"length": 3}},
            ),
            fails=({"ref": f"{ref}/nothing"},),
            hangs=({"ref": f"{ref}/rows"},),
            hanging={"blobs": slow},
            echoes=({"ref": f"{ref}/secret"}, {"ref": f"{ref}/{SECRET}"}),
            nested={
                f"/{part}/{UNKNOWN}": {"ref": f"{ref}/rows", part: {UNKNOWN: 1}}
                for part in ("rows", "range")
            },
        )

    # ------------------------------------------------------------------ the engine's own

    async def playbook(self) -> Row:
        return Row(works=({"path": "demo/child", "input": {"n": 1}},), fails=({},))

    async def playbooks(self) -> Row:
        return Row(works=({"items": [{"path": "demo/child"}]},), fails=({"items": "none"},))

    async def wait(self) -> Row:
        return Row(
            works=({"seconds": 60}, {"callback": True}),
            fails=({"until": "soon"}, {"until": "2026-01-01T00:00:00"}),
        )

    async def noop(self) -> Row:
        return Row(works=({"result": 1}, {}), fails=({"nothing": 1},), echoes=({"result": SECRET},))
