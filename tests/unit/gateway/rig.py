"""A gateway in front of a real server, both in this process, and what tests do with them."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from noetl.api.catalog import Register
from noetl.api.commands import Claim
from noetl.api.events import Report, Reports
from noetl.api.http import AsgiTransport
from noetl.api.identity import Login, NewAccount
from noetl.bus.gateway import MemoryGatewayBus
from noetl.clock import LoopClock
from noetl.gateway.app import create_gateway
from noetl.gateway.parts import GatewayParts
from noetl.gateway.person import Person
from noetl.gateway.upstream import Upstream
from noetl.ids import Ids
from noetl.secrets.fetch import Unreached
from noetl.settings import GatewaySettings
from tests.unit.server.rig import HEAD, START
from tests.unit.server.rig import rig as server_rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from noetl.api.http import Answer, App
    from noetl.gateway.app import Gateway
    from tests.unit.server.rig import Rig

INTERNAL = "internal-token-of-the-rig"
PASSWORD = "correct horse battery"  # noqa: S105 - of nobody
ADMIN = Person(user_id="1", subject="root", roles=("admin",))
ROLES = ("admin", "developer", "operator", "viewer")


@dataclass(frozen=True)
class Signed:
    """Somebody who has signed in."""

    token: str
    session_id: str
    user_id: str
    email: str

    @property
    def headers(self) -> dict[str, str]:
        """What shows it."""
        return {"authorization": f"Bearer {self.token}"}


class Caller:
    """An HTTP client without a socket; it keeps the headers that it is given."""

    def __init__(self, app: App, headers: Mapping[str, str] | None = None) -> None:
        self._transport = AsgiTransport(app)
        self._headers = dict(headers or {})

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One call; a body that is no bytes is sent as JSON."""
        sent = {**self._headers, **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("content-type", "application/json")
        return await self._transport.request(method, path, body or b"", sent)

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Read."""
        return await self.ask("GET", path, None, headers)

    async def post(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Write."""
        return await self.ask("POST", path, body, headers)


class GatewayRig:
    """One gateway and its server."""

    def __init__(self, gateway: Gateway, server: Rig, bus: MemoryGatewayBus) -> None:
        self.gateway = gateway
        self.gate = gateway.gate
        self.server = server
        self.bus = bus
        self.system = self.gate.upstream.service()
        """The server, as our own processes call it."""
        self.admin = self.gate.upstream.acting_for(ADMIN)
        """The server, as an admin calls it."""

    def caller(self, who: Signed | None = None, **headers: str) -> Caller:
        """Somebody at the gateway; nobody without a session."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return Caller(self.gateway.asgi, {**(who.headers if who else {}), **given})

    async def account(self, name: str, *roles: str) -> str:
        """Make an account with a password; its id."""
        made = await self.admin.add_user(
            NewAccount(subject=name, email=f"{name}@example.com", password=PASSWORD, roles=roles)
        )
        return made.account_id

    async def login(self, name: str = "ann", *roles: str) -> Signed:
        """Make an account and sign it in."""
        user_id = await self.account(name, *(roles or ("developer",)))
        return await self.again(name, user_id)

    async def again(self, name: str, user_id: str = "") -> Signed:
        """Sign in once more."""
        made = await self.system.login(Login(email=f"{name}@example.com", password=PASSWORD))
        told = await self.system.validate_session(made.session_token)
        return Signed(made.session_token, told.session_id or "", user_id, f"{name}@example.com")

    async def playbook(self, body: str, path: str = "demo/it") -> None:
        """Register a playbook."""
        await self.admin.register(Register(content=HEAD.replace("demo/it", path) + body))

    async def step(self, result: Any = 1, error: str | None = None) -> bool:
        """Do the next command of the shared pool; false when there is none."""
        asked = Claim(worker_id="w", pool="shared", free_slots=1)
        claimed = (await self.system.claim(asked)).claimed
        for command in claimed:
            last = {"result": result} if error is None else {"error": _failure(error)}
            events = [
                ("command.started", {}),
                ("call.done" if error is None else "call.error", last),
            ]
            reports = tuple(
                Report(
                    execution_id=command.execution_id,
                    event_id=self.server.ids.new(),
                    event_type=name,
                    step=command.node_name,
                    command_id=command.command_id,
                    attempt=command.attempt,
                    payload=payload,
                )
                for name, payload in events
            )
            await self.system.report(Reports(worker_id="w", pool="shared", events=reports))
        return bool(claimed)

    @asynccontextmanager
    async def worker(self, result: Any = 1) -> AsyncIterator[None]:
        """A worker of the shared pool that ends every command with this result."""

        async def work() -> None:
            while True:
                if not await self.step(result):
                    await asyncio.sleep(0.01)

        task = asyncio.create_task(work())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @asynccontextmanager
    async def replica(self, **settings: Any) -> AsyncIterator[GatewayRig]:
        """One more gateway on the same bus and server."""
        parts = _parts(self.server, self.bus, self.gate.clock, settings)
        async with create_gateway(parts) as gateway:
            yield GatewayRig(gateway, self.server, self.bus)


async def until(holds: Callable[[], object], within_s: float = 10.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.01)


async def _nowhere(ask: Any) -> Any:
    del ask
    raise Unreached("there is no network here")


def settings_of(**more: Any) -> GatewaySettings:
    """Settings of a gateway of this machine."""
    made = GatewaySettings(host="127.0.0.1", internal_token=INTERNAL, nats_url="nats://memory")
    return replace(made, **more)


def _parts(
    server: Rig, bus: MemoryGatewayBus, clock: Any, settings: dict[str, Any]
) -> GatewayParts:
    given = dict(settings)
    fetch = given.pop("fetch", _nowhere)
    given_bus = given.pop("bus", bus)
    app = given.pop("upstream_app", server.server.asgi)
    more = {name: given.pop(name) for name in ("shards", "tracer", "seen") if name in given}
    return GatewayParts(
        settings=settings_of(**given),
        clock=clock,
        ids=Ids(clock, 2),
        bus=given_bus,
        upstream=Upstream.over(app, INTERNAL, clock),
        fetch=fetch,
        **more,
    )


@asynccontextmanager
async def gateway_rig(
    server: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[GatewayRig]:
    """A running gateway in front of a running server, on the time of this loop."""
    async with AsyncExitStack() as stack:
        clock = (server or {}).get("clock") or LoopClock(asyncio.get_running_loop(), START)
        asked = {"is_open": False, "internal_tokens": (INTERNAL,), "publishes": True}
        asked |= {"password_kib": 64, "clock": clock, **(server or {})}
        behind = await stack.enter_async_context(server_rig(**asked))
        bus = MemoryGatewayBus(behind.bus, clock)
        parts = _parts(behind, bus, clock, settings)
        gateway = await stack.enter_async_context(create_gateway(parts))
        yield GatewayRig(gateway, behind, bus)


def _failure(message: str) -> dict[str, Any]:
    return {"kind": "test", "code": "failed", "message": message, "retryable": False}
