"""A town of gateways: virtual time, one server, what outlives a gateway, and ways to kill one."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

from noetl.api.ingress import IngressListener
from noetl.blobs.spool.base import SpoolError
from noetl.blobs.spool.memory import MemoryStore
from noetl.blobs.spool.opening import BadSpool
from noetl.bus.memory_keys import MemoryKeys
from noetl.clock import LoopClock
from noetl.dsl.parse import read
from noetl.dsl.subscription import Subscription
from noetl.gateway.ingress.edge import Edges
from noetl.gateway.ingress.edge_ports import EdgePorts, fields_of
from noetl.gateway.ingress.listeners import ConfigUnavailable, known_of
from noetl.ids import Ids
from noetl.intake.circuit_stores import KeysStore, StoreGone
from noetl.intake.keeping import OFF, mode_of
from noetl.intake.metrics import IntakeMetrics
from noetl.intake.outcomes import unanswered
from noetl.sources.directives import resolve
from tests.unit.intake.world import START, Letters, Server

PASSIVE = {"circuit": {"probe_after_ms": 1000, "probe_interval_ms": 1000}}


def known(name="orders", *, rate=None, secrets=None, spec=None, **told):
    """A listener as a gateway knows it."""
    ingress = {
        "gateway_path": f"/ingress/{name}",
        "verify": {"type": "bearer", "secret": "orders_token"},
    }
    if rate is not None:
        ingress["rate"] = rate
    document = {
        "apiVersion": "noetl.io/v2",
        "kind": "Subscription",
        "metadata": {"name": name, "path": f"subscriptions/{name}"},
        "spec": {
            "source": "webhook",
            "mode": "push",
            "ingress": ingress,
            "dispatch": {"playbook": "shop/take"},
            "spool": PASSIVE,
            **(spec or {}),
        },
    }
    found = read(json.dumps(document), Subscription).spec
    told = IngressListener(
        listener=name,
        catalog_path=f"subscriptions/{name}",
        source="webhook",
        document="",
        **{
            "tenant_id": "default",
            "subscription_id": "7",
            "version": 1,
            "state": "ACTIVE",
            "etag": "",
            **told,
        },
    )
    return known_of(told, found, found.ingress, secrets or {})


def planned(number, of=None, key=None):
    """A delivery that was verified and planned; `of` is its listener."""
    listener = of or known()
    metadata = {"source": "webhook", "mode": "push", "size_bytes": 8, "delivery_id": f"d{number}"}
    message = {
        "id": f"m{number}",
        "data": {"n": number},
        "headers": {},
        "attributes": {},
        "metadata": {**metadata, "listener": listener.listener},
        "ordering_key": key,
    }
    return SimpleNamespace(
        message=message,
        plan=resolve(listener.spec, {}),
        dedup={"key": f"m:{number}", "window_secs": 600},
        delivery_id=f"d{number}",
    )


class Mortal:
    """Something of a gateway that nobody reaches any more when it was killed."""

    def __init__(self, inner, life, fault):
        self._inner = inner
        self._life = life
        self._fault = fault

    @property
    def name(self):
        return self._inner.name

    @property
    def is_shared(self):
        return self._inner.is_shared

    def __getattr__(self, name):
        async def call(*given, **named):
            if self._life.is_dead:
                raise self._fault("it was killed")
            return await getattr(self._inner, name)(*given, **named)

        return call


class Ends:
    """How runs end, told at once."""

    def __init__(self, server):
        self._server = server

    async def begin(self, listened):
        del listened

    async def of(self, execution_id):
        del execution_id

    async def follow(self, listened, told):
        del listened
        self._server.listeners.append(told)
        try:
            await asyncio.Event().wait()
        finally:
            self._server.listeners.remove(told)


class Life:
    """A gateway that may be killed."""

    def __init__(self, town, name):
        self.is_dead = False
        self.name = name
        self._town = town

    async def start(self, starts):
        if self.is_dead:
            return [unanswered("it was killed")] * len(starts)
        self._town.starters.append((self.name, len(starts)))
        return await self._town.server.start(starts)


class Town:
    """The server, its listeners, and what waits."""

    def __init__(self, *listeners):
        self.clock = LoopClock(asyncio.get_running_loop(), START)
        self.server = Server(self.clock)
        self.keys = MemoryKeys(self.clock)
        self.stores = defaultdict(lambda: MemoryStore(is_shared=True))
        self.listeners = {one.listener: one for one in listeners or [known()]}
        self.is_silent = False
        """Whether the server tells nobody of listeners."""
        self.opened = []
        """The versions of the spools that were opened, and when each was closed."""
        self.starters = []
        self.requests = []
        self.asked_at = []
        """When somebody asked which dead letters are wanted."""
        self.drained_ones = []
        self.letters = Letters()
        self.spool_fault = None
        self.drain_fault = None
        self._machines = count(1)

    # -- what a gateway asks

    async def lookup(self, name):
        if self.is_silent:
            raise ConfigUnavailable("the server is away")
        return self.listeners.get(name)

    async def names(self):
        if self.is_silent:
            raise ConfigUnavailable("the server is away")
        return [name for name, one in self.listeners.items() if mode_of(one.spec) != OFF]

    async def requested(self, subscription_id):
        del subscription_id
        self.asked_at.append(self.clock.monotonic())
        return self.requests

    async def drained(self, subscription_id):
        if self.drain_fault is not None:
            raise self.drain_fault
        self.drained_ones.append(subscription_id)

    @asynccontextmanager
    async def spool(self, one, life):
        if fields_of(one) is None:
            raise BadSpool("there is no such credential")
        if self.spool_fault is not None:
            raise self.spool_fault
        if mode_of(one.spec) == OFF:
            yield None
            return
        self.opened.append((one.listener, one.version, "opened"))
        try:
            yield Mortal(self.stores[one.path], life, SpoolError)
        finally:
            self.opened.append((one.listener, one.version, "closed"))

    # -- gateways

    def ports(self, life):
        return EdgePorts(
            name=life.name,
            clock=self.clock,
            ids=Ids(self.clock, next(self._machines)),
            lookup=self.lookup,
            control=SimpleNamespace(
                names=self.names, requests=self.requested, drained=self.drained
            ),
            starter=life,
            poster=self.server,
            circuits=Mortal(KeysStore(self.keys), life, StoreGone),
            endings=lambda: Ends(self.server),
            letters=lambda _: self.letters,
            spool=lambda one: self.spool(one, life),
            metrics=IntakeMetrics(()),
        )

    @asynccontextmanager
    async def gateway(self, name="one"):
        """A gateway that runs; `kill` ends it without a word."""
        life = Life(self, name)
        edges = Edges(self.ports(life))
        task = asyncio.create_task(edges.run())

        async def deliver(number, of=None, **more):
            one = of or self.listeners["orders"]
            return await edges.deliver(one, planned(number, one, **more))

        def kill():
            life.is_dead = True

        async def stop():
            task.cancel()
            await asyncio.wait((task,))

        try:
            yield SimpleNamespace(edges=edges, deliver=deliver, kill=kill, stop=stop, life=life)
        finally:
            await stop()

    def now(self, name="orders", **more):
        """The listener is another one from now on."""
        self.listeners[name] = replace(self.listeners[name], **more)

    async def waiting(self, name="orders"):
        """What lies in the spool."""
        path = f"subscriptions/{name}"
        return [one.key for one in await self.stores[path].list(f"default/{path}/spool/")]
