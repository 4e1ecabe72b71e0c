"""Requests over two gateway processes, with a real server, worker, PostgreSQL and NATS."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from noetl.api.sockets import SocketTransport
from noetl.api.sse import parsed
from tests.servers.gateway import PASSWORD, GatewayStack
from tests.servers.nats import wipe
from tests.servers.stack import FullStack, full_stack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = ("full_stack",)

LONG_S = 60.0
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: asked, path: PATH}\n"
CALLS_BACK = """
workflow:
  - step: wait
    tool: {kind: http, method: GET, url: "{{ workload.hold }}"}
    next: {arcs: [{step: tell}]}
  - step: tell
    tool:
      kind: http
      method: POST
      url: "{{ workload.gateway_url }}/api/internal/callback/async"
      json: {request_id: "{{ workload.request_id }}", status: COMPLETED, data: {n: 5}}
"""
SILENT = """
workflow:
  - step: wait
    tool: {kind: http, method: GET, url: "{{ workload.hold }}"}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: python, code: "return {'n': 7}"}
"""


@pytest.fixture(scope="module")
def gateways(
    full_stack: FullStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[GatewayStack, GatewayStack]]:
    """Two gateways before one server."""
    with ExitStack() as ending:
        made = []
        for name in ("one", "two"):
            gateway = GatewayStack(full_stack, tmp_path_factory.mktemp(name))
            ending.callback(gateway.stop)
            made.append(gateway)
        for path, body in (("asked/calls", CALLS_BACK), ("asked/silent", SILENT)):
            made[0].register(HEAD.replace("PATH", path) + body)
        yield made[0], made[1]


class Page:
    """Somebody's page at one gateway: it calls, and it is told."""

    def __init__(self, url: str, token: str, client_id: str) -> None:
        self._transport = SocketTransport(url, token=token)
        self._client_id = client_id
        self.told: list[dict[str, Any]] = []
        self.last_id = ""
        self._news = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def call(self, method: str, **params: Any) -> Any:
        """A call of JSON-RPC."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        sent = {"content-type": "application/json"}
        answer = await self._transport.request("POST", "/rpc", json.dumps(body).encode(), sent)
        told = json.loads(answer.body)
        assert "result" in told, told
        return told["result"]

    async def start(self, path: str, hold: str) -> str:
        """Run a playbook for this page; its request."""
        given = {"name": path, "variables": {"hold": hold}, "clientId": self._client_id}
        return str((await self.call("playbook/execute", **given))["requestId"])

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[dict[str, Any]]:
        """A stream of events; what it begins with."""
        first: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._follow(first))
        try:
            async with asyncio.timeout(LONG_S):
                yield await first
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self, first: asyncio.Future[dict[str, Any]]) -> None:
        headers = {"last-event-id": self.last_id} if self.last_id else {}
        path = f"/events?client_id={self._client_id}"
        async with self._transport.stream(path, headers) as (status, chunks):
            assert status == 200
            async for event in parsed(chunks):
                if event.get("event") == "init":
                    first.set_result(event["data"]["result"])
                    continue
                self.last_id = event.get("id") or self.last_id
                async with self._news:
                    if "method" in event["data"]:
                        self.told.append(event["data"])
                    self._news.notify_all()

    async def until(self, *wanted: tuple[str, str, str]) -> None:
        """Come back when messages came: their methods, requests, and a text in them."""
        async with asyncio.timeout(LONG_S), self._news:
            await self._news.wait_for(lambda: all(self._has(*each) for each in wanted))

    def _has(self, method: str, request_id: str, text: str) -> bool:
        return any(
            each["method"] == method
            and each["params"]["requestId"] == request_id
            and text in json.dumps(each)
            for each in self.told
        )

    def results(self) -> dict[str, list[Any]]:
        """What was told of which request."""
        found: dict[str, list[Any]] = {}
        for each in self.told:
            if each["method"] == "playbook/result":
                params = each["params"]
                found.setdefault(params["requestId"], []).append(params.get("data"))
        return found

    async def close(self) -> None:
        await self._transport.close()


@asynccontextmanager
async def page(gateway: GatewayStack, *others: GatewayStack) -> AsyncIterator[list[Page]]:
    """The same client of the same session at several gateways."""
    email = gateway.account()
    transport = SocketTransport(gateway.url)
    body = json.dumps({"email": email, "password": PASSWORD}).encode()
    sent = {"content-type": "application/json"}
    answer = await transport.request("POST", "/api/auth/login", body, sent)
    await transport.close()
    token = json.loads(answer.body)["session_token"]
    name = f"page-of-{email.partition('@')[0]}"
    pages = [Page(each.url, token, name) for each in (gateway, *others)]
    try:
        yield pages
    finally:
        for each in pages:
            await each.close()


async def test_20_a_callback_to_one_gateway_reaches_the_client_at_the_other_once(
    gateways: tuple[GatewayStack, GatewayStack],
) -> None:
    one, two = gateways
    async with page(one, two) as (here, there), there.connected():
        hold = one.name("hold")
        calls = await here.start("asked/calls", one.hold.url(hold))
        silent = await here.start("asked/silent", one.hold.url(hold))
        one.hold.release(hold)
        done = "playbook.completed"
        await there.until(
            ("playbook/result", calls, ""),
            ("playbook/result", silent, ""),
            ("playbook/state", calls, done),
        )
        assert there.results() == {calls: [{"n": 5}], silent: [{"n": 7}]}
        kinds = [
            (each["method"], each["params"].get("eventType"))
            for each in there.told
            if each["params"]["requestId"] == silent
        ]
        assert kinds[-2:] == [("playbook/state", done), ("playbook/result", None)]


async def test_19_a_wiped_store_of_nats_costs_a_reconnect_and_no_result(
    gateways: tuple[GatewayStack, GatewayStack], full_stack: FullStack
) -> None:
    one, two = gateways
    async with page(one, two) as (here, there):
        free, held = one.name("free"), one.name("held")
        one.hold.release(free)
        async with there.connected() as init:
            epoch = init["epoch"]
            before = await here.start("asked/silent", one.hold.url(free))
            await there.until(("playbook/result", before, ""))
            during = await here.start("asked/calls", one.hold.url(held))
            one.hold.arrived(held)
        last = there.last_id
        assert last.startswith(epoch)
        await wipe(full_stack.nats_url)
        there.told.clear()
        async with there.connected() as init:
            assert init["epoch"] != epoch
            assert init["recovery"]["recovered"] is False
            assert [each["requestId"] for each in init["pendingRequests"]] == [during]
            one.hold.release(held)
            await there.until(("playbook/result", during, ""), ("playbook/result", before, ""))
            assert there.results() == {before: [{"n": 7}], during: [{"n": 5}]}
