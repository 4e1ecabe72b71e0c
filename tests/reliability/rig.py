"""A stack of real processes in a folder of its own; each part is killed and started by its id."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import socket
import sys
from contextlib import asynccontextmanager

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.executions import Execute
from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.api.sockets import SocketTransport
from noetl.local.embedded.children import GATEWAY, SERVER, WORKERS, Bus, Process
from noetl.local.nats import Nats
from noetl.local.postgres import Postgres
from noetl.server import admin
from noetl.server.access.tokens import new_token
from noetl.settings import process_environment
from tests.reliability.processes import strays
from tests.servers import ENCRYPTION_KEY

LEASE_S = 5
NOETL = (sys.executable, "-m", "noetl.cli.app")
PORTS = range(20_000, 32_000)
"""Below those of outgoing connections: a port whose server was killed is nobody else's."""
SPARE = {
    "shared_buffers": "32MB",
    "max_connections": "100",
    "wal_init_zero": "off",
    "jit": "off",
    "timezone": "UTC",
}
READY_S = 30.0
STOP_S = 10.0


def free_ports(count):
    """Ports that nobody uses now."""
    found = {}
    pick = random.SystemRandom()
    while len(found) < count:
        with socket.socket() as probe:
            port = pick.choice(PORTS)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found[port] = None
    return list(found)


class Mould:
    """A database that is ready for a stack: made once, copied for each test."""

    def __init__(self, folder):
        self.folder = folder
        self.internal, self.worker, self.admin = new_token(), new_token(), new_token()
        self.runtime = new_token()

    async def make(self):
        server = Postgres(self.folder / "data", settings={"fsync": "off"})
        await server.start()
        try:
            await admin.migrate(server.url)
            people = admin.Bearer(token=self.admin, account="admin", roles=("admin",), name="test")
            pool = admin.Bearer(
                token=self.worker, account="worker", roles=("worker",), name="pool", pool="shared"
            )
            listener = admin.Bearer(
                token=self.runtime, account="listener", roles=("runtime",), name="listener"
            )
            await admin.welcome(server.url, [people, pool, listener])
        finally:
            await server.stop()

    def pour(self, folder):
        """A copy of the data, owners and modes as they are."""
        for source in (self.folder / "data", *self.folder.glob(".*.password")):
            copied(source, folder / source.name)


def copied(source, target):
    """Copy a file or a folder, owners and modes as they are; sockets are left out."""
    if source.is_dir():
        target.mkdir()
        for each in source.iterdir():
            copied(each, target / each.name)
    elif source.is_socket():
        return
    else:
        shutil.copyfile(source, target)
    found = source.stat()
    os.chown(target, found.st_uid, found.st_gid)
    target.chmod(found.st_mode & 0o7777)


class Stack:
    """PostgreSQL, NATS, servers and workers."""

    def __init__(self, folder, mould, ports):
        self.folder = folder
        self.mould = mould
        self._ports = iter(ports)
        self.lines = {}
        self.parts = {}
        self._transports = {}
        self.postgres = Postgres(
            folder / "pg" / "data", port=next(self._ports), settings=SPARE,
            on_line=self._said("postgres"),
        )  # fmt: skip
        self.nats = Nats(
            folder / "nats", user="noetl", password="faults", port=next(self._ports)  # noqa: S106 - of a server that lives for a test
        )  # fmt: skip
        self.parts["nats"] = Bus(nats=self.nats, said=self._said("nats"))

    def _said(self, name):
        """Keeps the words of a part, here and in a file that is there when all is over."""
        kept = self.lines.setdefault(name, [])
        folder = self.folder / "logs"
        folder.mkdir(exist_ok=True)

        def said(line):
            kept.append(line)
            with (folder / f"{name}.log").open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")

        return said

    def add_server(self, name="server", **more):
        """A server that is not started yet."""
        port = next(self._ports)
        environ = {
            "NOETL_HOST": "127.0.0.1",
            "NOETL_PORT": str(port),
            "NOETL_METRICS_PORT": "off",
            "NOETL_SERVER_URL": f"http://127.0.0.1:{port}",
            "NOETL_DATABASE_URL": self.postgres.url,
            "NOETL_INTERNAL_API_TOKEN": self.mould.internal,
            "NOETL_ENCRYPTION_KEY": ENCRYPTION_KEY,
            "NOETL_LEASE_SECONDS": str(LEASE_S),
        }
        self.parts[name] = Process(
            name=name, stage=SERVER, command=[*NOETL, "server"],
            environ=self._environ() | environ | more, said=self._said(name), port=port,
            url=environ["NOETL_SERVER_URL"], health=f"{environ['NOETL_SERVER_URL']}/readyz",
        )  # fmt: skip

    def add_worker(self, name="worker", server="server", slots=8, pool="shared", **more):
        """A worker that is not started yet; the pool `system` is joined by the internal token."""
        port = next(self._ports)
        environ = {
            "NOETL_SERVER_URL": self.parts[server].url,
            "NOETL_WORKER_TOKEN": self.mould.internal if pool == "system" else self.mould.worker,
            "NOETL_HTTP_EGRESS": "open",
            "WORKER_POOL_NAME": pool,
            "WORKER_ID": name,
            "WORKER_MAX_CONCURRENT": str(slots),
            "WORKER_METRICS_BIND": f"127.0.0.1:{port}",
        }
        self.parts[name] = Process(
            name=name, stage=WORKERS, command=[*NOETL, "worker"],
            environ=self._environ() | environ | more, said=self._said(name), port=port,
            health=f"http://127.0.0.1:{port}/readyz",
        )  # fmt: skip

    def add_listener(self, *paths, name="listener", server="server", **more):
        """A process that listens for subscriptions, and is not started yet."""
        port = next(self._ports)
        environ = {
            "NOETL_SERVER_URL": self.parts[server].url,
            "NOETL_WORKER_TOKEN": self.mould.runtime,
            "NOETL_SUBSCRIPTION_STATE_POLL_MS": "300",
            "WORKER_ID": name,
            "WORKER_METRICS_BIND": f"127.0.0.1:{port}",
        }
        words = [word for path in paths for word in ("--subscription", path)]
        self.parts[name] = Process(
            name=name, stage=WORKERS, command=[*NOETL, "worker", "--mode", "subscription", *words],
            environ=self._environ() | environ | more, said=self._said(name), port=port,
            health=f"http://127.0.0.1:{port}/readyz",
        )  # fmt: skip

    def add_gateway(self, name="gateway", server="server", **more):
        """A gateway that is not started yet."""
        port = next(self._ports)
        environ = {
            "GATEWAY_BIND": "127.0.0.1",
            "ROUTER_PORT": str(port),
            "NOETL_SERVER_URL": self.parts[server].url,
            "NOETL_INTERNAL_API_TOKEN": self.mould.internal,
        }
        url = f"http://127.0.0.1:{port}"
        self.parts[name] = Process(
            name=name, stage=GATEWAY, command=[*NOETL, "gateway"],
            environ=self._environ() | environ | more, said=self._said(name), port=port,
            url=url, health=f"{url}/ready",
        )  # fmt: skip

    def _environ(self):
        return process_environment() | {
            "NOETL_HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),  # what a killed process leaves goes with the stack
            "NOETL_NATS_URL": self.nats.url,
            "PYTHONUNBUFFERED": "1",
        }

    async def start(self, *names):
        """Start parts side by side; returns when they are ready."""
        async with asyncio.timeout(READY_S), asyncio.TaskGroup() as group:
            for name in names:
                if name == "postgres":
                    group.create_task(self.postgres.start())
                else:
                    group.create_task(self.parts[name].start(lambda: None))

    async def kill(self, name):
        """End a part as a power cut would."""
        os.kill(self.pid(name), signal.SIGKILL)
        await self.buried(name)

    async def buried(self, name):
        """Wait for the end of a part that was killed."""
        if name == "postgres":
            await self.postgres.wait()
            await self.postgres.stop()
        else:
            await self.parts[name]._child.wait()  # noqa: SLF001 - its children may still hold its pipe
            await self.parts[name].stop(0)

    async def again(self, name):
        """Kill a part and start it."""
        await self.kill(name)
        await self.start(name)

    async def arm(self, name, fault):
        """Start a part with a fault in it, which may never be ready; one that runs ends well."""
        part = self.parts[name]
        await part.stop(STOP_S)
        sound = part.environ
        part.environ = sound | {"NOETL_FAILPOINTS": fault}
        try:
            await part.spawn()
        finally:
            part.environ = sound

    async def says(self, name, words, since=0):
        """Wait until a part has said something after so many lines."""
        while not any(words in line for line in self.lines[name][since:]):  # noqa: ASYNC110 - told by another process
            await asyncio.sleep(0.01)

    def strays(self):
        """Processes of this stack that none of its living parts has begun."""
        parts = [self.postgres, *self.parts.values()]
        return strays(self.folder, {part.pid for part in parts if part.pid is not None})

    def pid(self, name):
        found = self.postgres.pid if name == "postgres" else self.parts[name].pid
        assert found is not None, f"{name} has ended: {self.last(name)}"
        return found

    def last(self, name):
        return self.lines.get(name, [])[-20:]

    def client(self, server="server"):
        if server not in self._transports:
            self._transports[server] = SocketTransport(
                self.parts[server].url, token=self.mould.admin, timeout_s=10.0
            )
        return Client(self._transports[server])

    async def hang_up(self):
        """Close the connections of clients; they are made again when they are needed."""
        for transport in self._transports.values():
            await transport.close()

    async def close(self):
        await self.hang_up()
        own = [part for part in self.parts.values() if part.name != "nats"]
        for stage in (WORKERS, GATEWAY, SERVER):
            await asyncio.gather(*(part.stop(0.2) for part in own if part.stage == stage))
        await self.parts["nats"].stop(2)
        await self.postgres.stop()

    # ------------------------------------------------------------------ runs

    async def insist(self, call):
        """Ask until there is an answer, as any client does while a server is away."""
        while True:
            try:
                return await call()
            except (NoAnswer, OSError):
                pass
            except Refused as refusal:
                if refusal.problem.status not in {502, 503, 507}:
                    raise
            await asyncio.sleep(0.1)

    async def begin(self, work, ledger, server="server", **payload):
        """Register and start; the id of the run."""
        client = self.client(server)
        entry = await self.insist(lambda: client.register(Register(content=work.text)))
        workload = {"url": ledger.url} | payload
        started = await client.execute(Execute(catalog_id=entry.catalog_id, payload=workload))
        return started.execution_id

    async def ended(self, run, server="server"):
        """Wait for the end of a run; its status, which any server tells."""
        client = self.client(server)
        while True:
            status = await self.insist(lambda: client.status(run))
            if status.is_terminal:
                return status
            await asyncio.sleep(0.05)

    async def rows(self, run, server="server"):
        """The whole log of a run."""
        client, rows, page = self.client(server), [], None
        while page is None or page.items:
            after = rows[-1]["seq"] if rows else 0
            page = await self.insist(
                lambda after=after: client.events(run, after=after, limit=1000)
            )
            rows += page.items
        return rows

    async def until(self, run, name, count=1, server="server"):
        """Wait until a run has so many events of a type; they."""
        while True:
            found = [row for row in await self.rows(run, server) if row["event_type"] == name]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.05)


@asynccontextmanager
async def stacked(folder, mould):
    """PostgreSQL and NATS run, everything else is added by the test."""
    (folder / "pg").mkdir(mode=0o711, exist_ok=True)  # or a volume of its own
    (folder / "tmp").mkdir(exist_ok=True)
    mould.pour(folder / "pg")
    stack = Stack(folder, mould, free_ports(12))
    try:
        await stack.start("postgres", "nats")
        yield stack
    finally:
        await stack.close()
