"""Streams over sockets and a real broker: several gateways, kills, wipes, stalled readers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import websockets

from noetl.bus.gateway import GatewayBus
from noetl.clock import SystemClock
from noetl.edge.http import Sockets
from noetl.gateway import frames
from noetl.gateway.shards import Shards
from noetl.gateway.upstream import Upstream
from tests.servers.nats import wipe
from tests.servers.stack import Process
from tests.unit.gateway.rig import INTERNAL, gateway_rig
from tests.unit.gateway.served import served
from tests.unit.gateway.streaming import until
from tests.unit.server.rig import ONE_STEP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tests.servers.nats import NatsServer
    from tests.unit.gateway.rig import GatewayRig, Signed

LATE_S = 30.0


class Reader:
    """A client of `/events` over a socket, which knows where it was."""

    def __init__(self, client_id: str, token: str) -> None:
        self.client_id = client_id
        self.token = token
        self.ids: list[str] = []
        self.told: list[dict[str, Any]] = []
        self.inits: list[dict[str, Any]] = []
        self._changed = asyncio.Event()

    async def read(self, url: str) -> None:
        """Read one stream to its end."""
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 22)
        last = f"last-event-id: {self.ids[-1]}\r\n" if self.ids else ""
        head = (
            f"GET /events?client_id={self.client_id} HTTP/1.1\r\nhost: {host}\r\n"
            f"connection: close\r\nauthorization: Bearer {self.token}\r\n{last}\r\n"
        )
        try:
            writer.write(head.encode())
            status = int((await reader.readline()).split()[1])
            if status != 200:
                raise ConnectionError(status)
            event_id, data = "", b""
            while (line := await reader.readline()).endswith(b"\n"):
                name, _, value = line.strip().partition(b": ")
                if name == b"id":
                    event_id = value.decode()
                elif name == b"data":
                    data = value
                elif not name and data:  # what was cut off before its end does not count
                    self._take(event_id, json.loads(data))
                    event_id, data = "", b""
        finally:
            writer.close()

    def _take(self, event_id: str, body: dict[str, Any]) -> None:
        if "result" in body:
            self.inits.append(body["result"])
        else:
            self.told.append(body)
        if event_id:
            self.ids.append(event_id)
        self._changed.set()

    async def live(self, urls: Callable[[], list[str]]) -> None:
        """Come back for ever, wherever somebody answers."""
        while True:
            for url in urls():
                try:
                    await self.read(url)
                except (OSError, asyncio.IncompleteReadError, IndexError):
                    continue
            await asyncio.sleep(0.05)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(LATE_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    def of(self, method: str) -> list[dict[str, Any]]:
        """The params of messages of a method."""
        return [one["params"] for one in self.told if one["method"] == method]


@asynccontextmanager
async def on_nats(
    url: str, count: int = 1, ping_s: float = 30.0
) -> AsyncIterator[tuple[GatewayRig, list[str]]]:
    """Gateways of this process on a real broker and on sockets; the first one's rig."""
    async with AsyncExitStack() as stack:
        urls: list[str] = []
        first: GatewayRig | None = None
        for _ in range(count):
            bus = await GatewayBus.open(url)
            stack.push_async_callback(bus.close)
            await bus.ready(LATE_S)
            made = (
                await stack.enter_async_context(gateway_rig(bus=bus))
                if first is None
                else await stack.enter_async_context(first.replica(bus=bus))
            )
            first = first or made
            heard = Sockets(most_bytes=1 << 20, ping_s=ping_s)
            urls.append(await stack.enter_async_context(served(made.gateway.asgi, sockets=heard)))
        assert first is not None
        yield first, urls


async def _send(bus: GatewayBus, client_id: str, number: int, size: int = 0) -> None:
    frame = frames.progress("r", "1", text="x" * size, share=float(number))
    await bus.clients.append(client_id, frame, f"{client_id}/{number}")


async def test_20_a_callback_to_one_replica_reaches_the_client_on_another_once(
    clean_nats_url: str,
) -> None:
    async with on_nats(clean_nats_url, 2) as (rig, urls):
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        reader = Reader("client-00001", ann.token)
        reading = asyncio.create_task(reader.read(urls[1]))
        try:
            await reader.until(lambda: bool(reader.inits))
            params = {"name": "demo/it", "clientId": "client-00001"}
            call = {"jsonrpc": "2.0", "id": 1, "method": "playbook/execute", "params": params}
            made = json.loads((await rig.caller(ann).post("/rpc", call)).body)["result"]
            service = rig.caller(authorization=f"Bearer {INTERNAL}")
            body = {"request_id": made["requestId"], "data": {"n": 1}}
            answers = await asyncio.gather(
                *(service.post("/api/internal/callback/async", body) for _ in range(3))
            )
            told = sorted(json.loads(one.body)["status"] for one in answers)
            assert told == ["delivered", "duplicate", "duplicate"]
            await reader.until(lambda: bool(reader.of("playbook/result")))
            (result,) = reader.of("playbook/result")
            assert (result["requestId"], result["data"]) == (made["requestId"], {"n": 1})
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def test_22_the_older_of_two_streams_is_superseded_over_replicas(clean_nats_url: str) -> None:
    async with on_nats(clean_nats_url, 2) as (rig, urls):
        ann = await rig.login()
        older, newer = Reader("client-00001", ann.token), Reader("client-00001", ann.token)
        first = asyncio.create_task(older.read(urls[0]))
        await older.until(lambda: bool(older.inits))
        second = asyncio.create_task(newer.read(urls[1]))
        try:
            async with asyncio.timeout(LATE_S):
                await first
            assert [one["method"] for one in older.told] == ["connection/superseded"]
            assert await rig.gate.hub.send("client-00001", frames.progress("r", "1"), "1")
            await newer.until(lambda: bool(newer.of("playbook/progress")))
        finally:
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)


async def test_19_a_wiped_broker_costs_a_reconnect_and_the_results_come_again(
    own_nats: NatsServer,
) -> None:
    async with on_nats(own_nats.url) as (rig, urls):
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        reader = Reader("client-00001", ann.token)
        reading = asyncio.create_task(reader.live(lambda: urls))
        try:
            await reader.until(lambda: bool(reader.inits))
            await rig.gate.hub.send("client-00001", frames.progress("r", "1"), "1")
            await reader.until(lambda: bool(reader.ids))
            epoch = reader.inits[0]["epoch"]
            own_nats.kill()
            own_nats.start()
            await wipe(own_nats.url)
            await reader.until(lambda: reader.inits[-1]["epoch"] != epoch)
            assert reader.inits[-1]["recovery"]["recovered"] is False
            await rig.gate.hub.send("client-00001", frames.progress("r", "1"), "2")
            await reader.until(lambda: len(reader.of("playbook/progress")) == 2)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def test_a_broker_that_was_away_costs_no_message_and_no_stream(own_nats: NatsServer) -> None:
    async with on_nats(own_nats.url) as (rig, urls):
        ann = await rig.login()
        reader = Reader("client-00001", ann.token)
        reading = asyncio.create_task(reader.read(urls[0]))
        try:
            await reader.until(lambda: bool(reader.inits))
            await rig.gate.hub.send("client-00001", frames.progress("r", "1"), "1")
            count = rig.gate.bus.connections
            own_nats.kill()
            own_nats.start()
            await until(lambda: rig.gate.bus.connections > count)
            await rig.gate.hub.send("client-00001", frames.progress("r", "1"), "2")
            await reader.until(lambda: len(reader.of("playbook/progress")) == 2)
            assert len(set(reader.ids)) == 2
            assert len(reader.inits) == 2  # `init` and `message` of one stream
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def test_25_a_stalled_reader_loses_its_connection_and_not_its_messages(
    clean_nats_url: str,
) -> None:
    async with on_nats(clean_nats_url) as (rig, urls):
        ann, hub, bus = await rig.login(), rig.gate.hub, rig.gate.bus
        host, _, port = urls[0].removeprefix("http://").partition(":")
        with socket.socket() as stalled:
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stalled.setblocking(False)  # noqa: FBT003 - as the socket has it
            loop = asyncio.get_running_loop()
            await loop.sock_connect(stalled, (host, int(port)))
            head = (
                f"GET /events?client_id=client-00001 HTTP/1.1\r\nhost: x\r\n"
                f"authorization: Bearer {ann.token}\r\n\r\n"
            )
            await loop.sock_sendall(stalled, head.encode())
            await until(lambda: hub.count)
            count = 0
            most = 0
            async with asyncio.timeout(LATE_S):
                while rig.gate.metrics.slow_consumer.value("sse") == 0:
                    await _send(bus, "client-00001", count, 100_000)
                    count += 1
                    most = max([most, *(one.behind[1] for one in hub._open)])  # noqa: SLF001 - what is held
            assert most <= 4 << 20
            for stream in list(hub._open):  # noqa: SLF001 - half a minute later
                stream.writing_since = -1e9
            await until(lambda: not hub.count)
        reader = Reader("client-00001", ann.token)
        reading = asyncio.create_task(reader.read(urls[0]))
        await reader.until(lambda: len(reader.of("playbook/progress")) == count)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def test_30_the_limits_of_a_socket_hold_over_the_wire(clean_nats_url: str) -> None:
    async with on_nats(clean_nats_url) as (rig, urls):
        ann = await rig.login()
        url = urls[0].replace("http://", "ws://") + "/ws"
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(
                url, origin="https://evil.example", additional_headers=ann.headers
            )
        assert refused.value.response.status_code == 403
        assert refused.value.response.headers["x-request-id"]
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(url, additional_headers={"authorization": "Bearer nts_x"})
        assert refused.value.response.status_code == 401

        async def code(*messages: str | bytes) -> int | None:
            async with websockets.connect(
                url, additional_headers=ann.headers, subprotocols=["noetl.v1"], max_size=None
            ) as ws:
                assert ws.subprotocol == "noetl.v1"
                await ws.send('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}')
                assert "clientId" in json.loads(await ws.recv())["result"]
                try:
                    for message in messages:
                        await ws.send(message)
                    async with asyncio.timeout(LATE_S):
                        while True:
                            await ws.recv()
                except websockets.ConnectionClosed:
                    return ws.close_code

        assert await code("x" * (2 << 20)) == 1009
        assert await code(b"x") == 4400
        assert await code(*['{"jsonrpc":"2.0","id":1,"method":"ping"}'] * 300) == 4429


async def test_a_client_that_answers_pings_of_the_protocol_is_not_idle(clean_nats_url: str) -> None:
    async with on_nats(clean_nats_url, ping_s=0.05) as (rig, urls):
        ann = await rig.login()
        url = urls[0].replace("http://", "ws://") + "/ws"
        async with websockets.connect(url, additional_headers=ann.headers) as ws:
            await ws.send('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}')
            await ws.recv()
            (stream,) = rig.gate.hub._open  # noqa: SLF001 - what it has heard
            before = stream.timing.heard_at
            await until(lambda: stream.timing.heard_at > before)


@pytest.fixture
def gateways(clean_nats_url: str, tmp_path: Path) -> Iterator[Callable[[str], tuple[Process, str]]]:
    """Starts gateways as processes of their own."""
    made: list[Process] = []

    def start(server_url: str) -> tuple[Process, str]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environ = {
            "PATH": os.defpath,
            "LANG": "C.UTF-8",
            "NOETL_HOME": str(tmp_path / f"home-{port}"),
            "NOETL_NATS_URL": clean_nats_url,
            "NOETL_SERVER_URL": server_url,
            "NOETL_INTERNAL_API_TOKEN": INTERNAL,
            "GATEWAY_BIND": "127.0.0.1",
            "ROUTER_PORT": str(port),
        }
        process = Process(["noetl.cli.app", "gateway"], environ)
        made.append(process)
        return process, f"http://127.0.0.1:{port}"

    yield start
    for process in made:
        process.stop()


async def test_21_a_killed_gateway_costs_no_message_and_repeats_none(
    clean_nats_url: str, gateways: Callable[[str], tuple[Process, str]]
) -> None:
    clients, messages = 60, 20
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(gateway_rig(server={"clock": SystemClock()}))
        server_url = await stack.enter_async_context(served(rig.server.server.asgi))
        started = [gateways(server_url) for _ in range(2)]
        loop = asyncio.get_running_loop()
        for process, _ in started:
            await loop.run_in_executor(None, process.until, "the gateway listens")
        urls = [url for _, url in started]
        bus = await GatewayBus.open(clean_nats_url)
        stack.push_async_callback(bus.close)
        await bus.ready(LATE_S)
        signed: list[Signed] = [await rig.login(f"user{n}") for n in range(3)]
        readers = [Reader(f"client-{n:05}", signed[n % 3].token) for n in range(clients)]
        reading = [asyncio.create_task(one.live(lambda: urls)) for one in readers]
        try:
            for one in readers:
                await one.until(lambda one=one: bool(one.inits))
            for number in range(messages):
                await asyncio.gather(*(_send(bus, one.client_id, number) for one in readers))
                if number == messages // 3:
                    os.kill(started[0][0].pid, signal.SIGKILL)
            for one in readers:
                await one.until(lambda one=one: len(one.of("playbook/progress")) >= messages)
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        for one in readers:
            shares = [told["progress"] for told in one.of("playbook/progress")]
            assert shares == [float(n) for n in range(messages)]
            assert len(set(one.ids)) == messages


async def test_a_watched_run_is_told_live_and_followed_once_for_two_clients(
    clean_nats_url: str,
) -> None:
    async with on_nats(clean_nats_url) as (rig, urls):
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        async with served(rig.server.server.asgi) as server_url:
            ways = Upstream.to(server_url, INTERNAL, rig.gate.clock, Shards())
            before, rig.gate.upstream._ways = rig.gate.upstream._ways, ways._ways  # noqa: SLF001 - sockets in the place of none
            readers = [Reader(f"client-0000{n}", ann.token) for n in range(2)]
            reading = [asyncio.create_task(one.read(urls[0])) for one in readers]
            caller = rig.caller(ann)

            async def call(method: str, **params: Any) -> Any:
                body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                return json.loads((await caller.post("/rpc", body)).body)["result"]

            try:
                for one in readers:
                    await one.until(lambda one=one: bool(one.inits))
                run = (await call("playbook/execute", name="demo/it", delivery="none"))[
                    "executionId"
                ]
                asked = {"executionIds": [run], "channels": ["state", "events", "logs"]}
                for one in readers:
                    told = await call("subscribe", clientId=one.client_id, **asked)
                    assert told == {"subscribed": [run]}
                assert rig.gate.hub.watches.followed == 2  # the events and the lines
                await readers[0].until(lambda: bool(readers[0].of("playbook/event")))
                await call("unsubscribe", clientId=readers[1].client_id, executionIds=[run])
                assert rig.gate.hub.watches.of(readers[1].client_id) == []
                assert await rig.step({"n": 1})
                await readers[0].until(
                    lambda: any(
                        one["eventType"] == "playbook.completed"
                        for one in readers[0].of("playbook/state")
                    )
                )
                await until(lambda: not rig.gate.hub.watches.followed)
                assert not any(
                    one["eventType"] == "playbook.completed"
                    for one in readers[1].of("playbook/state")
                )
            finally:
                for task in reading:
                    task.cancel()
                await asyncio.gather(*reading, return_exceptions=True)
                rig.gate.upstream._ways = before  # noqa: SLF001 - as above
                await ways.close()
