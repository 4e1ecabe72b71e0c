"""What a server process stands on, opened in order: database, its clock, bus, machine number."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import socket
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from noetl.blobs.objects import open_blobs
from noetl.blobs.postgres import PostgresBlobs
from noetl.blobs.tiered import TieredBlobs
from noetl.bus.base import BusGone
from noetl.bus.memory import MemoryBus
from noetl.bus.nats import NatsBus
from noetl.clock import SystemClock, rfc3339
from noetl.errors import NoetlError
from noetl.ids import Ids, random_key
from noetl.secrets.kek.base import WalletError
from noetl.secrets.kek.choose import Access as KeyAccess
from noetl.secrets.kek.choose import kek_of
from noetl.secrets.wallet import Wallet
from noetl.server.fleet.gateways import over_sockets
from noetl.server.parts import ServerParts
from noetl.server.surroundings import Surroundings
from noetl.server.vitals import DATABASE, KEK, MIGRATIONS, STORAGE, PoolNumbers, Vitals
from noetl.settings import variable
from noetl.store.base import RuntimeRow
from noetl.store.errors import DatabaseGone
from noetl.store.postgres import migrate
from noetl.store.postgres.clock import DatabaseClock
from noetl.store.postgres.database import Database
from noetl.store.postgres.durability import require_durable
from noetl.store.postgres.store import PostgresStore
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.http.fetching import Fetcher

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from contextlib import AsyncExitStack

    from noetl.blobs.base import Blobs
    from noetl.bus.base import Bus
    from noetl.clock import Clock
    from noetl.secrets.kek.base import Kek
    from noetl.settings import ServerSettings
    from noetl.store.postgres.migrate import Migration
    from noetl.telemetry.fingerprints import Fingerprints

    Loop: TypeAlias = Callable[[], Coroutine[None, None, None]]

PATIENCE_S: Final = 30.0
"""How long a database may take to come up."""
LOOK_S: Final = 0.2
BUS_S: Final = 3.0
"""How long a start waits for the bus; its streams must be as we declare them."""
BEAT_S: Final = 10.0
DAY_S: Final = 86_400.0
SILENT: Final = timedelta(hours=1)
"""A process that was not heard of for so long has lost its machine number."""
KIND: Final = "server_api"
_ALIVE: Final = "select 1"
_NEWEST: Final = "select max(name) from noetl.migration"
_log: Final = logging.getLogger(__name__)


class NotMigrated(NoetlError):
    """The schema of the database is older than this release."""

    code = "migrations_missing"


class SeatLost(NoetlError):
    """Another process makes ids with the number of this one."""

    code = "machine_number_lost"


@dataclass(frozen=True, slots=True)
class Backends:
    """What a server is made from, and what must be kept going beside it."""

    parts: ServerParts
    vitals: Vitals
    loops: Mapping[str, Loop]


async def opened(stack: AsyncExitStack, settings: ServerSettings, seen: Fingerprints) -> Backends:
    """Everything that a server needs; the stack closes it again. `seen` learns of new secrets."""
    fetch, metadata = _ways(stack, settings)
    kek = _kek(stack, settings, metadata, seen)
    newest = await _migrated(settings.database_url)
    database = await Database.open(settings.database_url, size=settings.database_pool_max)
    stack.push_async_callback(database.close)
    if settings.env == "production":
        await require_durable(database)
    clock = await DatabaseClock.open(database.background)
    store = PostgresStore(database)
    await store.warm_up()
    seat = Seat(settings, store, clock)
    ids = Ids(clock, await seat.take())
    stack.push_async_callback(seat.leave)
    bus = await _bus(stack, settings)
    wallet = Wallet(kek, clock)
    parts = ServerParts(
        store=store,
        bus=bus,
        blobs=_blobs(settings, database, ids),
        clock=clock,
        ids=ids,
        lease_s=settings.lease_s,
        max_attempts=settings.max_attempts,
        inline_bytes=settings.inline_bytes,
        backlog_max=settings.backlog_max,
        server_url=settings.url,
        public_url=settings.public_url,
        is_open=False,
        internal_tokens=_internal_tokens(settings),
        internal_token_file=Path(file) if (file := settings.internal_token_file) else None,
        publishes=bool(settings.nats_url),
        seen=seen,
        publisher="playbook" if settings.outbox_publisher == "playbook" else "server",
        retention_days=settings.retention_days,
        is_alone=False,
        servers=settings.servers or (settings.url,),
        env=settings.env,
        wallet=wallet,
        fetch=fetch,
        metadata=metadata,
        gateways=over_sockets,
        surroundings=_surroundings(settings),
        region=settings.region,
        cursor_key=_cursor_key(settings),
    )
    loops: dict[str, Loop] = {
        "clock": clock.run,
        "beat": seat.run,
        "partitions": partial(_partitions, store),
    }
    return Backends(parts, _vitals(database, bus, newest, wallet), loops)


def _blobs(settings: ServerSettings, database: Database, ids: Ids) -> Blobs:
    """Where large values lie: in the database, the largest in an object store if one is named."""
    if not settings.object_store_url:
        return PostgresBlobs(database, ids)
    return TieredBlobs(database, open_blobs(settings.object_store_url), ids, settings.env)


def _ways(stack: AsyncExitStack, settings: ServerSettings) -> tuple[Fetcher, Fetcher]:
    """The ways to systems that keep secrets, and to the metadata service of the machine."""
    egress = Egress(
        mode="open" if settings.http_egress == "open" else "guarded", allow=settings.http_allow
    )
    fetch, metadata = Fetcher(Guard(egress=egress)), Fetcher.of_machine()
    stack.push_async_callback(fetch.close)
    stack.push_async_callback(metadata.close)
    return fetch, metadata


def _kek(
    stack: AsyncExitStack, settings: ServerSettings, metadata: Fetcher, seen: Fingerprints
) -> Kek:
    """The key of keys; a server without one does not start, one whose service is away does."""
    # The operator names the key service: that one may be in the same network, and no other.
    always = tuple(filter(None, (settings.vault_address,)))
    fetch = Fetcher(Guard(egress=Egress(allow=settings.http_allow, always=always)))
    stack.push_async_callback(fetch.close)
    file = settings.google_credentials
    return kek_of(
        settings.kms_provider,
        settings.kms_key,
        settings.encryption_key,
        fetch,
        clock=SystemClock(),
        access=KeyAccess(
            vault_address=settings.vault_address,
            vault_token=settings.vault_token,
            vault_token_file=Path(token) if (token := settings.vault_token_file) else None,
            told=seen.add,
            vault_namespace=settings.vault_namespace,
            google_account=Path(file).read_text("utf-8") if file else "",
            metadata=metadata,
        ),
        previous=settings.kms_provider_previous,
        previous_key=settings.kms_key_previous,
    )


def _surroundings(settings: ServerSettings) -> Surroundings:
    """What of this machine credentials may be read from."""
    found = {name: variable(name) for name in settings.keychain_env_vars}
    return Surroundings(
        environment={name: value for name, value in found.items() if value},
        folders=(settings.home / "credentials", Path("/run/secrets")),
    )


def _internal_tokens(settings: ServerSettings) -> tuple[str, ...]:
    """Those that stay; one that lies in a file is looked for there."""
    if settings.internal_token_file:
        return tuple(filter(None, (settings.internal_token_previous,)))
    return settings.internal_tokens


async def _migrated(url: str) -> str:
    """The newest migration; refused while one is missing."""
    known = await _patiently(url)
    missing = [item.name for item in known if not item.is_applied]
    if missing:
        raise NotMigrated(
            f"the database lacks {len(missing)} migrations, the first is {missing[0]}",
            hint="run `noetl db migrate`",
        )
    return known[-1].name


async def _patiently(url: str) -> list[Migration]:
    """The migrations, once the database is there."""
    clock = SystemClock()
    until = clock.monotonic() + PATIENCE_S
    while True:
        try:
            return await migrate.status(url)
        except DatabaseGone:
            if clock.monotonic() >= until:
                raise
        await asyncio.sleep(LOOK_S)


class Seat:
    """The machine number of this process: the one that was told, else one that is leased."""

    def __init__(self, settings: ServerSettings, store: PostgresStore, clock: Clock) -> None:
        self._runtimes = store.runtimes
        self._clock = clock
        self._hostname = socket.gethostname()
        self._name = f"{self._hostname}:{settings.port}"
        self._url = settings.url
        self._told = settings.machine_id
        self._number: int | None = None

    async def take(self) -> int:
        """Make this process known; its number."""
        now = self._clock.now()
        joined = await self._runtimes.join(
            RuntimeRow(
                runtime_id=Ids(self._clock, self._told).new(),
                name=self._name,
                kind=KIND,
                uri=self._url,
                hostname=self._hostname,
                machine_id=self._told,
                heartbeat=rfc3339(now),
                created_at=rfc3339(now),
            ),
            silent_since=rfc3339(now - SILENT),
        )
        number = joined.machine_id if self._told is None else self._told
        if number is None or self._number not in (None, number):
            raise SeatLost(
                f"the machine number {self._number} was given to another process",
                hint="it was cut off for too long; start it again",
            )
        self._number = number
        return number

    async def run(self) -> None:
        """Be heard of, again and again."""
        while True:
            await asyncio.sleep(BEAT_S)
            try:
                if not await self._runtimes.beat(KIND, self._name, rfc3339(self._clock.now())):
                    await self.take()
            except NoetlError as fault:
                if not fault.retryable:
                    raise

    async def leave(self) -> None:
        """Give the number back."""
        try:
            await self._runtimes.leave(KIND, self._name)
        except NoetlError as fault:  # it falls free after an hour
            _log.info("the server could not sign off", extra={"reason": fault.message})


async def _partitions(store: PostgresStore) -> None:
    """Make the tables of the months to come, once a day."""
    while True:
        try:
            await store.ensure_partitions()
            await asyncio.sleep(DAY_S)
        except NoetlError as fault:
            if not fault.retryable:
                raise
            await asyncio.sleep(BEAT_S)


async def _bus(stack: AsyncExitStack, settings: ServerSettings) -> Bus:
    if not settings.nats_url:
        _log.warning("there is no bus: workers find their work by asking")
        return MemoryBus()
    bus = await NatsBus.open(
        settings.nats_url,
        user=settings.nats_user,
        password=settings.nats_password,
        token=settings.nats_token,
        creds=settings.nats_creds,
    )
    stack.push_async_callback(bus.close)
    try:
        await bus.ready(BUS_S)
    except BusGone as gone:
        _log.warning("the bus is away; work goes on without it", extra={"reason": gone.message})
    return bus


def _vitals(database: Database, bus: Bus, newest: str, wallet: Wallet) -> Vitals:
    async def is_there() -> bool:
        return bool(await database.background.fetchval(_ALIVE) == 1)

    async def is_migrated() -> bool:
        found: str | None = await database.background.fetchval(_NEWEST)
        return found is not None and found >= newest

    async def has_room() -> bool:
        return not (database.is_full or database.background.is_full)

    async def has_key() -> bool:
        try:
            await wallet.current()
        except WalletError:
            return False
        return True

    def pools() -> dict[str, PoolNumbers]:
        pools = {"main": database, "background": database.background}
        return {name: PoolNumbers(**pool.numbers()) for name, pool in pools.items()}

    def is_bus_up() -> bool:
        return isinstance(bus, NatsBus) and bus.is_connected

    return Vitals(
        SystemClock(),
        checks={
            DATABASE: is_there,
            STORAGE: has_room,
            MIGRATIONS: is_migrated,
            KEK: has_key,
        },
        pools=pools,
        is_bus_up=is_bus_up,
    )


def _cursor_key(settings: ServerSettings) -> bytes:
    """The same on all servers that share a secret, so that a page may come from any of them."""
    secret = settings.encryption_key or settings.internal_token or random_key()
    return hmac.digest(secret.encode(), b"noetl cursors", hashlib.sha256)
