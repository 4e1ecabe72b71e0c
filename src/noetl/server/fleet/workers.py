"""Processes that are alive, above all workers by pool: told by what they say, and by the store.

A worker is known to every server through the store. Whom this server has heard of itself counts
too, so that a request for work needs no write to be a sign of life.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.runtime import Pool, Pools, Process
from noetl.bus.base import BusGone
from noetl.bus.subjects import control
from noetl.clock import rfc3339
from noetl.edge.errors import Unacceptable
from noetl.edge.moments import from_now
from noetl.errors import NoetlError
from noetl.server.access.caller import LOCAL, own_pool
from noetl.store.base import RuntimeRow

if TYPE_CHECKING:
    from noetl.api.runtime import WorkerEntry
    from noetl.bus.base import Bus
    from noetl.clock import Clock
    from noetl.dsl.plugins import Plugins
    from noetl.ids import Ids
    from noetl.server.access.caller import Caller
    from noetl.store.base import Queue, Store

WORKER: Final = "worker_pool"
KINDS: Final = frozenset({WORKER, "server_api", "gateway", "broker", "subscription"})
DEFAULT_POOL: Final = "shared"
SILENT_AFTER_S: Final = 30.0
OFFLINE_AFTER_S: Final = 90.0
LOOK_S: Final = 1.0
BUS_S: Final = 2.0
"""What the bus does not tell within this time is not told."""
DRAINING: Final = "draining"
MOST_HEARD: Final = 10_000
MOST_NAME: Final = 255
_KEY_BYTES: Final = 32
_log: Final = logging.getLogger(__name__)


class UnknownWorker(NoetlError):
    """A process that has not joined, or was forgotten."""

    code = "unknown_worker"
    status = 404


@dataclass(slots=True)
class Worker:
    """A worker that is alive."""

    name: str
    pool: str
    capacity: int
    free_slots: int
    seen: float = 0.0


class Workers:
    """The registry: the store's, and what this process has heard since it last looked."""

    def __init__(self, store: Store, clock: Clock, ids: Ids, bus: Bus | None = None) -> None:
        self._bus = bus
        self._store = store
        self._clock = clock
        self._ids = ids
        self._heard: dict[str, Worker] = {}
        self._rows: list[RuntimeRow] = []
        self._looked: float | None = None

    # ------------------------------------------------------------------------ coming and going

    async def join(self, entry: WorkerEntry, caller: Caller = LOCAL) -> RuntimeRow:
        """A process makes itself known, and is given a machine number."""
        row = self._row(entry)
        kept = await self._store.runtimes.join(
            row,
            silent_since=from_now(self._clock, -OFFLINE_AFTER_S),
            is_bound=caller.pool is not None,
        )
        self._looked = None
        if kept.kind == WORKER:
            now = self._clock.monotonic()
            self._hear(Worker(kept.name, kept.pool, kept.capacity, kept.free_slots, now))
        return kept

    def _row(self, entry: WorkerEntry) -> RuntimeRow:
        kind = kind_of(entry.kind or entry.component_type)
        if not 1 <= len(entry.name) <= MOST_NAME:
            raise Unacceptable(f"`name` has 1..{MOST_NAME} characters")
        _must_be_key(entry.runtime.get("worker_public_key"))
        now = rfc3339(self._clock.now())
        return RuntimeRow(
            runtime_id=self._ids.new(),
            name=entry.name,
            kind=kind,
            pool=pool_of(entry) if kind == WORKER else "",
            status=entry.status,
            uri=entry.uri,
            hostname=entry.hostname,
            capacity=entry.capacity,
            free_slots=entry.capacity,
            labels=dict(entry.labels),
            capabilities=entry.capabilities,
            runtime=entry.runtime,
            heartbeat=now,
            created_at=now,
        )

    async def beat(
        self, kind: str, name: str, free_slots: int | None = None, caller: Caller = LOCAL
    ) -> bool:
        """A process is alive; whether it is to take on nothing more."""
        now = rfc3339(self._clock.now())
        runtimes = self._store.runtimes
        if not await runtimes.beat(kind_of(kind), name, now, free_slots, pool=caller.pool):
            await self._must_not_be(kind, name, caller)
            raise UnknownWorker(f"there is no {kind} {name!r}", hint="register again")
        if kind == WORKER:
            self.told(name, free_slots)
        return await self.is_draining(name, kind)

    async def is_draining(self, name: str, kind: str = WORKER) -> bool:
        """Whether a process is to take on nothing more."""
        return any(
            row.name == name and row.kind == kind and row.status == DRAINING
            for row in await self._known()
        )

    async def drain(self, pool: str, worker: str | None = None) -> list[str]:
        """Tell workers of a pool, or one of them, to take on nothing more; whom."""
        self._looked = None
        found = [
            row.name
            for row in await self._known()
            if row.kind == WORKER and row.pool == pool and worker in {None, row.name}
        ]
        if not found:
            what = f"no worker {worker!r}" if worker is not None else "no worker"
            raise UnknownWorker(f"the pool {pool!r} has {what}")
        for name in found:
            await self._store.runtimes.mark(WORKER, name, DRAINING)
        self._looked = None
        await self._tell(pool, {"op": "drain", "workers": found})
        return found

    async def _tell(self, pool: str, word: dict[str, object]) -> None:
        """Tell live workers at once; the answers to their beats repeat it."""
        if self._bus is None:
            return
        try:
            async with asyncio.timeout(BUS_S):
                await self._bus.tell(control(pool), msgspec.json.encode(word))
        except (BusGone, TimeoutError):
            _log.info("workers hear of their drain by their beats", extra={"pool": pool})

    async def leave(self, kind: str, name: str, caller: Caller = LOCAL) -> None:
        """A process leaves."""
        if not await self._store.runtimes.leave(kind_of(kind), name, pool=caller.pool):
            await self._must_not_be(kind, name, caller)
        self._heard.pop(name, None)
        self._looked = None

    async def _must_not_be(self, kind: str, name: str, caller: Caller) -> None:
        """Refuse a process that was not found in the pool of the caller, and is in another."""
        self._looked = None
        for row in await self._known():
            if (row.kind, row.name) == (kind, name):
                own_pool(caller, row.pool)

    def seen(self, name: str, pool: str | None = None, asks_for: int | None = None) -> None:
        """A worker was heard of; one that asks for work without joining is known too."""
        found = self._heard.get(name)
        if found is None:
            if pool is not None:
                slots = asks_for or 1
                self._hear(Worker(name, pool, slots, slots, self._clock.monotonic()))
            return
        found.seen = self._clock.monotonic()

    def told(self, name: str, free_slots: int | None) -> None:
        """A worker has beaten, and said how much it could take on."""
        self.seen(name)
        found = self._heard.get(name)
        if found is not None and free_slots is not None:
            found.free_slots = free_slots

    def _hear(self, worker: Worker) -> None:
        self._heard[worker.name] = worker
        if len(self._heard) > MOST_HEARD:
            since = self._clock.monotonic() - SILENT_AFTER_S
            self._heard = {name: one for name, one in self._heard.items() if one.seen >= since}

    # ------------------------------------------------------------------------ reading

    async def live(self, pool: str) -> list[Worker]:
        """The workers of a pool that were heard of lately, by any server."""
        return [worker for worker in await self._alive() if worker.pool == pool]

    async def _alive(self) -> list[Worker]:
        since = from_now(self._clock, -SILENT_AFTER_S)
        heard_since = self._clock.monotonic() - SILENT_AFTER_S
        found = {
            row.name: Worker(row.name, row.pool, row.capacity, row.free_slots)
            for row in await self._known()
            if row.kind == WORKER and row.heartbeat >= since
        }
        for worker in self._heard.values():
            if worker.seen >= heard_since:
                found[worker.name] = worker
        return list(found.values())

    async def kinds(self) -> frozenset[str] | None:
        """The kinds of tools that live workers have; none while no worker has told."""
        since = from_now(self._clock, -SILENT_AFTER_S)
        told = [
            row.capabilities["kinds"]
            for row in await self._known()
            if row.kind == WORKER and row.heartbeat >= since and "kinds" in row.capabilities
        ]
        return frozenset(kind for kinds in told for kind in kinds) if told else None

    async def plugins(self) -> Plugins:
        """The kinds that plug-ins of live workers bring, each with its schema."""
        since = from_now(self._clock, -SILENT_AFTER_S)
        return {
            kind: schema
            for row in await self._known()
            if row.kind == WORKER and row.heartbeat >= since
            for kind, schema in row.capabilities.get("plugins", {}).items()
        }

    async def key_of(self, name: str, kinds: tuple[str, ...] = (WORKER,)) -> str | None:
        """The public key of a process; one that nobody knows yet is looked for once more."""
        for is_fresh in (False, True):
            if is_fresh:
                self._looked = None
            for row in await self._known():
                if row.name == name and row.kind in kinds:
                    return row.runtime.get("worker_public_key")
        return None

    async def _known(self) -> list[RuntimeRow]:
        now = self._clock.monotonic()
        if self._looked is None or now - self._looked >= LOOK_S:
            self._rows = await self._store.runtimes.listed()
            self._looked = now
        return self._rows

    async def pools(
        self, *, kind: str | None = None, status: str | None = None, name: str | None = None
    ) -> Pools:
        """Known processes, and what their pools do."""
        if kind is not None:
            kind_of(kind)
        self._looked = None
        rows = [_process(row, self._clock) for row in await self._known()]
        wanted = [
            row
            for row in rows
            if kind in {None, row.kind}
            and status in {None, row.status}
            and name in {None, row.name}
        ]
        queues = {queue.pool: queue for queue in await self._store.commands.queues()}
        alive: dict[str, list[Worker]] = {}
        for worker in await self._alive():
            alive.setdefault(worker.pool, []).append(worker)
        silent = [row.pool for row in rows if row.kind == WORKER]
        names = sorted({*alive, *queues, *silent})
        lags = await self._lags(names)
        return Pools(
            items=tuple(wanted),
            pools=tuple(
                _pool(pool, alive.get(pool, []), queues.get(pool), lags.get(pool)) for pool in names
            ),
        )

    async def _lags(self, pools: list[str]) -> dict[str, int]:
        """Hints that nobody has fetched, by pool; none of them when the bus is away."""
        if self._bus is None:
            return {}
        try:
            async with asyncio.timeout(BUS_S):
                return {pool: await self._bus.lag(pool) for pool in pools}
        except (BusGone, TimeoutError):
            return {}


def kind_of(kind: str) -> str:
    """The kind of a process, if there is such a kind."""
    if kind not in KINDS:
        raise Unacceptable(f"there is no kind `{kind}`", hint=", ".join(sorted(KINDS)))
    return kind


def pool_of(entry: WorkerEntry) -> str:
    """The pool that a worker wants to join."""
    named = entry.runtime.get("pool") or entry.labels.get("pool_name") or entry.labels.get("pool")
    return str(named or DEFAULT_POOL)


def _must_be_key(key: object) -> None:
    if key is None:
        return
    try:
        size = len(b64decode(key, validate=True)) if isinstance(key, str) else 0
    except ValueError:
        size = 0
    if size != _KEY_BYTES:
        raise Unacceptable(
            "`runtime.worker_public_key` is not a key",
            hint=f"{_KEY_BYTES} bytes in base64",
            errors=({"pointer": "/runtime/worker_public_key", "code": "bad_value"},),
        )


def _process(row: RuntimeRow, clock: Clock) -> Process:
    status = row.status
    if row.heartbeat < from_now(clock, -OFFLINE_AFTER_S):
        status = "offline"
    elif row.heartbeat < from_now(clock, -SILENT_AFTER_S):
        status = "stale"
    fields = msgspec.structs.asdict(row)
    del fields["machine_id"]
    return Process(**{**fields, "status": status})


def _pool(name: str, workers: list[Worker], queue: Queue | None, lag: int | None) -> Pool:
    return Pool(
        pool=name,
        workers=len(workers),
        slots=sum(worker.capacity for worker in workers),
        free_slots=sum(worker.free_slots for worker in workers),
        in_flight=0 if queue is None else queue.claimed,
        pending=0 if queue is None else queue.pending,
        oldest_pending_at=None if queue is None else queue.oldest_at,
        consumer_lag=lag,
    )
