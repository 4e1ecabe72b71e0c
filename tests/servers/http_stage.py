"""The http tool and a server on a local socket that answers what a test wants."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from noetl.telemetry.redact import Redactor
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.http.egress import Egress, resolve
from noetl.tools.http.tool import HttpTool

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


class FakeClock:
    def now(self):
        return NOW

    def monotonic(self):
        return 5.0


class Seen:
    """One request as the server read it."""

    def __init__(self, method, target, headers, body):
        self.method = method
        self.target = target
        self.path = urlsplit(target).path
        self.query = parse_qsl(urlsplit(target).query, keep_blank_values=True)
        self.headers = headers
        self.body = body


class Server:
    """Answers each request with what `answer(seen)` returns: status, headers, body chunks."""

    def __init__(self, answer):
        self._answer = answer
        self.seen = []
        self.connections = 0
        self.tasks = set()
        self.hangs = asyncio.Event()
        self.closed = asyncio.Event()

    async def serve(self, reader, writer):
        self.connections += 1
        self.tasks.add(asyncio.current_task())
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            writer.close()
            self.closed.set()

    async def _one(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        headers = {}
        for line in lines:
            if line:
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, target, _ = first.split(" ")
        self.seen.append(Seen(method, target, headers, body))
        answer = self._answer(self.seen[-1])
        if answer == "hang":
            self.hangs.set()
            await reader.read()
            return False
        if answer == "drop":
            return False
        status, more, chunks = answer
        chunks = [chunks] if isinstance(chunks, bytes) else chunks
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "Transfer-Encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in more]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        for chunk in chunks if method != "HEAD" else ():
            if chunk:
                writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                await writer.drain()
        writer.write(b"" if method == "HEAD" else b"0\r\n\r\n")
        await writer.drain()
        return method != "HEAD"


class Blobs:
    """Blobs in memory, and how large the largest piece was."""

    def __init__(self):
        self.kept = {}
        self.largest = 0

    async def put_stream(self, key, chunks, *, media_type):
        made = bytearray()
        async for chunk in chunks:
            self.largest = max(self.largest, len(chunk))
            made += chunk
        self.kept[key] = (bytes(made), media_type)

    async def get(self, key):
        return self.kept[key][0]


JSON = [("Content-Type", "application/json")]


def reply(value, status=200, *headers):
    return status, [*JSON, *headers], json.dumps(value).encode()


class Stage:
    """A server, the tool that talks to it, and what its task told."""

    def __init__(self, server, base, tool):
        self.server = server
        self.base = base
        self.tool = tool
        self.steps = []
        self.kept = []
        self.lines = []
        self.redactor = Redactor()

    @property
    def seen(self):
        return self.server.seen

    async def http(self, path="/", *, within=10, **config):
        about = ("blobs", "secrets", "scope", "resume")
        more = {name: config.pop(name) for name in about if name in config}
        ctx = ToolContext(
            execution_id="7", step="s", command_id="c", idempotency_key="7/s/-/1",
            deadline=asyncio.get_running_loop().time() + within, redactor=self.redactor,
            on_progress=lambda *step: self.steps.append(step),
            on_keep=lambda state: self.kept.append(json.loads(json.dumps(state))),
            on_log=lambda *line: self.lines.append(line), **more,
        )  # fmt: skip
        config = {"url": path if "://" in path else self.base + path, **config}
        return await run_tool(self.tool, {"kind": "http", **config}, ctx)


@asynccontextmanager
async def stage(answer, *, egress=None, resolver=resolve, tls=None):
    server = Server(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    port = listening.sockets[0].getsockname()[1]
    tool = HttpTool(egress or Egress(mode="open"), FakeClock(), resolver)
    try:
        yield Stage(server, f"{'https' if tls else 'http'}://127.0.0.1:{port}", tool)
    finally:
        await tool.close()
        listening.close()
        await listening.wait_closed()
        await asyncio.gather(*server.tasks)


def fixed(value, status=200, *headers):
    return lambda _seen: reply(value, status, *headers)


def routes(table):
    return lambda seen: table.get(seen.path, reply({"at": seen.path}))
