"""GraphQL on a real socket: what a client's own library makes of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from noetl.edge.http import Sockets
from tests.unit.gateway.rig import gateway_rig
from tests.unit.gateway.served import served
from tests.unit.server.rig import TWO_STEPS

RUN = 'mutation {executePlaybook(name: "demo/it") {id}}'
EVENTS = "subscription($run: ID!) {executionEvents(executionId: $run) {seq eventType}}"


async def test_graphql_ws_is_refused_with_400_and_a_run_is_followed_on_the_newer_protocol():
    sockets = Sockets(most_bytes=1 << 20, ping_s=30.0)
    async with gateway_rig() as rig, served(rig.gateway.asgi, sockets=sockets) as url:
        await rig.playbook(TWO_STEPS)
        ann = await rig.login()
        there = f"{url.replace('http', 'ws')}/graphql"
        with pytest.raises(InvalidStatus) as refused:
            await connect(there, subprotocols=["graphql-ws"], additional_headers=ann.headers)
        assert refused.value.response.status_code == 400
        assert json.loads(refused.value.response.body)["code"] == "bad_subprotocol"
        answer = await rig.caller(ann).post("/graphql", {"query": RUN})
        run = json.loads(answer.body)["data"]["executePlaybook"]["id"]
        told = []
        async with (
            asyncio.timeout(20),
            rig.worker(),
            connect(there, subprotocols=["graphql-transport-ws"]) as line,
        ):
            await line.send(
                json.dumps({"type": "connection_init", "payload": {"sessionToken": ann.token}})
            )
            assert json.loads(await line.recv()) == {"type": "connection_ack"}
            payload = {"query": EVENTS, "variables": {"run": run}}
            await line.send(json.dumps({"type": "subscribe", "id": "1", "payload": payload}))
            while (message := json.loads(await line.recv()))["type"] == "next":
                told.append(message["payload"]["data"]["executionEvents"]["eventType"])
        assert message == {"type": "complete", "id": "1"}
        assert (told[0], told[-1]) == ("playbook.started", "playbook.completed")


def test_a_gateway_is_imported_without_the_kit():
    code = (
        "import sys, noetl.gateway.app;"
        "sys.exit(any(name.split('.')[0] in {'strawberry', 'graphql'} for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == 0
