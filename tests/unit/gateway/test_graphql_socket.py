"""GraphQL over WebSocket: who gets in, what he is told, and how it ends."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from noetl.gateway.graphql import conversation as ours
from tests.unit.gateway.rig import GatewayRig, Signed, gateway_rig
from tests.unit.gateway.streaming import Socket, socket, until
from tests.unit.server.rig import ONE_STEP, TWO_STEPS, virtually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import pytest

OWN = {"origin": "http://gateway.test"}
NEW = ("graphql-transport-ws",)
EVENTS = "subscription($run: ID!, $after: Int) {\
 executionEvents(executionId: $run, afterSeq: $after) {seq eventType executionId step}}"
UPDATES = "subscription($id: ID!) {requestUpdates(requestId: $id) {requestId state status result}}"
RUN = 'mutation {executePlaybook(name: "demo/it") {id requestId}}'


class Client:
    """The client's end, in the words of the protocol."""

    def __init__(self, line: Socket) -> None:
        self.line = line

    def say(self, kind: str, **more: Any) -> None:
        """Send one message."""
        self.line.text(json.dumps({"type": kind, **more}))

    async def begin(self, **payload: Any) -> None:
        """Introduce oneself and be let in."""
        self.say("connection_init", **({"payload": payload} if payload else {}))
        await self.line.until(lambda: self.of("connection_ack") or self.line.code)
        assert self.of("connection_ack"), self.line.code

    def ask(self, name: str, query: str, **variables: Any) -> None:
        """Begin an operation."""
        self.say("subscribe", id=name, payload={"query": query, "variables": variables})

    def of(self, kind: str, name: str | None = None) -> list[dict[str, Any]]:
        """The messages of a kind so far."""
        told = [one for one in self.line.told if one["type"] == kind]
        return [one for one in told if name is None or one.get("id") == name]

    async def got(self, kind: str, name: str | None = None, count: int = 1) -> list[dict[str, Any]]:
        """Wait for so many messages of a kind."""
        await self.line.until(lambda: len(self.of(kind, name)) >= count)
        return self.of(kind, name)

    async def code(self, name: str) -> str:
        """Why an operation was refused."""
        (error,) = await self.got("error", name)
        return error["payload"][0]["extensions"]["code"]


@asynccontextmanager
async def line(
    rig: GatewayRig,
    headers: Mapping[str, str] | None = None,
    subprotocols: tuple[str, ...] = NEW,
    **query: str,
) -> AsyncIterator[Client]:
    async with socket(rig.gateway.asgi, headers, subprotocols, "/graphql", **query) as made:
        yield Client(made)


async def started(rig: GatewayRig, who: Signed) -> dict[str, Any]:
    answer = await rig.caller(who).post("/graphql", {"query": RUN})
    return json.loads(answer.body)["data"]["executePlaybook"]


async def test_only_the_newer_protocol_is_spoken() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        for offered in (("graphql-ws",), (), ("noetl.v1",)):
            async with line(rig, ann.headers, offered) as client:
                assert client.line.denied is not None
                status, body = client.line.denied
                assert (status, json.loads(body)["code"]) == (400, "bad_subprotocol")
        async with line(rig, ann.headers, ("graphql-ws", "graphql-transport-ws")) as client:
            assert client.line.subprotocol == "graphql-transport-ws"


async def test_somebody_is_known_before_he_is_let_in() -> None:
    async with gateway_rig(cors_origins=("https://ui.example",)) as rig:
        ann = await rig.login()
        cookie = {"cookie": f"__Host-noetl_session={ann.token}"}
        ticket = await rig.caller(ann).post("/api/auth/ticket", {"purpose": "graphql"})
        once = json.loads(ticket.body)["ticket"]
        good: list[tuple[dict[str, str], dict[str, str], dict[str, str]]] = [
            (ann.headers, {}, {}),
            ({**cookie, "origin": "https://ui.example"}, {}, {}),
            ({}, {"ticket": once}, {}),
            ({}, {}, {"sessionToken": ann.token}),
            ({}, {}, {"Authorization": f"Bearer {ann.token}"}),
            (OWN, {}, {"token": ann.token}),
        ]
        for headers, query, payload in good:
            async with line(rig, headers, **query) as client:
                await client.begin(**payload)
                client.ask("1", "{health}")
                (told,) = await client.got("next", "1")
                assert told["payload"] == {"data": {"health": "ok"}}
        denied: list[tuple[dict[str, str], dict[str, str], int]] = [
            ({**cookie, "origin": "https://evil.example"}, {}, 403),
            ({"authorization": "Bearer nts_nobody"}, {}, 401),
            ({}, {"ticket": once}, 401),
        ]
        for headers, query, status in denied:
            async with line(rig, headers, **query) as client:
                assert client.line.denied is not None
                assert client.line.denied[0] == status
        unknown: list[tuple[dict[str, str], dict[str, str]]] = [
            (cookie, {}), ({}, {}), ({}, {"sessionToken": "nts_nobody"}),
        ]  # fmt: skip
        for headers, payload in unknown:
            async with line(rig, headers) as client:
                client.say("connection_init", payload=payload)
                assert await client.line.closed() == 4401
                assert client.of("connection_ack") == []


@virtually
async def test_no_connection_init_in_time_closes() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with line(rig, ann.headers) as client:
            assert await client.line.closed() == 4408


async def test_messages_that_are_none_of_the_protocol_close() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        made = await started(rig, ann)
        subscribe = {"type": "subscribe", "payload": {"query": "{health}"}}
        cases: list[tuple[str, int]] = [
            ("{", 4400),
            ("[]", 4400),
            ('{"type": "start"}', 4400),
            ('{"type": []}', 4400),
            (json.dumps(subscribe), 4400),
            (json.dumps({**subscribe, "id": ""}), 4400),
            ('{"type": "connection_init"}', 4429),
            ('"' + "x" * (1 << 20) + '"', 1009),
        ]
        for text, code in cases:
            async with line(rig, ann.headers) as client:
                await client.begin()
                client.line.text(text)
                assert await client.line.closed() == code, text[:60]
        async with line(rig, ann.headers) as client:
            client.ask("1", "{health}")
            assert await client.line.closed() == 4401
        async with line(rig, ann.headers) as client:
            await client.begin()
            for _ in range(2):
                client.ask("1", UPDATES, id=made["requestId"])
            assert await client.line.closed() == 4409


async def test_a_connection_has_at_most_twenty_operations_at_once() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        made = await started(rig, ann)
        async with line(rig, ann.headers) as client:
            await client.begin()
            for number in range(20):
                client.ask(str(number), UPDATES, id=made["requestId"])
            await client.got("next", count=20)
            client.ask("one more", UPDATES, id=made["requestId"])
            assert await client.code("one more") == "LIMIT_EXCEEDED"
            client.say("complete", id="0")
            client.ask("one more", UPDATES, id=made["requestId"])
            await client.got("next", "one more")


async def test_the_events_of_a_run_come_in_order_until_it_ends() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(TWO_STEPS)
        ann = await rig.login()
        made = await started(rig, ann)
        async with line(rig, ann.headers) as client:
            await client.begin()
            client.ask("all", EVENTS, run=made["id"], after=0)
            await client.got("next", "all")
            client.ask("later", EVENTS, run=made["id"], after=2)
            async with rig.worker():
                await client.got("complete", "all")
                await client.got("complete", "later")
            rows = [one["payload"]["data"]["executionEvents"] for one in client.of("next", "all")]
            assert [one["seq"] for one in rows] == list(range(1, len(rows) + 1))
            assert rows[-1]["eventType"] == "playbook.completed"
            assert {one["executionId"] for one in rows} == {made["id"]}
            later = [
                one["payload"]["data"]["executionEvents"] for one in client.of("next", "later")
            ]
            assert later == rows[2:]
        assert rig.gate.metrics.graphql.value("subscription", "ok") == 2
        await until(lambda: rig.gate.metrics.connections.value("graphql") == 0)


async def test_a_request_is_told_until_its_end() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        made = await started(rig, ann)
        async with line(rig, ann.headers) as client:
            await client.begin()
            client.ask("1", UPDATES, id=made["requestId"])
            await client.got("next", "1")
            assert await rig.step({"n": 1})
            await client.got("complete", "1")
            last = client.of("next", "1")[-1]["payload"]["data"]["requestUpdates"]
            assert (last["state"], last["status"]) == ("completed", "COMPLETED")
            assert last["result"] == {"n": 1}


@virtually
async def test_a_request_that_is_followed_is_looked_at_when_it_changes_and_not_else() -> None:
    async with gateway_rig() as rig, rig.replica() as other:
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        made = await started(rig, ann)
        keys, used = other.bus.requests, []
        get = keys.get

        async def noted(key: str) -> Any:
            used.append(key)
            return await get(key)

        async with line(other, ann.headers) as client:
            await client.begin()
            client.ask("1", UPDATES, id=made["requestId"])
            await client.got("next", "1")
            await asyncio.sleep(0.1)
            keys.get = noted  # type: ignore[method-assign] # the bucket is of this test alone
            await asyncio.sleep(3)  # before somebody sweeps
            assert f"r.{made['requestId']}" not in used
            assert await rig.step({"n": 1})
            await client.got("complete", "1")
            told = [one["payload"]["data"]["requestUpdates"] for one in client.of("next", "1")]
            assert [one["state"] for one in told] == ["running", "completed"]


async def test_each_subscription_is_authorised_on_its_own() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await rig.login("ann")
        made = await started(rig, ann)
        async with line(rig, (await rig.login("bob")).headers) as client:
            await client.begin()
            client.ask("1", EVENTS, run="12345")
            assert await client.code("1") == "NOT_FOUND"
            client.ask("2", UPDATES, id="nothing")
            assert await client.code("2") == "NOT_FOUND"
            client.ask("3", "{a" * 11 + "}" * 11)
            assert await client.code("3") == "LIMIT_EXCEEDED"
            client.ask("4", "{no}")
            assert await client.code("4") == "BAD_USER_INPUT"
            client.ask("5", EVENTS, run=made["id"], after=-1)
            assert await client.code("5") == "BAD_USER_INPUT"
            client.ask("6", "{health}")
            await client.got("complete", "6")


async def test_the_end_of_a_session_ends_its_connections() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        made = await started(rig, ann)
        async with line(rig, ann.headers) as client, rig.replica() as other:
            await client.begin()
            client.ask("1", UPDATES, id=made["requestId"])
            await client.got("next", "1")
            await other.caller(ann).post("/api/auth/logout")
            assert await client.line.closed() == 4401


async def test_a_gateway_that_stops_ends_its_connections() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with line(rig, ann.headers) as client:
            await client.begin()
            async with asyncio.timeout(20):
                assert await rig.gateway.drain(15)
            assert await client.line.closed() == 1001


async def test_somebody_who_reads_nothing_loses_his_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ours, "STUCK_S", 0.05)
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with line(rig, ann.headers) as client:
            await client.begin()
            client.line.stall()
            client.ask("1", "{health}")
            await until(lambda: rig.gate.metrics.slow_consumer.value("graphql"))
            client.line.flow()
            assert await client.line.closed() == 1013


@virtually
async def test_a_client_that_says_nothing_is_asked_and_then_let_go() -> None:
    async with gateway_rig(heartbeat_s=3.0, connection_timeout_s=10.0) as rig:
        ann = await rig.login()
        async with line(rig, ann.headers) as client:
            await client.begin()
            await client.got("ping", count=3)
            client.say("pong")
            client.say("ping")
            await client.got("pong")
            assert await client.line.closed() == 1001
