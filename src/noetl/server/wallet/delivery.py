"""Sealed delivery: a worker gets what its command needs, and nobody else can read it on the way."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.credentials import INPUTS, SealedAnswer
from noetl.clock import rfc3339
from noetl.dsl.documents.credential import secrets_in, texts_in
from noetl.edge.errors import Forbidden, NotFound, UnknownExecution
from noetl.errors import NoetlError
from noetl.secrets.sealed import about_delivery, seal_to
from noetl.server.access.caller import LOCAL, own_pool
from noetl.server.wallet.errors import WorkerKeyMissing

if TYPE_CHECKING:
    from noetl.api.credentials import SealedKind
    from noetl.clock import Clock
    from noetl.server.access.caller import Caller
    from noetl.server.fleet.workers import Workers
    from noetl.server.metrics import ServerMetrics
    from noetl.server.wallet.inputs import RunSecrets
    from noetl.server.wallet.keychain.resolution import Resolution
    from noetl.server.wallet.runs import RunFacts, Runs
    from noetl.store.base import CommandRow, Commands
    from noetl.telemetry.fingerprints import Fingerprints

KEPT: Final = timedelta(minutes=5)
"""A worker drops what it was given after this time at the latest."""
_CLAIM: Final = "command:claim"
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a worker wants, and for which command."""

    name: str
    worker_id: str
    execution_id: str
    command_id: str
    kind: SealedKind = "credential"


class Deliveries:
    """Gives secrets to workers that hold a claim."""

    def __init__(  # noqa: PLR0913 - the parts it is made from
        self,
        commands: Commands,
        runs: Runs,
        resolution: Resolution,
        inputs: RunSecrets,
        *,
        workers: Workers,
        metrics: ServerMetrics,
        seen: Fingerprints,
        clock: Clock,
    ) -> None:
        self._commands = commands
        self._runs = runs
        self._resolution = resolution
        self._inputs = inputs
        self._workers = workers
        self._metrics = metrics
        self._seen = seen
        self._clock = clock

    async def sealed(self, asked: Asked, caller: Caller = LOCAL) -> SealedAnswer:
        """What was asked for, for this worker alone."""
        try:
            made = await self._sealed(asked, caller)
        except NoetlError as refusal:
            is_refused = isinstance(refusal, Forbidden)
            self._metrics.credentials_sealed.inc("refused" if is_refused else "error")
            raise
        self._metrics.credentials_sealed.inc("ok")
        return made

    async def _sealed(self, asked: Asked, caller: Caller) -> SealedAnswer:
        command = await self._commands.get(asked.command_id)
        now = rfc3339(self._clock.now())
        if command is None or not _is_held(command, asked, now):
            raise Forbidden(
                f"the worker {asked.worker_id[:80]!r} holds no claim of that command",
                hint="a secret is given to the holder of a live claim only",
            )
        if not caller.holds(_CLAIM):  # who may not claim is no worker, whatever name he gives
            raise Forbidden(f"the account {caller.account!r} does not have `{_CLAIM}`")
        if caller.pool is not None and command.pool is not None:
            own_pool(caller, command.pool)
        key = await self._workers.key_of(asked.worker_id)
        if key is None:
            raise WorkerKeyMissing(
                f"the worker {asked.worker_id[:80]!r} has registered no key",
                hint="register it with `runtime.worker_public_key`",
            )
        run = await self._runs.get(asked.execution_id)
        if caller.is_bound and run.tenant_id != caller.tenant_id:
            raise UnknownExecution(f"there is no execution {asked.execution_id}")
        value, until = await self._value(asked, run)
        self._seen.add(*(texts_in if asked.kind == INPUTS else secrets_in)(value))
        about = about_delivery(asked.worker_id, asked.execution_id, asked.name)
        return envelope(key, value, about, until, self._clock)

    async def _value(self, asked: Asked, run: RunFacts) -> tuple[Any, str | None]:
        """What is inside, and when it ends by itself."""
        name = asked.name
        if asked.kind == "inputs":
            if name != INPUTS:
                raise NotFound(f"secret inputs are delivered under the name `{INPUTS}`")
            return await self._inputs.of(run.tenant_id, run.execution_id), None
        if name in run.named.keychain:
            return await self._resolution.entry(run, name)
        if asked.kind == "keychain":
            return await self._resolution.kept(run, name)
        if name not in run.aliases:
            raise Forbidden(f"{run.path} does not name the credential `{name[:80]}`")
        return await self._resolution.credential(run.tenant_id, name)


def envelope(key: str, value: object, about: str, until: str | None, clock: Clock) -> SealedAnswer:
    """A value for the holder of a key alone; when it ends by itself, it is kept no longer."""
    sealed = seal_to(key, _encode(value), about)
    ends = rfc3339(clock.now() + KEPT)
    return SealedAnswer(
        alg=sealed.alg,
        v=sealed.v,
        eph_pub=sealed.eph_pub,
        ciphertext=sealed.ciphertext,
        expires_at=ends if until is None else min(until, ends),
    )


def _is_held(command: CommandRow, asked: Asked, now: str) -> bool:
    return (
        command.execution_id == asked.execution_id
        and command.status == "CLAIMED"
        and command.worker_id == asked.worker_id
        and (command.lease_until or "") > now
    )
