"""A listener in this process: the runtime of the platform, with runs here or on a server.

Its events go to a file, circuits lie beside the spool, and nobody but the person at this machine
steers it. A message is acknowledged when its run has ended, wherever that was.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from noetl.blobs.spool.opening import LOCAL_DISK, Means, opened
from noetl.blobs.spool.rules import Place
from noetl.engine import subscriptions as names
from noetl.errors import NoetlError
from noetl.intake.circuit_stores import FileStore
from noetl.intake.keeping import OFF, mode_of
from noetl.intake.metrics import IntakeMetrics
from noetl.local.alone import Alone, Letters
from noetl.local.events import RECEIVED
from noetl.sources.base import SourceError
from noetl.sources.opening import open_source
from noetl.sources.ordering import is_kept_by_one
from noetl.subscription.app import connection_of
from noetl.subscription.ports import Ports
from noetl.subscription.run import Runtime
from noetl.subscription.secrets import MissingAlias
from noetl.subscription.state import Listened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from noetl.blobs.spool.base import SpoolStore
    from noetl.clock import Clock
    from noetl.dsl.subscription.document import Subscription, SubscriptionSpec
    from noetl.ids import Ids
    from noetl.intake.dispatch import Starter
    from noetl.local.events import EventFile
    from noetl.sources.base import Facts, PolledMessage, Source
    from noetl.subscription.ports import Endings

TENANT: Final = "default"
HOLDER: Final = "local"
"""The folder of a spool has one user at a time, who goes on where the last one was ended."""
LOOK_S: Final = 0.05
GRACE_S: Final = 20.0


class NotHere(NoetlError):
    """A subscription that a listener without a server cannot serve."""

    code = "usage"
    status: ClassVar[int] = 422


class Unreachable(NoetlError):
    """The source does not answer, and nobody wants to wait for it."""

    code = "unreachable"
    status: ClassVar[int] = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is listened for, and how long."""

    listened: Listened
    events: EventFile
    starter: Starter
    endings: Endings
    clock: Clock
    ids: Ids
    home: Path
    """What a relative path of a spool begins at."""
    spool_dir: Path | None = None
    """Where messages wait, whatever the document says."""
    credentials: Mapping[str, Mapping[str, Any]]
    is_once: bool = False
    """Stop after the first messages, when nothing waits any more."""
    most: int | None = None
    """Stop after so many messages."""
    emulator: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What came of it."""

    received: int
    dispatched: int
    spooled: int
    replayed: int
    failed: int
    dead_lettered: int
    pending_spooled: int

    @property
    def is_well(self) -> bool:
        """Whether nothing failed, was given up, or still waits."""
        return not (self.failed or self.dead_lettered or self.pending_spooled)

    def as_json(self) -> dict[str, int]:
        """As it is shown."""
        return {name: getattr(self, name) for name in self.__slots__}


def listened_of(document: Subscription, subscription_id: str) -> Listened:
    """What a document says, as a listener of this machine follows it."""
    spec = document.spec
    if spec.mode != "pull":
        raise NotHere(
            f"{document.metadata.path} is pushed to the gateway: nothing here can listen for it",
            hint="`noetl subscribe` is for `mode: pull`",
        )
    spool = spec.spool
    if spool is not None and spool.backend not in {None, LOCAL_DISK}:
        raise NotHere(
            f"the spool is of {spool.backend}, and a listener of this machine has local_disk alone",
            hint="write `backend: local_disk`, or run it with `noetl worker --mode subscription`",
        )
    # A run ends with this process, so that only its end lets a message go.
    dispatch = replace(spec.dispatch, ack_after="completed")
    return Listened(
        subscription_id=subscription_id,
        path=document.metadata.path,
        tenant=TENANT,
        version=1,
        spec=replace(spec, dispatch=dispatch),
    )


async def subscribe(job: Job, stop: asyncio.Event) -> Summary:
    """Listen until it is done, or until `stop`."""
    listened = job.listened
    control = Alone(listened, job.events)
    metrics = IntakeMetrics((listened.path,))
    runtime = Runtime(listened.path, _ports(job, control, metrics))
    ending = asyncio.create_task(_ending(job, runtime, stop), name="ending")
    try:
        await runtime.run()
    finally:
        ending.cancel()
        await asyncio.wait((ending,))
        await control.stop()
    counts, path = job.events.counts, listened.path
    return Summary(
        received=runtime.received,
        dispatched=int(metrics.executions.value(path, "started")),
        spooled=counts["subscription.message.spooled"],
        replayed=int(metrics.replayed.value(path)),
        failed=counts["subscription.message.failed"],
        dead_lettered=counts[names.DEAD_LETTERED],
        pending_spooled=runtime.pending,
    )


async def _ending(job: Job, runtime: Runtime, stop: asyncio.Event) -> None:
    """Tell the runtime when it is done; a second call of `stop` is not heard here."""
    while not stop.is_set():
        try:
            async with asyncio.timeout(LOOK_S):
                await stop.wait()
        except TimeoutError:
            came = runtime.received
            enough = (job.is_once and came > 0) or (job.most is not None and came >= job.most)
            waits = runtime.pending if job.is_once else 0
            if enough and not runtime.held and not waits:
                break
    runtime.stop()


def _ports(job: Job, control: Alone, metrics: IntakeMetrics) -> Ports:
    listened = job.listened
    root = _root(job)
    control_dir = root / Place(TENANT, listened.path).control

    async def source(_: Listened) -> Source:
        return await _source(job)

    def received(messages: Sequence[PolledMessage]) -> None:
        for message in messages:
            job.events.tell(RECEIVED, {"message_id": message.id, "metadata": message.metadata})

    def left() -> int | None:
        came = int(metrics.received.value(listened.path))
        if job.is_once and came:
            return 0
        return None if job.most is None else max(0, job.most - came)

    return Ports(
        name=HOLDER,
        clock=job.clock,
        ids=job.ids,
        control=control,
        starter=job.starter,
        endings=job.endings,
        poster=job.events,
        circuits=FileStore(control_dir / "circuit.json"),
        letters=lambda _: Letters(job.events),
        source=source,
        spool=lambda _: _spool(job, root),
        metrics=metrics,
        grace_s=GRACE_S,
        on_received=received,
        left=left,
    )


def _root(job: Job) -> Path:
    """The folder of the spool, and of what lies beside it."""
    if job.spool_dir is not None:
        return job.spool_dir.absolute()
    spool = job.listened.spec.spool
    return job.home.absolute() / (spool.path if spool is not None and spool.path else "spool")


@asynccontextmanager
async def _spool(job: Job, root: Path) -> AsyncIterator[SpoolStore | None]:
    spec = job.listened.spec
    if spec.spool is None or mode_of(spec) == OFF:
        yield None
        return
    here = replace(spec.spool, backend=LOCAL_DISK, path=str(root))
    means = Means(home=job.home)
    async with opened(here, Place(TENANT, job.listened.path), means) as store:
        yield store


async def _source(job: Job) -> Source:
    spec = job.listened.spec
    try:
        made = await open_source(
            spec.source, connection_of(job.listened), _fields(job, spec), job.clock,
            emulator=job.emulator, is_heir=not job.is_once and is_kept_by_one(spec),
        )  # fmt: skip
    except SourceError as fault:
        if job.is_once and fault.is_retryable:
            raise Unreachable(fault.message) from fault
        if not fault.is_retryable:
            raise NotHere(fault.message, hint=f"the source answers {fault.code}") from fault
        raise
    return _Impatient(made) if job.is_once else made


def _fields(job: Job, spec: SubscriptionSpec) -> Mapping[str, Any]:
    """The fields of the credential that the document names."""
    if spec.auth is None:
        return {}
    found = job.credentials.get(spec.auth)
    if found is None:
        raise MissingAlias(
            f"there is no credential `{spec.auth}`",
            hint=f"give it with `--credential {spec.auth}=FILE`",
        )
    data = found.get("data")
    return data if isinstance(data, dict) else found


class _Impatient:
    """A source that is not waited for when it goes away."""

    def __init__(self, below: Source) -> None:
        self._below = below
        self.ack, self.nack = below.ack, below.nack
        self.term, self.extend = below.term, below.extend
        self.backlog, self.close = below.backlog, below.close

    def facts(self) -> Facts:
        """What was known of its patience when it was opened."""
        return self._below.facts()

    async def poll(self, batch: int, timeout_ms: int) -> list[PolledMessage]:
        """Poll; a source that is gone ends it all."""
        try:
            return await self._below.poll(batch, timeout_ms)
        except SourceError as fault:
            raise Unreachable(fault.message) from fault
