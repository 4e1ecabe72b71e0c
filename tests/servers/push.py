"""Senders of webhooks, and a gateway of this process to which they send, before a real server."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from typing import Any

from noetl.api.catalog import Register
from noetl.api.credentials import CredentialPut
from noetl.bus.gateway import MemoryGatewayBus
from noetl.clock import LoopClock
from noetl.gateway.app import create_gateway
from noetl.gateway.upstream import Upstream
from noetl.ids import Ids
from noetl.local.virtual import run_virtually
from noetl.sources.directives import resolve
from tests.fakes.issuer import Issuer
from tests.unit.gateway.desk import through
from tests.unit.gateway.ingress import senders as by
from tests.unit.gateway.rig import ADMIN, INTERNAL, GatewayRig
from tests.unit.gateway.rig import _parts as parts_of
from tests.unit.server.rig import rig as server_rig

NOW = 1_700_000_000
"""When the clock of a gateway here begins; the senders of the unit tests sign for it."""
SECRET = "canary-hook-secret-0123456789abcdef"  # noqa: S105 - of a stand-in
OLD = "canary-hook-before-0123456789abcdef"
HMAC = {"type": "hmac_sha256", "secret": ["new"]}
PEER = "192.0.2.10"
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: one, path: {path}}}
workflow:
  - step: start
    tool: {{kind: python, code: "result = 1"}}
"""
MOST_ROWS = 1000
GOOGLE = "https://accounts.google.com"


def virtually(test):
    """Run a test on a loop whose waiting costs nothing; fixtures are given to it as they are."""

    @wraps(test)
    def run(**given):
        run_virtually(test(**given))

    return run


# ---------------------------------------------------------------------------- what is sent


def signature(body, secret=SECRET, algorithm="sha256"):
    """The signature of a body as `hmac_sha256` has it by default."""
    return hmac.digest(secret.encode(), body, algorithm).hex()


def signed(body, secret=SECRET, **headers):
    """The headers of a delivery that verifies; `_` in a name is `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"x-signature": signature(body, secret), **named}


def body_of(value):
    """A body of JSON."""
    return json.dumps(value).encode()


def listening(name, *, verify=HMAC, dispatch="hooks/one", spool=None, ingress=None, **spec):
    """The document of a listener; without a word it has no spool."""
    document = {
        "apiVersion": "noetl.io/v1",
        "kind": "Subscription",
        "metadata": {"name": name, "path": f"hooks/{name}"},
        "spec": {
            "source": "webhook",
            "mode": "push",
            "ingress": {"gateway_path": f"/ingress/{name}", "verify": verify, **(ingress or {})},
            "dispatch": {"playbook": dispatch, "execution_pool": "shared"},
            "spool": spool or {"mode": "off"},
            **spec,
        },
    }
    return json.dumps(document)


@dataclass(frozen=True)
class Told:
    """The answer to a delivery."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """The code of a refusal, the status of an acceptance."""
        told = self.json
        return told.get("code") or told.get("status")

    @property
    def both(self):
        return self.status, self.code


async def sent(  # noqa: PLR0913 - everything that a stranger can choose
    app, path, body=b"", headers=(), *, method="POST", query=b"", peer=PEER, parts=None
):
    """Send one request to an app without a socket; `parts` is a body that comes bit by bit."""
    pairs = headers.items() if isinstance(headers, dict) else headers
    wire = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
    names = {name for name, _ in wire}
    if parts is None and b"content-length" not in names:
        wire.append((b"content-length", str(len(body)).encode()))
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": query,
        "root_path": "", "headers": [(b"host", b"gate.example.org"), *wire],
        "client": (peer, 5000), "server": ("gate.example.org", 80),
    }  # fmt: skip
    over, pieces = asyncio.Event(), _pieces(body) if parts is None else parts
    answer = {"status": 0, "headers": [], "body": b""}

    async def receive():
        async for piece in pieces:
            return {"type": "http.request", "body": piece, "more_body": True}
        if not over.is_set():
            over.set()
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message):
        answer["status"] = message.get("status", answer["status"])
        answer["headers"] += message.get("headers", ())
        answer["body"] += message.get("body", b"")

    await app(scope, receive, send)
    told = {name.decode().lower(): value.decode("latin-1") for name, value in answer["headers"]}
    return Told(answer["status"], told, answer["body"])


async def _pieces(body):
    if body:
        yield body


# ---------------------------------------------------------------------------- where it is sent


class Leaping(LoopClock):
    """The time of the loop, and a little more: nobody works while it leaps."""

    leapt_s = 0.0

    def monotonic(self):
        return super().monotonic() + self.leapt_s


class Behind:
    """The server as gateways reach it: it can be away, answer wrongly, or lose its answers."""

    def __init__(self, app):
        self.app = app
        self.is_away = False
        self.status = 0
        """What every start of a run is answered with, when it is not 0."""
        self.loses = 0
        """So many answers to starts of runs get lost."""
        self.seen = Counter()
        """How often each path was asked for, in whichever way."""
        self.traces = []
        """The paths and the traces of requests that say of which trace they are."""

    async def __call__(self, scope, receive, send):
        path = scope["path"]
        self.seen[path] += 1
        trace = dict(scope["headers"]).get(b"traceparent")
        if trace is not None:
            self.traces.append((path, trace.decode()))
        if self.is_away:
            raise ConnectionError("nobody is there")
        is_start = path.startswith(("/api/execute", "/api/run"))
        if is_start and self.status:
            await _refuse(self.status, send)
        elif is_start and self.loses:
            self.loses -= 1
            await self.app(scope, receive, _unheard)
            raise ConnectionError("the answer is lost")
        else:
            await self.app(scope, receive, send)

    def asked(self, start):
        """How often paths that begin so were asked for."""
        return sum(count for path, count in self.seen.items() if path.startswith(start))


async def _unheard(_):
    """Nobody hears it."""


async def _refuse(status, send):
    body = b'{"code":"unavailable","status":503,"title":"x","detail":"x"}'
    headers = [(b"content-type", b"application/problem+json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Yard:
    """Gateways before one server, what listens there, and what became of it."""

    def __init__(self, server, bus, clock, home):
        self.server = server
        self.bus = bus
        self.clock = clock
        self.home = home
        self.behind = Behind(server.server.asgi)
        self.direct = Upstream.over(server.server.asgi, INTERNAL, clock)
        """A way to the server that is never cut."""
        self.admin = self.direct.acting_for(ADMIN)
        self.gates = []
        """Gateways, the first one first."""
        self._machines = 1

    @property
    def gate(self):
        return self.gates[0]

    @asynccontextmanager
    async def gateway(self, name="g", **settings):
        """One more gateway, with a folder of its own; it is known to the server."""
        given = {"home": self.home / name, "upstream_app": self.behind, **settings}
        self._machines += 1
        parts = parts_of(self.server, self.bus, self.clock, given)
        parts = replace(parts, ids=Ids(self.clock, self._machines))
        async with create_gateway(parts) as gateway:
            made = GatewayRig(gateway, self.server, self.bus)
            self.gates.append(made)
            while not gateway.gate.registration.is_known and not self.behind.is_away:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.01)
            try:
                yield made
            finally:
                self.gates.remove(made)

    def leap(self, seconds):
        """Let time pass at once."""
        self.clock.leapt_s += seconds

    async def secret(self, name="new", value=SECRET, kind="secret", **data):
        """Keep a secret of a sender."""
        given = data or {"value": value}
        await self.admin.put_credential(CredentialPut(name=name, type=kind, data=given))

    async def playbook(self, path="hooks/one", text=PLAYBOOK):
        """Keep a playbook."""
        await self.admin.register(Register(content=text.format(path=path)))

    async def listen(self, name="orders", *, is_active=True, **document):
        """Register a listener, or the next version of one; the id of its subscription."""
        await self.admin.register(Register(content=listening(name, **document)))
        known = await self.admin.register_subscription(f"hooks/{name}")
        if is_active and known.state != "ACTIVE":
            await self.admin.steer_subscription(known.subscription_id, "activate")
        return known.subscription_id

    async def send(self, body=b"{}", headers=None, *, to="orders", at=None, **more):
        """A delivery to a gateway, the first one without a word; signed without headers."""
        gateway = (at or self.gate).gateway
        given = signed(body) if headers is None else headers
        return await sent(gateway.asgi, f"/ingress/{to}", body, given, **more)

    async def runs(self, name="orders"):
        """The runs of a listener, oldest first."""
        found, cursor = [], None
        while True:
            more = {"cursor": cursor} if cursor else {}
            page = await self.admin.executions(
                limit=200, label=f"subscription:hooks/{name}", **more
            )
            found += page.items
            cursor = page.next_cursor
            if not cursor:
                return sorted(found, key=lambda run: int(run.execution_id))

    async def events(self, subscription_id, *kinds):
        """What the log of a subscription tells, of these kinds; `message.x` is enough."""
        page = await self.admin.events(subscription_id, limit=MOST_ROWS)
        names = {f"subscription.{kind}" for kind in kinds}
        return [row for row in page.items if not kinds or row["event_type"] in names]

    async def until(self, found, count=1, within_s=60.0):
        """Wait until a coroutine function finds so many; what it found."""
        async with asyncio.timeout(within_s):
            while len(seen := await found()) < count:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.05)
        return seen

    async def told(self, subscription_id, *kinds, count=1):
        """Events that come a little later than what they tell of."""
        return await self.until(lambda: self.events(subscription_id, *kinds), count)

    async def log(self, subscription_id, count=1, **filters):
        """Rows of the log of deliveries, as soon as there are so many."""

        async def found():
            return (await self.admin.deliveries(subscription_id, limit=200, **filters)).items

        return await self.until(found, count)

    def counted(self, monkeypatch):
        """Every use of the rules for headers at the gateways, from now on."""
        found = []

        def counting(*given):
            found.append(given)
            return resolve(*given)

        for gate in self.gates:
            monkeypatch.setattr(gate.gate.ingress, "_resolve", counting)
        return found

    async def metrics(self):
        """What a gateway counts, line by line, of deliveries alone."""
        told = await sent(self.gate.gateway.watched, "/metrics", method="GET")
        lines = told.body.decode().splitlines()
        return [line for line in lines if line.startswith("noetl_ingress_")]

    @asynccontextmanager
    async def worked(self):
        """Somebody works in the pool of all runs: what waits goes on when the first has ended."""

        async def work():
            while True:
                if not await self.gate.step():
                    await asyncio.sleep(0.25)

        task = asyncio.create_task(work())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))

    async def work(self):
        """Do all that there is to do; how many steps."""
        done = 0
        while await self.gate.step():
            done += 1
        return done


@asynccontextmanager
async def yard(home, *, gateways=1, **settings):
    """Gateways before a server, on the time of this loop, with a secret and a playbook."""
    async with AsyncExitStack() as stack:
        start = datetime.fromtimestamp(NOW, UTC)
        clock = Leaping(asyncio.get_running_loop(), start)
        server: Any = await stack.enter_async_context(
            server_rig(
                is_open=False, internal_tokens=(INTERNAL,), publishes=True, password_kib=64,
                clock=clock,
            )
        )  # fmt: skip
        made = Yard(server, MemoryGatewayBus(server.bus, clock), clock, home)
        for number in range(gateways):
            await stack.enter_async_context(made.gateway(f"g{number}", **settings))
        await made.secret()
        await made.playbook()
        yield made


def keys_of(issuer):
    """A way to an issuer, and to the address where Google publishes its keys."""
    known = through(issuer.app)

    async def fetch(ask):
        is_google = ask.url.startswith("https://www.googleapis.com/")
        return await known(replace(ask, url=f"{issuer.url}/jwks") if is_google else ask)

    return fetch


@asynccontextmanager
async def pushed(folder, **settings):
    """A listener for pushes of Pub/Sub, and its issuer."""
    clock = by.Clock()
    issuer = Issuer(GOOGLE, "RS256", clock)
    async with yard(folder, fetch=keys_of(issuer), **settings) as y:
        clock.now = y.clock.now
        verify = {
            "type": "pubsub_oidc", "audience": by.AUDIENCE, "service_account": by.ACCOUNT,
        }  # fmt: skip
        sub = await y.listen(verify=verify, source="pubsub")

        async def push(number=0, header=None, message=None, attempt=None, **claims):
            now = int(y.clock.now().timestamp())
            told = {
                "iss": GOOGLE, "aud": by.AUDIENCE, "email": by.ACCOUNT, "email_verified": True,
                "iat": now, "exp": now + 300, **claims,
            }  # fmt: skip
            token = issuer.signed(
                {k: v for k, v in told.items() if v is not None}, **(header or {})
            )
            given = message or {"messageId": str(number), "data": ""}
            more = {"deliveryAttempt": attempt} if attempt else {}
            where = "projects/p/subscriptions/s"
            body = body_of({"message": given, "subscription": where, **more})
            return await y.send(body, {"authorization": f"Bearer {token}"})

        yield y, sub, issuer, push
