"""A run is one trace: from its caller through server, worker and child to the last request."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Self

import pytest

from noetl.api.catalog import Register
from noetl.api.sockets import SocketTransport
from noetl.telemetry.traces.context import parsed

pytestmark = pytest.mark.timeout(120)

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
HEADER = f"00-{TRACE}-{CALLER}-01"
ENDED = {"COMPLETED", "FAILED", "CANCELLED"}
CHILD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: asks, path: traced/asks}
workload: {url: "", secret: ""}
workflow:
  - step: ask
    tool: {kind: http, url: "{{ workload.url }}", method: POST, json: {s: "{{ workload.secret }}"}}
"""
PARENT = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: parent, path: traced/parent}
workload: {url: "", secret: ""}
workflow:
  - step: begin
    tool: {kind: python, code: "result = 'x' * 100_000"}
    next: {arcs: [{step: child}]}
  - step: child
    tool:
      kind: playbook
      path: traced/asks
      input: {url: "{{ workload.url }}", secret: "{{ workload.secret }}"}
    next: {arcs: [{step: rest}]}
  - step: rest
    tool: {kind: wait, seconds: 0.2}
"""


class Site:
    """A service that a step asks; it keeps the headers that it is sent."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                site.seen.append({name.lower(): text for name, text in self.headers.items()})
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


async def run_of(stack, site: Site, **headers: str) -> str:
    """A whole run; its id."""
    async with stack.client() as client:
        for text in (CHILD, PARENT):
            await client.register(Register(content=text))
    transport = SocketTransport(stack.url, token=stack._tokens[""])  # noqa: SLF001 - with headers of its own
    payload = {"url": site.url, "secret": "canary-in-a-payload"}
    body = json.dumps({"path": "traced/parent", "payload": payload}).encode()
    try:
        answer = await transport.request("POST", "/api/execute", body, headers)
        assert answer.status == 200, answer.body
        execution_id = json.loads(answer.body)["execution_id"]
        async with asyncio.timeout(30):
            while True:
                found = await transport.request("GET", f"/api/executions/{execution_id}/status")
                if json.loads(found.body)["status"] in ENDED:
                    assert json.loads(found.body)["status"] == "COMPLETED", found.body
                    return str(execution_id)
                await asyncio.sleep(0.1)
    finally:
        await transport.close()


def tree(spans) -> dict:
    """Names below names; what is told again and again is told once."""
    below: dict[str, list] = {}
    for span in spans:
        below.setdefault(span.parent_id, []).append(span)

    def branch(of: str) -> dict:
        made: dict = {}
        for span in below.get(of, ()):
            made.setdefault(span.name, {}).update(branch(span.span_id))
        return made

    return branch(CALLER)


OWN = {"event.ingest": {"engine.decide": {}}, "command.claim": {}, "outbox.publish": {}}
TREE = {
    "execute": {
        **OWN,
        "command.execute": {"tool.dispatch.python": {}},
        "result_store.put": {},
        "timer.fire": {},
        "execute": {**OWN, "command.execute": {"tool.dispatch.http": {}}},
    }
}


async def test_a_run_with_a_child_and_a_request_is_one_trace(traced_stack) -> None:
    stack, collector = traced_stack.stack, traced_stack.collector
    await asyncio.to_thread(stack.serve)
    with Site() as site:
        execution_id = await run_of(stack, site, traceparent=HEADER, tracestate="vendor=1")

    def of_run(spans):
        return [span for span in spans if span.trace_id == TRACE]

    spans = of_run(
        await asyncio.to_thread(traced_stack.until, lambda all_: tree(of_run(all_)) == TREE)
    )
    assert {span.service for span in spans} == {"noetl-server", "noetl-worker"}

    roots = [span for span in spans if span.parent_id == CALLER]
    assert [span.attributes["execution_id"] for span in roots] == [execution_id]
    assert roots[0].attributes["path"] == "traced/parent"
    (child,) = [span for span in spans if span.name == "execute" and span not in roots]
    assert child.parent_id == roots[0].span_id
    assert child.attributes["trigger"] == "playbook"

    (asked,) = [span for span in spans if span.name == "tool.dispatch.http"]
    (sent,) = site.seen
    assert parsed(sent["traceparent"]) == (TRACE, asked.span_id, True)
    assert sent["tracestate"] == "vendor=1"

    told = [(span.name, span.attributes, span.error) for span in spans]
    assert "canary" not in repr(told)
    assert all(span.error == "" for span in spans)
    assert {headers["api-key"] for headers in collector.headers} == {"a-key-of-a-test"}


async def test_runs_without_a_caller_are_traces_of_their_own(traced_stack) -> None:
    stack = traced_stack.stack
    await asyncio.to_thread(stack.serve)
    with Site() as site:
        ids = {await run_of(stack, site), await run_of(stack, site)}

    def roots(spans):
        return [
            span for span in spans
            if span.name == "execute" and span.attributes.get("execution_id") in ids
        ]  # fmt: skip

    spans = await asyncio.to_thread(traced_stack.until, lambda all_: len(roots(all_)) == 2)
    assert [span.parent_id for span in roots(spans)] == ["", ""]
    assert len({span.trace_id for span in roots(spans)}) == 2


async def test_a_trace_that_its_caller_does_not_sample_goes_on_unseen(traced_stack) -> None:
    stack, unseen = traced_stack.stack, "1" * 32
    await asyncio.to_thread(stack.serve)
    with Site() as site:
        await run_of(stack, site, traceparent=f"00-{unseen}-{CALLER}-00")
        (sent,) = site.seen
    assert sent["traceparent"].startswith(f"00-{unseen}-")
    assert sent["traceparent"].endswith("-00")
    await asyncio.to_thread(traced_stack.collector.quiet, 1.5)
    assert [span for span in traced_stack.collector.spans if span.trace_id == unseen] == []


async def test_the_log_of_a_run_names_its_trace(traced_stack) -> None:
    stack = traced_stack.stack
    await asyncio.to_thread(stack.serve)
    trace_id = "2" * 32
    with Site() as site:
        execution_id = await run_of(stack, site, traceparent=f"00-{trace_id}-{CALLER}-01")
    lines = [json.loads(line) for line in stack._server.lines]  # noqa: SLF001 - what it has said
    told = [
        line
        for line in lines
        if line.get("execution_id") == execution_id and line["logger"] == "noetl.server"
    ]
    assert [line["event"] for line in told] == ["an execution begins", "an execution has ended"]
    for line in told:
        assert line["trace_id"] == trace_id
        assert line["account"] == "user:test"
        assert line["tenant"] == "default"
        assert line["level"] == "debug"
    assert told[1]["status"] == "COMPLETED"
    assert told[1]["duration_ms"] > 0
