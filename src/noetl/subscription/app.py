"""A process that listens for several subscriptions: each has a loop, limits and a state."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from noetl.api.registering import FIRST_AGAIN_S, LONGEST_AGAIN_S, Registration
from noetl.blobs.spool.opening import Means, opened
from noetl.blobs.spool.rules import Place
from noetl.errors import NoetlError
from noetl.intake.audit import ServerPoster
from noetl.intake.dispatch import ServerStarter
from noetl.intake.endings import ServerEndings
from noetl.intake.keeping import OFF, ServerLetters, mode_of
from noetl.intake.metrics import IntakeMetrics
from noetl.sources.opening import open_source
from noetl.sources.ordering import is_kept_by_one
from noetl.subscription.ports import Ports
from noetl.subscription.run import Runtime
from noetl.subscription.secrets import Credentials
from noetl.subscription.state import Steering

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from noetl.api.client import Client
    from noetl.blobs.spool.base import SpoolStore
    from noetl.blobs.spool.jetstream import Messages
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.intake.circuit_stores import CircuitStore
    from noetl.secrets.sealed import KeyPair
    from noetl.sources.base import Source
    from noetl.subscription.state import Listened
    from noetl.telemetry.redact import Redactor
    from noetl.telemetry.traces.tracer import Tracer

KIND: Final = "subscription"
"""What the server knows such a process as."""
CONNECTION: Final = (
    "stream", "consumer", "topic", "group", "brokers", "subscription", "url", "user", "password",
    "token", "endpoint",
)  # fmt: skip
"""The fields of a document that say where its source is."""
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppParts:
    """What a listening process is made of."""

    name: str
    paths: Sequence[str]
    client: Client
    keys: KeyPair
    clock: Clock
    ids: Ids
    circuits: CircuitStore
    redactor: Redactor
    home: Path
    spool_default: str = ""
    messages: Callable[[str], Messages] | None = None
    """The messages of a bucket of JetStream, where there is a broker."""
    emulator: str = ""
    state_poll_s: float = 5.0
    tracer: Tracer | None = None
    on_machine: Callable[[int], None] | None = None


class App:
    """The listeners of one process."""

    def __init__(self, parts: AppParts) -> None:
        self._parts = parts
        self.metrics = IntakeMetrics(parts.paths)
        self._registration = Registration(
            lambda: parts.client, parts.name, KIND, parts.keys, on_machine=parts.on_machine
        )
        self._registration.figures = self._figures
        self._credentials = Credentials(
            parts.client, parts.name, parts.keys, parts.redactor, self._registration.join
        )
        self._controls = {path: Steering(parts.client, path) for path in parts.paths}
        self.runtimes = [Runtime(path, self._ports(path)) for path in parts.paths]
        self._stopping = asyncio.Event()

    @property
    def ailments(self) -> tuple[str, ...]:
        """Why it is not well; nothing while it is."""
        return tuple(ailment for one in self.runtimes for ailment in one.ailments)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not ready; nothing when every listener has begun."""
        return tuple(f"{one.path}: starting" for one in self.runtimes if not one.is_ready)

    def stop(self) -> None:
        """Fetch no more, end what was begun, tell the server, and come to an end."""
        self._stopping.set()
        for runtime in self.runtimes:
            runtime.stop()

    async def run(self) -> None:
        """Listen until `stop`; the first fault that needs a person ends all of it."""
        if not await self._join():
            return
        beating = asyncio.create_task(self._registration.run(), name="registration")
        try:
            async with asyncio.TaskGroup() as group:
                for runtime in self.runtimes:
                    group.create_task(runtime.run(), name=f"listener:{runtime.path}")
        except BaseExceptionGroup as faults:
            raise _first(faults) from None
        finally:
            beating.cancel()
            await asyncio.wait((beating,))
            await self._registration.leave()
            for control in self._controls.values():
                await control.stop()

    async def _join(self) -> bool:
        """Make this process known, as soon as there is a server; false when the end comes first."""
        again_s = FIRST_AGAIN_S
        while not self._stopping.is_set():
            try:
                await self._registration.join()
            except NoetlError as fault:
                _log.warning("the server does not know us yet", extra={"code": fault.code})
            else:
                return True
            try:
                async with asyncio.timeout(again_s):
                    await self._stopping.wait()
            except TimeoutError:
                again_s = min(again_s * 2, LONGEST_AGAIN_S)
        return False

    def _figures(self) -> dict[str, dict[str, Any]]:
        return {one.path: one.figures for one in self.runtimes}

    def _ports(self, path: str) -> Ports:
        parts = self._parts
        return Ports(
            name=parts.name,
            clock=parts.clock,
            ids=parts.ids,
            control=self._controls[path],
            starter=ServerStarter(parts.client),
            endings=ServerEndings(parts.client, parts.circuits),
            poster=ServerPoster(parts.client, parts.name, KIND),
            circuits=parts.circuits,
            letters=lambda listened: ServerLetters(parts.client, listened.subscription_id),
            source=self._source,
            spool=self._spool,
            metrics=self.metrics,
            state_poll_s=parts.state_poll_s,
            tracer=parts.tracer,
        )

    async def _source(self, listened: Listened) -> Source:
        spec, parts = listened.spec, self._parts
        auth = await self._credentials.fields(spec.auth, listened.subscription_id)
        return await open_source(
            spec.source,
            connection_of(listened),
            auth,
            parts.clock,
            emulator=parts.emulator,
            is_heir=is_kept_by_one(spec),
        )

    @asynccontextmanager
    async def _spool(self, listened: Listened) -> AsyncIterator[SpoolStore | None]:
        spool, parts = listened.spec.spool, self._parts
        if spool is None or mode_of(listened.spec) == OFF:
            yield None
            return
        means = Means(
            home=parts.home,
            default=parts.spool_default,
            fields=await self._credentials.fields(spool.alias, listened.subscription_id),
            messages=parts.messages,
        )
        async with opened(spool, Place(listened.tenant, listened.path), means) as store:
            yield store


def connection_of(listened: Listened) -> dict[str, Any]:
    """Where the source is, as the document says."""
    return {name: getattr(listened.spec, name) for name in CONNECTION}


def _first(faults: BaseExceptionGroup[BaseException]) -> BaseException:
    fault: BaseException = faults
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault
