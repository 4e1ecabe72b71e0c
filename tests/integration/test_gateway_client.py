"""The Python client against a real gateway, server and worker."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from noetl.api.gateway_client import GatewayClient, RequestFailed
from noetl.api.http import NO_HEADERS, NoAnswer
from noetl.api.problems import Refused
from noetl.api.sockets import SocketTransport
from tests.servers.gateway import PASSWORD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from noetl.api.http import Answer
    from tests.servers.gateway import GatewayStack

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: it, path: {path}}}
workload: {{hold: ""}}
workflow:
  - step: wait
    tool: {{kind: http, url: "{{{{ workload.hold }}}}", timeout: 60}}
    next: {{arcs: [{{step: end}}]}}
  - step: end
    tool: {{kind: python, code: "{code}"}}
"""


def registered(stack: GatewayStack, code: str) -> str:
    """A playbook that waits, and then ends with what the code gives; its path."""
    path = f"python/{stack.name('it')}"
    stack.register(PLAYBOOK.format(path=path, code=code))
    return path


class Cutting(SocketTransport):
    """A way on which the answer to the first start is lost."""

    starts = 0

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        timeout_s: float | None = None,
    ) -> Answer:
        answer = await super().request(method, path, body, headers, timeout_s=timeout_s)
        if b"playbook/execute" in body:
            self.starts += 1
            if self.starts == 1:
                raise NoAnswer("the connection was lost")
        return answer


@asynccontextmanager
async def at(
    stack: GatewayStack, way: type[SocketTransport] = SocketTransport
) -> AsyncIterator[GatewayClient]:
    """Somebody who has signed in."""
    email = await asyncio.to_thread(stack.account)
    anybody = SocketTransport(stack.url)
    body = json.dumps({"email": email, "password": PASSWORD}).encode()
    answer = await anybody.request(
        "POST", "/api/auth/login", body, {"content-type": "application/json"}
    )
    await anybody.close()
    transport = way(stack.url, token=json.loads(answer.body)["session_token"])
    try:
        async with GatewayClient(transport) as gateway:
            yield gateway
    finally:
        await transport.close()


async def test_a_result_comes_once_the_run_ends(gateway_stack: GatewayStack) -> None:
    path, name = registered(gateway_stack, "return {'n': 7}"), gateway_stack.name("python")
    async with at(gateway_stack) as gateway:
        running = await gateway.execute_playbook(path, {"hold": gateway_stack.hold.url(name)})
        await asyncio.to_thread(gateway_stack.hold.arrived, name)
        assert (await gateway.request(running.request_id)).state in {"accepted", "running"}
        gateway_stack.hold.release(name)
        assert await running.result(30) == {"n": 7}


async def test_a_start_whose_answer_is_lost_is_one_run(gateway_stack: GatewayStack) -> None:
    path = registered(gateway_stack, "return 'once'")
    gateway_stack.hold.release("nothing")
    async with at(gateway_stack, Cutting) as gateway:
        running = await gateway.execute_playbook(path, {"hold": gateway_stack.hold.url("nothing")})
        assert await running.result(30) == "once"
    found = await asyncio.to_thread(gateway_stack.ask, lambda client: client.executions(path=path))
    assert [one.execution_id for one in found.items] == [running.execution_id]


async def test_a_large_result_is_whole(gateway_stack: GatewayStack) -> None:
    path = registered(gateway_stack, "return 'x' * 1000000")
    gateway_stack.hold.release("nothing")
    async with at(gateway_stack) as gateway:
        running = await gateway.execute_playbook(path, {"hold": gateway_stack.hold.url("nothing")})
        assert await running.result(30) == "x" * 1_000_000


async def test_a_failing_run_is_told_with_its_step(gateway_stack: GatewayStack) -> None:
    path = registered(gateway_stack, "raise ValueError('no')")
    gateway_stack.hold.release("nothing")
    async with at(gateway_stack) as gateway:
        running = await gateway.execute_playbook(path, {"hold": gateway_stack.hold.url("nothing")})
        with pytest.raises(RequestFailed) as caught:
            await running.result(30)
        assert caught.value.failure.code == -32000
        assert caught.value.failure.data is not None
        assert caught.value.failure.data["step"] == "end"
        assert caught.value.execution_id == running.execution_id


async def test_a_run_is_cancelled(gateway_stack: GatewayStack) -> None:
    path, name = registered(gateway_stack, "return 1"), gateway_stack.name("python")
    async with at(gateway_stack) as gateway:
        running = await gateway.execute_playbook(path, {"hold": gateway_stack.hold.url(name)})
        await asyncio.to_thread(gateway_stack.hold.arrived, name)
        await gateway.cancel(running.request_id, "enough")
        with pytest.raises(RequestFailed) as caught:
            await running.result(30)
        assert caught.value.failure.code == -32004
    gateway_stack.hold.release(name)


async def test_a_stranger_is_refused(gateway_stack: GatewayStack) -> None:
    transport = SocketTransport(gateway_stack.url, token="nts_nobody")  # noqa: S106 - of nobody
    gateway = GatewayClient(transport)
    with pytest.raises(Refused) as caught:
        await gateway.connect()
    assert caught.value.code == "invalid_session"
    await gateway.close()
    await transport.close()
