"""Requests in front of a real server, with the real hub and its log, and no socket anywhere."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.api.executions import Control
from noetl.api.gateway import Callback, Wish
from noetl.api.http import Answer, AsgiTransport, NoAnswer
from noetl.bus.base import BusGone
from noetl.bus.gateway import MemoryGatewayBus
from noetl.clock import LoopClock
from noetl.gateway.hub import Hub
from noetl.gateway.metrics import GatewayMetrics
from noetl.gateway.person import Person
from noetl.gateway.requests import Requests
from noetl.gateway.upstream import Upstream
from noetl.ids import Ids
from noetl.telemetry.fingerprints import Fingerprints
from tests.unit.gateway.rig import INTERNAL, Caller, GatewayRig
from tests.unit.server.rig import START
from tests.unit.server.rig import rig as server_rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tests.unit.server.rig import Rig

CLIENT = "client-of-ann"
URL = "http://gateway.test:8090"
ONE = 'workflow:\n  - step: start\n    tool: {kind: python, code: "return 1"}\n'
ANN = Person(user_id="7", subject="ann", roles=("developer",), session_id="s-ann")
BOB = Person(user_id="8", subject="bob", roles=("developer",), session_id="s-bob")


class Way:
    """The way to the server, which a test can bar."""

    def __init__(self, app: Any) -> None:
        self._way = AsgiTransport(app)
        self.is_barred = False
        self.lost: set[str] = set()
        """Paths whose answers are lost after the server has done what was asked."""
        self.asked: list[str] = []
        self.held: asyncio.Event | None = None

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        self.asked.append(f"{method} {path.partition('?')[0]}")
        if self.is_barred:
            raise NoAnswer("the server is away")
        answer = await self._way.request(method, path, body, headers or {})
        if path.partition("?")[0] in self.lost:
            raise NoAnswer("the answer was lost")
        return answer

    async def exchange(self, asked: Any) -> Any:
        self.asked.append(f"{asked.method} {asked.path.partition('?')[0]}")
        if self.is_barred:
            raise NoAnswer("the server is away")
        return await self._way.exchange(asked)


class Keys:
    """A bucket that counts its use, and that a test can bar at any of its operations."""

    def __init__(self, keys: Any) -> None:
        self.inside = keys
        self.barred: set[str] = set()
        self.deaf: set[str] = set()
        """Operations that are done, and whose answers are lost."""
        self.slow: dict[str, asyncio.Event] = {}
        """Keys that are not answered for until something has happened."""
        self.used: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        inside = getattr(self.inside, name)

        async def use(key: str, *more: Any) -> Any:
            self.used.append((name, key))
            if name in self.barred:
                raise BusGone("the bus is away")
            if key in self.slow:
                await self.slow[key].wait()
            done = await inside(key, *more)
            if name in self.deaf:
                raise BusGone("the answer was lost")
            return done

        return use

    @asynccontextmanager
    async def watch(self, key: str) -> Any:
        self.used.append(("watch", key))
        if "watch" in self.barred:
            raise BusGone("the bus is away")
        async with self.inside.watch(key) as changes:
            yield changes

    def count(self, *operations: str) -> int:
        return sum(name in operations for name, _ in self.used)


class Replica:
    """One gateway's requests and hub."""

    def __init__(self, desk: Desk, **more: Any) -> None:
        self.keys = Keys(desk.bus.requests)
        self.metrics = GatewayMetrics()
        self.upstream = Upstream([desk.way], INTERNAL, desk.clock)
        self.hub = Hub(bus=desk.bus, upstream=self.upstream, clock=desk.clock, metrics=self.metrics)
        self.requests = Requests(
            keys=self.keys,
            feed=desk.bus.feed,
            hub=self.hub,
            upstream=self.upstream,
            clock=desk.clock,
            ids=Ids(desk.clock, desk.next_machine()),
            metrics=self.metrics,
            seen=Fingerprints(),
            gateway_url=URL,
            **more,
        )

    async def heard(self) -> int:
        """Take what the feed has, and tell it."""
        async with asyncio.TaskGroup() as tasks:
            return await self.requests.feeding.take(0.0, tasks)


class Desk(Replica):
    """A server, a bus, and the first of the gateways."""

    def __init__(self, server: Rig, clock: Any, **more: Any) -> None:
        self.server = server
        self.clock = clock
        self.way = Way(server.server.asgi)
        self.bus = MemoryGatewayBus(server.bus, clock)
        self._machine = 10
        self.stream: Any = None
        """Of the client that is connected."""
        super().__init__(self, **more)

    def next_machine(self) -> int:
        self._machine += 1
        return self._machine

    def replica(self, **more: Any) -> Replica:
        """One more gateway on the same bus."""
        return Replica(self, **more)

    @property
    def system(self) -> Any:
        return self.upstream.service()

    async def client(self, person: Person = ANN, client_id: str = CLIENT) -> Any:
        """A client that is connected here."""
        return await self.hub.open(person, client_id, "", "sse", lambda frame, _: frame)

    async def playbook(self, body: str = ONE, path: str = "demo/it") -> None:
        await GatewayRig.playbook(self, body, path)  # type: ignore[arg-type] # it is like one

    @property
    def admin(self) -> Any:
        return self.upstream.acting_for(Person(user_id="1", subject="root", roles=("admin",)))

    async def step(self, result: Any = 1, error: str | None = None) -> bool:
        """Do the next command; its events are published."""
        done = await GatewayRig.step(self, result, error)  # type: ignore[arg-type] # it is like one
        await self.published()
        return done

    async def published(self) -> None:
        """Let the server publish what it has committed."""
        await asyncio.sleep(0.1)

    async def start(self, **more: Any) -> Any:
        """Ann runs the playbook for her client."""
        wish = Wish(**{"name": "demo/it", "client_id": CLIENT, **more})
        return await self.requests.start(ANN, wish)

    async def messages(self, client_id: str = CLIENT) -> list[dict[str, Any]]:
        """What a client was told, in order."""
        history = await self.bus.clients.after(client_id, 0)
        return [msgspec.json.decode(each.payload) for each in history.messages]

    async def results(self, client_id: str = CLIENT) -> list[dict[str, Any]]:
        """The results that a client was told."""
        told = await self.messages(client_id)
        return [each["params"] for each in told if each["method"] == "playbook/result"]

    async def token(self, request_id: str) -> str:
        """The callback token of a request, as its worker gets it."""
        started = (await self.requests.document(ANN, request_id)).execution_id
        secrets = await self.server.plane.runs.inputs._secrets.of("default", started)  # noqa: SLF001 - what only workers see
        return str(secrets["callback_token"])

    async def call_back(self, request_id: str, **more: Any) -> str:
        """A playbook's callback with the right token."""
        given = {"request_id": request_id, **more}
        token = given.pop("token", None) or await self.token(request_id)
        return await self.requests.callback(Callback(**given), token)

    async def cancel(self, execution_id: str) -> None:
        await self.system.cancel(execution_id, Control())
        await self.published()

    def wipe(self) -> None:
        """The store of the bus is lost."""
        for part in (self.bus.requests, self.bus.sessions):
            part._kept.clear()  # noqa: SLF001 - what a lost disk does
            part._revision += 1000  # noqa: SLF001 - as a new stream has others


@asynccontextmanager
async def desk(**more: Any) -> AsyncIterator[Desk]:
    """A desk on the time of this loop, with one playbook and one connected client."""
    async with AsyncExitStack() as stack:
        clock = LoopClock(asyncio.get_running_loop(), START)
        asked = {"is_open": False, "internal_tokens": (INTERNAL,), "clock": clock}
        server = await stack.enter_async_context(server_rig(publishes=True, **asked))
        made = Desk(server, clock, **more)
        await made.playbook()
        made.stream = await made.client()
        stack.push_async_callback(made.hub.close, made.stream)
        yield made


__all__ = ("ANN", "BOB", "CLIENT", "ONE", "URL", "Caller", "Desk", "desk")
