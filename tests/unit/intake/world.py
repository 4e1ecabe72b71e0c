"""A world for the engine: virtual time, a server that can be away, stores that outlive it."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from itertools import count

from noetl.blobs.spool.memory import MemoryStore
from noetl.bus.memory_keys import MemoryKeys
from noetl.clock import LoopClock
from noetl.dsl.parse import read
from noetl.dsl.subscription import Subscription
from noetl.ids import Ids
from noetl.intake.assembly import Assembly, Wiring
from noetl.intake.audit import NotTold
from noetl.intake.circuit_stores import KeysStore
from noetl.intake.deliveries import Listener, Pushed
from noetl.intake.keeping import mode_of
from noetl.intake.metrics import IntakeMetrics
from noetl.intake.outcomes import RunOutcome, StartOutcome, unanswered
from noetl.intake.runs import Runs
from noetl.sources.directives import resolve

PATH = "subscriptions/s"
START = datetime(2026, 5, 1, 10, 0, tzinfo=UTC)


def spec_of(spool=None, **more):
    spec = {
        "source": "nats",
        "mode": "pull",
        "auth": "nats_plant",
        "stream": "S",
        "consumer": "c",
        "dispatch": {"playbook": "plant/store"},
        "dedup": {"enabled": True, "window_secs": 600},
        **more,
    }
    spec = {name: value for name, value in spec.items() if value is not None}
    if spool is not None:
        spec["spool"] = {"mode": "buffer_and_ack", **spool}
    document = {
        "apiVersion": "noetl.io/v2",
        "kind": "Subscription",
        "metadata": {"name": "s", "path": PATH},
        "spec": spec,
    }
    return read(json.dumps(document), Subscription).spec


def push_of(spool=None, source="webhook", **more):
    """The document of a listener; its deliveries have the key of their order in their body."""
    verify = {"type": "hmac_sha256", "secret": "hook"}
    if source == "pubsub":
        verify = {"type": "pubsub_oidc", "audience": "a", "service_account": "a@b.c"}
    return spec_of(
        source=source,
        mode="push",
        auth=None,
        stream=None,
        consumer=None,
        dedup=None,
        ingress={"gateway_path": "/ingress/s", "verify": verify, **more.pop("ingress", {})},
        spool=None if spool is None else {"ordering_key": "message.data.key", **spool},
        **more,
    )


def brought(spec, number, key=None, *, replay_key=None, headers=None, **flags):
    """A delivery as the edge hands it over."""
    body = {"n": number} if key is None else {"n": number, "key": key}
    size = len(json.dumps(body))
    about = {"source": spec.source, "mode": "push", "listener": "s", "delivery_id": f"d-{number}"}
    made = {
        "id": f"W:{number}",
        "data": body,
        "headers": headers or {},
        "attributes": headers or {},
        "metadata": {**about, "size_bytes": size},
        "ordering_key": None,
    }
    dedup = {"key": f"m:W:{number}", "window_secs": 60}
    if replay_key is not None:
        dedup |= {"replay_key": replay_key, "replay_window_secs": 600}
    return Pushed(message=made, plan=resolve(spec, headers or {}), dedup=dedup, **flags)


def message(number, key="k", *, data=None, headers=None, **metadata):
    body = {"n": number} if data is None else data
    return {
        "id": f"S:{number}",
        "data": body,
        "headers": headers or {},
        "attributes": {},
        "metadata": {"source": "nats", "size_bytes": len(json.dumps(body)), **metadata},
        "ordering_key": key,
        "ack_id": f"ack-{number}",
    }


class Server:
    """Starts runs, one per key; takes events, one per id."""

    def __init__(self, clock):
        self.clock = clock
        self.is_down = False
        self.takes_s = 0.0
        self.refused = set()
        """Playbooks that nobody knows."""
        self.busy = set()
        """Messages that cannot be started for now, each by itself."""
        self.answer = None
        """What every request is answered with, when it is not None."""
        self.runs = {}
        """Runs by key, of either kind, and by id."""
        self.is_mute = False
        """Whether what is done is not answered: the answer is lost."""
        self.keeps_s = None
        """How long keys are remembered; ids are for ever."""
        self.most_requests = 0
        self.started = []
        """The message of each run, in order."""
        self.at = []
        self.requests = []
        self.starts = []
        self.events = {}
        self.dead_downstreams = set()
        """Runs that need these fail."""
        self.failing = set()
        """Messages whose runs fail by their own fault."""
        self.listeners = []
        self.hanging = set()
        """Runs that need these do not end."""
        self.is_silent = False
        """Whether runs never end."""
        self.most_at_once = 0
        self._at_once = 0
        self._requests = 0
        self._numbers = count(1)

    def speak(self):
        self.is_mute = False

    async def start(self, starts):
        self._at_once += len(starts)
        self._requests += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self.most_requests = max(self.most_requests, self._requests)
        try:
            if self.takes_s:
                await asyncio.sleep(self.takes_s)
            self.requests.append(len(starts))
            if self.is_down:
                return [unanswered("no connection")] * len(starts)
            if self.answer is not None:
                return [self.answer] * len(starts)
            found = [await self._one(start, is_entry=len(starts) > 1) for start in starts]
            return [unanswered("the answer was lost")] * len(starts) if self.is_mute else found
        finally:
            self._at_once -= len(starts)
            self._requests -= 1

    async def _one(self, start, *, is_entry):
        name = start.ingress.message_id
        if start.path in self.refused:
            return StartOutcome(kind="refused", code="unknown_playbook", is_entry=is_entry)
        if name in self.busy:
            return StartOutcome(kind="unavailable", code="shard_busy", is_entry=True)
        keys = [start.dedup.key, start.dedup.replay_key, start.execution_id]
        known = next((self.runs[key] for key in keys if key in self.runs), None)
        if known is not None:
            return StartOutcome(kind="duplicate", execution_id=known, is_entry=True)
        execution_id = str(start.execution_id or next(self._numbers))
        self.runs |= {key: execution_id for key in keys if key is not None}
        if self.keeps_s is not None:
            for key in keys[:2]:
                asyncio.get_running_loop().call_later(self.keeps_s, self.runs.pop, key, None)
        self.started.append(name)
        self.at.append(self.clock.monotonic())
        self.starts.append(start)
        if not self.is_silent and start.ingress.downstream not in self.hanging:
            outcome = self._outcome(execution_id, start.ingress)
            asyncio.get_running_loop().call_later(0.01, self._tell, outcome)
        return StartOutcome(kind="accepted", execution_id=execution_id, is_entry=True)

    def _outcome(self, execution_id, ingress):
        about = {
            "execution_id": execution_id,
            "message_id": ingress.message_id,
            "downstream": ingress.downstream,
        }
        if ingress.downstream in self.dead_downstreams:
            error = {"error_kind": "connection", "is_retryable": True}
            return RunOutcome(status="FAILED", **about, **error)
        if ingress.message_id in self.failing:
            return RunOutcome(status="FAILED", error_kind="exception", **about)
        return RunOutcome(status="COMPLETED", **about)

    def _tell(self, outcome):
        for listener in list(self.listeners):
            task = asyncio.ensure_future(listener(outcome))
            task.add_done_callback(lambda done: done.exception())

    async def post(self, events):
        if self.is_down:
            raise NotTold("no connection")
        for event in events:
            self.events.setdefault(event.event_id, event)
        return 0

    def told(self, name):
        """What events of a name say, in order of arrival."""
        wanted = f"subscription.{name}"
        return [event.payload for event in self.events.values() if event.event_type == wanted]


class Letters:
    def __init__(self):
        self.kept = []

    async def put(self, item, reason):
        self.kept.append((item.message_id, reason))


class World:
    """What outlives a process: stores, the server, and downstreams."""

    def __init__(self, spec=None, *, start=START, **more):
        self.loop = asyncio.get_running_loop()
        self.clock = LoopClock(self.loop, start)
        self.spec = spec if spec is not None else spec_of(**more)
        self.store = MemoryStore()
        self.keys = MemoryKeys(self.clock)
        self.server = Server(self.clock)
        self.letters = Letters()
        self.up = defaultdict(lambda: True)
        self.asked = []
        self.may_drain = True
        self.metrics = IntakeMetrics([PATH], ["default"])
        self._machines = count(1)

    @property
    def has_spool(self):
        is_push = self.spec.mode == "push"
        return mode_of(self.spec) != "off" and (is_push or self.spec.spool is not None)

    async def ask(self, _kind, target):
        self.asked.append(target)
        return None if self.up[target] else "connection refused"

    def engine(self, holder="one", *, with_runs=True, **facts):
        """A process that begins."""
        wiring = Wiring(
            listener=Listener(subscription_id="7", path=PATH, spec=self.spec, version=1, **facts),
            tenant="default",
            holder=holder,
            ids=Ids(self.clock, next(self._machines)),
            clock=self.clock,
            starter=self.server,
            poster=self.server,
            circuits=KeysStore(self.keys),
            letters=self.letters,
            metrics=self.metrics,
            store=self.store if self.has_spool else None,
            runs=Runs() if with_runs else None,
            ask=self.ask,
            may_drain=lambda: self.may_drain,
        )
        made = Assembly(wiring)
        self.server.listeners.append(made.intake.ended)
        return made

    @asynccontextmanager
    async def running(self, holder="one", **facts):
        """A process with everything in its background; killed at the end, without a word."""
        made = self.engine(holder, **facts)
        await made.start()
        task = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            self.server.listeners.remove(made.intake.ended)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def objects(self, part="spool"):
        folder = f"default/{PATH}/{part}/"
        return [one.key.removeprefix(folder) for one in await self.store.list(folder)]


def settled(dispositions):
    return [(one.settle, one.outcome) for one in dispositions]


async def until(check, seconds=600.0):
    """Wait in virtual time."""
    async with asyncio.timeout(seconds):
        while not check():  # noqa: ASYNC110 - of many things, and waiting is free
            await asyncio.sleep(0.05)
