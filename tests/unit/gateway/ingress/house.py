"""The ingress of a gateway without a server: what it asks and tells is kept, and can be away."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import msgspec

from noetl.api.credentials import SealedAnswer
from noetl.api.http import NoAnswer
from noetl.api.ingress import IngressListener
from noetl.api.problems import Problem, Refused
from noetl.api.subscriptions import DeliveriesKept
from noetl.bus.memory import MemoryBus
from noetl.clock import LoopClock
from noetl.edge.door import BODY, Door
from noetl.gateway.errors import MissingToken
from noetl.gateway.ingress.accounts import Accounts
from noetl.gateway.ingress.arriving import Arrivals
from noetl.gateway.ingress.listeners import Listeners
from noetl.gateway.limits import Limits
from noetl.gateway.metrics import GatewayMetrics
from noetl.gateway.oidc.keyrings import Keyrings
from noetl.gateway.peers import Peers
from noetl.gateway.routes import ingress
from noetl.ids import Ids
from noetl.intake.audit import NotTold
from noetl.intake.outcomes import Disposition
from noetl.secrets.fetch import Unreached
from noetl.secrets.sealed import KeyPair, about_delivery, seal_to
from noetl.sources import directives
from noetl.telemetry.fingerprints import Fingerprints
from tests.unit.server.rig import START

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

GATEWAY = "gateway-of-the-house"
SECRET = "canary-shared-secret-0123456789abcdef"  # noqa: S105 - of a stand-in
SERVICE = "Bearer internal-token-of-the-house"
BODY_LIMIT = 1024 * 1024
HMAC = "{ type: hmac_sha256, header: x-sign, secret: [hook] }"
DOCUMENT = """
apiVersion: noetl.io/v1
kind: Subscription
metadata: {{ name: orders, path: subscriptions/orders }}
spec:
  source: {source}
  mode: push
  ingress:
    gateway_path: /ingress/{listener}
    verify: {verify}
{ingress}
  headers:
    directives:
      - {{ header: x-route, controls: dispatch.playbook, allowed: [demo/other] }}
      - {{ header: x-key, controls: idempotency_key }}
    trace: {{ propagate: {propagate} }}
  dispatch: {{ playbook: demo/it, execution_pool: subscription }}
"""


def signed(body: bytes, secret: str = SECRET) -> str:
    """The signature that listeners of the house ask for."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def listener(  # noqa: PLR0913 - each a fact about it
    name: str = "orders",
    *,
    state: str = "ACTIVE",
    verify: str = HMAC,
    source: str = "webhook",
    version: int = 1,
    etag: str = "1",
    propagate: str = "none",
    **ingress_keys: Any,
) -> IngressListener:
    """A listener as the server tells of it, without its secrets."""
    lines = "\n".join(f"    {key}: {json.dumps(value)}" for key, value in ingress_keys.items())
    return IngressListener(
        listener=name,
        catalog_path=f"subscriptions/{name}",
        tenant_id="default",
        subscription_id="77",
        version=version,
        source=source,
        state=state,
        document=DOCUMENT.format(
            listener=name, verify=verify, source=source, ingress=lines, propagate=propagate
        ),
        etag=etag,
    )


class Server:
    """The server as a gateway asks it for listeners, and tells it of deliveries."""

    def __init__(self, keys: KeyPair) -> None:
        self.public = keys.public
        self.listeners: dict[str, IngressListener] = {}
        self.secrets: dict[str, dict[str, str]] = {"hook": {"value": SECRET}}
        self.asked: list[str] = []
        self.sealed: list[str] = []
        """Listeners whose secrets were told."""
        self.is_away = False
        self.refuses = ""
        self.holds: asyncio.Event | None = None
        self.events: list[Any] = []
        self.rows: list[Any] = []
        self.calls = 0

    async def ingress_listener(
        self, name: str, process: str, etag: str | None = None
    ) -> IngressListener | None:
        self.asked.append(name)
        if self.holds is not None:
            found = self.listeners.get(name)
            await self.holds.wait()
        self._must_be_there()
        found = self.listeners.get(name) if self.holds is None else found
        if found is None or self.refuses:
            raise refused(404 if not self.refuses else 403, self.refuses or "unknown_listener")
        told = f"{found.etag} {sorted(self.secrets.items())}"
        tag = hashlib.sha256(told.encode()).hexdigest()
        if tag == etag:
            return None
        self.sealed.append(name)
        secrets = {
            alias: self._sealed(process, f"ingress:{name}", alias, fields)
            for alias, fields in self.secrets.items()
        }
        return msgspec.structs.replace(found, secrets=secrets, etag=tag)

    async def post(self, events: Any) -> int:
        self.calls += 1
        if self.is_away:
            raise NotTold("away")
        self.events.extend(events)
        return 0

    async def put_deliveries(self, subscription_id: str, body: Any) -> DeliveriesKept:
        self.calls += 1
        self._must_be_there()
        self.rows.extend((subscription_id, row) for row in body.items)
        return DeliveriesKept(count=len(body.items))

    def _must_be_there(self) -> None:
        if self.is_away:
            raise NoAnswer("away")

    def _sealed(self, process: str, of: str, alias: str, fields: dict[str, str]) -> SealedAnswer:
        data = json.dumps({"data": fields}).encode()
        made = seal_to(self.public, data, about_delivery(process, of, alias))
        return SealedAnswer(
            alg=made.alg,
            v=made.v,
            eph_pub=made.eph_pub,
            ciphertext=made.ciphertext,
            expires_at="2030-01-01T00:00:00.000000Z",
        )


def refused(status: int, code: str) -> Refused:
    return Refused(Problem(type="", title="", status=status, code=code, detail=""))


class Taker:
    """Who runs deliveries; `found` is what becomes of the next ones."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.found: Disposition | BaseException | None = None
        self.holds: asyncio.Event | None = None
        self.came = asyncio.Event()

    async def deliver(self, known: Any, planned: Any) -> Disposition:
        self.taken.append((known, planned))
        self.came.set()
        if self.holds is not None:
            await self.holds.wait()
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found or Disposition(
            message_id=str(planned.message["id"]),
            settle="ack",
            outcome="started",
            execution_id=str(1000 + len(self.taken)),
        )


class Answered(NamedTuple):
    """What a sender was told, and how often it was asked for more of its body."""

    status: int
    headers: dict[str, str]
    body: bytes
    reads: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["code"]) if self.body.startswith(b"{") else ""


@dataclass
class House:
    """All of it."""

    server: Server
    desk: Taker
    bus: MemoryBus
    arrivals: Arrivals
    metrics: GatewayMetrics
    clock: LoopClock
    door: Door
    seen: Fingerprints
    resolved: list[Mapping[str, Any]] = field(default_factory=list)
    """Headers that the engine of directives was given."""

    async def ask(  # noqa: PLR0913 - a request has many parts
        self,
        body: bytes | Iterable[bytes] = b"{}",
        *,
        method: str = "POST",
        target: str = "/ingress/orders",
        headers: Iterable[tuple[str, str]] | Mapping[str, str] = (),
        address: str = "203.0.113.9",
        pause_s: float = 0.0,
        is_held: bool = False,
        scope: dict[str, Any] | None = None,
    ) -> Answered:
        """One request; a body in parts comes bit by bit, one that `is_held` had come before."""
        raw, _, query = target.partition("?")
        pairs = headers.items() if hasattr(headers, "items") else headers
        scope = {} if scope is None else scope
        scope |= {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "scheme": "http", "path": unquote(raw), "raw_path": raw.encode("ascii"),
            "query_string": query.encode("ascii"), "root_path": "", "client": (address, 1),
            "server": ("gate", 80), "noetl.request_id": "r-1",
            "headers": [(name.lower().encode(), value.encode()) for name, value in pairs],
        }  # fmt: skip
        parts = [body] if isinstance(body, bytes) else body
        if is_held:
            scope[BODY] = b"".join(parts)
        return await _exchanged(self.door, scope, iter(parts), pause_s)

    async def send(self, body: bytes = b"{}", **more: Any) -> Answered:
        """A delivery that verifies."""
        headers = {"x-sign": signed(body), **more.pop("headers", {})}
        return await self.ask(body, headers=headers, **more)

    def rejected(self, reason: str, name: str = "orders") -> float:
        return self.metrics.ingress_rejected.value(name, reason)


async def _exchanged(app: Any, scope: dict[str, Any], parts: Any, pause_s: float) -> Answered:
    reads = 0
    began: dict[str, Any] = {}
    answered: list[bytes] = []

    async def receive() -> Any:
        nonlocal reads
        reads += 1
        if pause_s:
            await asyncio.sleep(pause_s)
        part = next(parts, None)
        return {"type": "http.request", "body": part or b"", "more_body": part is not None}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            began.update(message)
        else:
            answered.append(message.get("body", b""))

    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in began["headers"]}
    return Answered(began["status"], headers, b"".join(answered), reads)


async def nowhere(_: Any) -> Any:
    raise Unreached("there is no network here")


@asynccontextmanager
async def house(
    *told: IngressListener,
    most: int = 512,
    fetch: Any = nowhere,
    trusted: tuple[str, ...] = (),
    tracer: Any = None,
) -> AsyncIterator[House]:
    """An ingress whose server knows these listeners, on the time of this loop."""
    clock = LoopClock(asyncio.get_running_loop(), START)
    keys, seen, bus = KeyPair.make(), Fingerprints(), MemoryBus()
    server, desk, metrics = Server(keys), Taker(), GatewayMetrics()
    server.listeners = {one.listener: one for one in told or (listener(),)}
    ids = Ids(clock, 1)
    resolved: list[Mapping[str, Any]] = []

    def counting(spec: Any, headers: Mapping[str, Any]) -> Any:
        resolved.append(headers)
        return directives.resolve(spec, headers)

    arrivals = Arrivals(
        listeners=Listeners(
            lambda: server,  # type: ignore[arg-type, return-value] # as much of it as is used
            name=GATEWAY,
            keys=keys,
            seen=seen,
            clock=clock,
            bus=bus,
        ),
        accounts=Accounts(
            poster=server, keep=server.put_deliveries, ids=ids, clock=clock, metrics=metrics
        ),
        keyrings=Keyrings(fetch, clock, metrics.ingress_jwks_refresh.inc),
        limits=Limits(clock, metrics),
        peers=Peers(trusted),
        clock=clock,
        metrics=metrics,
        desk=desk,
        most=most,
        tracer=tracer,
        resolve=counting,
    )
    gate: Any = SimpleNamespace(
        ingress=arrivals, seen=seen, tracer=None, access=_Access(),
        settings=SimpleNamespace(timeout_s=60.0),
        peers=Peers(), limits=Limits(clock, metrics),
    )  # fmt: skip
    made = House(
        server, desk, bus, arrivals, metrics, clock, Door(ingress.routes(gate)), seen, resolved
    )
    listening = asyncio.create_task(arrivals.listeners.listen())
    telling = asyncio.create_task(arrivals.accounts.run())
    await asyncio.sleep(0)
    try:
        yield made
    finally:
        listening.cancel()
        telling.cancel()
        await asyncio.gather(listening, telling, return_exceptions=True)
        await arrivals.listeners.close()


class _Access:
    """Lets our own processes in, and nobody else."""

    def is_service(self, connection: Any) -> bool:
        return connection.headers.get("authorization") == SERVICE

    async def person(self, connection: Any, *, purpose: str = "") -> Any:
        del connection, purpose
        raise MissingToken("nobody")
