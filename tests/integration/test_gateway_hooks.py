"""Sign-in by playbook with real processes: gateway, server, a worker of the system pool, NATS."""

from __future__ import annotations

import asyncio
import json

import pytest

from noetl.api.sockets import SocketTransport
from tests.servers.gateway import GatewayStack
from tests.servers.stack import full_stack

__all__ = ("full_stack",)

SECRET = "canary-open-sesame-1001"  # noqa: S105 - of a test
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: hook, path: PATH}\n"
POSTS = """
workflow:
  - step: tell
    tool:
      kind: http
      method: POST
      url: "{{ workload.gateway_url }}/api/internal/callback"
      json:
        request_id: "{{ workload.request_id }}"
        data: DATA
"""
TELLS = """
workflow:
  - step: tell
    tool: {kind: gateway, data: DATA}
"""
USER = "{user_id: u-1, email: eve@example.com, roles: [viewer]}"
IN = """{status: "{{ 'authenticated' if workload.password == 'SECRET' else 'rejected' }}",
          session_token: "eve-{{ workload.request_id }}", user: USER,
          expires_at: "2099-01-01T00:00:00Z"}"""
SESSION = """{valid: "{{ workload.session_token.startswith('eve-') }}", user: USER,
          expires_at: "2099-01-01T00:00:00Z"}"""


def playbook(path, data, body):
    data = data.replace("SECRET", SECRET).replace("USER", USER)
    return HEAD.replace("PATH", path) + body.replace("DATA", data)


@pytest.fixture(scope="module")
def gateway(full_stack, tmp_path_factory):
    more = {
        "GATEWAY_AUTH_MODE": "playbook", "AUTH_PLAYBOOK_LOGIN": "hooks/in",
        "AUTH_PLAYBOOK_VALIDATE_SESSION": "hooks/session",
    }  # fmt: skip
    full_stack.serve("system")
    made = GatewayStack(full_stack, tmp_path_factory.mktemp("hooked"), **more)
    made.register(playbook("hooks/in", IN, POSTS))
    made.register(playbook("hooks/session", SESSION, TELLS))
    yield made
    made.stop()


async def asked(gateway, method, path, body=None, token=""):
    transport = SocketTransport(gateway.url, token=token, timeout_s=30)
    try:
        async with asyncio.timeout(40):
            data = b"" if body is None else json.dumps(body).encode()
            answer = await transport.request(
                method, path, data, {"content-type": "application/json"}
            )
    finally:
        await transport.close()
    return answer.status, json.loads(answer.body or b"{}")


async def test_a_playbook_of_the_system_pool_signs_people_in(gateway):
    body = {"email": "eve@example.com", "password": SECRET}
    status, told = await asked(gateway, "POST", "/api/auth/login", body)
    assert (status, told.get("status")) == (200, "authenticated"), told
    token = told["session_token"]
    who = await asked(gateway, "GET", "/api/auth/whoami", token=token)
    wrong = await asked(gateway, "POST", "/api/auth/login", {**body, "password": "x"})
    nobody = await asked(gateway, "GET", "/api/auth/whoami", token="ada-1")  # noqa: S106 - of nobody
    assert (who[0], who[1]["account"], who[1]["roles"]) == (200, "eve@example.com", ["viewer"])
    assert (wrong[0], wrong[1]["code"]) == (401, "bad_credentials")
    assert (nobody[0], nobody[1]["code"]) == (401, "invalid_session")
    said = "".join(gateway.process.lines) + "".join(gateway.stack.said.values())
    assert [secret for secret in (SECRET, token) if secret in said] == []

    async def kept(client):
        page = await client.executions(path="hooks/in")
        runs = [await client.execution(one.execution_id) for one in page.items]
        logs = [await client.events(one.execution_id) for one in page.items]
        return runs, json.dumps([log.items for log in logs])

    runs, logs = await asyncio.to_thread(gateway.ask, kept)
    assert {run.workload["password"] for run in runs} == {"***"}
    assert SECRET not in logs


async def test_who_signs_out_is_out_though_his_playbook_still_knows_him(gateway):
    body = {"email": "eve@example.com", "password": SECRET}
    tokens = [
        (await asked(gateway, "POST", "/api/auth/login", body))[1]["session_token"]
        for _ in range(2)
    ]
    who = [(await asked(gateway, "GET", "/api/auth/whoami", token=one))[0] for one in tokens]
    gone = await asked(gateway, "POST", "/api/auth/logout", token=tokens[0])
    after = [await asked(gateway, "GET", "/api/auth/whoami", token=one) for one in tokens]
    assert (who, gone[0]) == ([200, 200], 204)
    assert (after[0][0], after[0][1].get("code")) == (401, "invalid_session")
    assert after[1][0] == 200, "another session of his goes on"
