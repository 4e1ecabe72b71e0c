"""Sealed delivery: a worker gets what its command needs, and nobody else can read it on the way."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from noetl.api.credentials import INPUTS
from noetl.clock import rfc3339
from noetl.dsl.documents.credential_types import secrets_in, texts_in
from noetl.edge.errors import Forbidden, NotFound, UnknownExecution
from noetl.secrets.sealed import about_delivery
from noetl.server.access.caller import LOCAL, own_pool
from noetl.server.fleet.workers import WORKER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noetl.api.credentials import SealedAnswer, SealedKind
    from noetl.clock import Clock
    from noetl.server.access.caller import Caller
    from noetl.server.claimed import Claimed
    from noetl.server.wallet.inputs import RunSecrets
    from noetl.server.wallet.keychain.resolution import Resolution
    from noetl.server.wallet.runs import RunFacts, Runs
    from noetl.server.wallet.sealing import Sealing
    from noetl.store.base import CommandRow, Commands
    from noetl.store.secrets import CredentialRow, Credentials

_CLAIM: Final = "command:claim"


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
        credentials: Credentials,
        sealing: Sealing,
        claimed: Claimed,
        clock: Clock,
    ) -> None:
        self._commands = commands
        self._claimed = claimed
        self._runs = runs
        self._resolution = resolution
        self._inputs = inputs
        self._credentials = credentials
        self._sealing = sealing
        self._clock = clock

    async def sealed(
        self, asked: Asked, caller: Caller = LOCAL, given: Callable[[], None] | None = None
    ) -> SealedAnswer:
        """What was asked for, for this worker alone; `given` is called as soon as that is sure."""
        with self._sealing.counted():
            return await self._sealed(asked, caller, given)

    async def _sealed(
        self, asked: Asked, caller: Caller, given: Callable[[], None] | None
    ) -> SealedAnswer:
        run = await self._runs.known(asked.execution_id)
        now, command = rfc3339(self._clock.now()), self._claimed.get(asked.command_id)
        if _is_held(command, asked, now):
            row = await self._row(asked, run)
        else:  # what is remembered says that something may be given, and never that it may not
            command, row = await asyncio.gather(
                self._commands.get(asked.command_id), self._row(asked, run)
            )
        if command is None or not _is_held(command, asked, now):
            raise Forbidden(
                f"the worker {asked.worker_id[:80]!r} holds no claim of that command",
                hint="a secret is given to the holder of a live claim only",
            )
        if not caller.holds(_CLAIM):  # who may not claim is no worker, whatever name he gives
            raise Forbidden(f"the account {caller.account!r} does not have `{_CLAIM}`")
        if caller.pool is not None and command.pool is not None:
            own_pool(caller, command.pool)
        key = await self._sealing.key_of(asked.worker_id, WORKER)
        if run is None or (caller.is_bound and run.tenant_id != caller.tenant_id):
            raise UnknownExecution(f"there is no execution {asked.execution_id}")
        value, until = await self._value(asked, run, row)
        if given is not None:
            given()
            await asyncio.sleep(0)  # whoever was told sends, and we work while that is under way
        about = about_delivery(asked.worker_id, asked.execution_id, asked.name)
        secrets = texts_in if asked.kind == INPUTS else _in_data
        return self._sealing.seal(key, value, about, until, secrets=secrets)

    async def _row(self, asked: Asked, run: RunFacts | None) -> CredentialRow | None:
        """The credential that is asked for, if that is what the run may have; not opened yet."""
        if run is None or asked.kind != "credential" or not _is_alias(asked.name, run):
            return None
        return await self._credentials.get(run.tenant_id, asked.name)

    async def _value(
        self, asked: Asked, run: RunFacts, row: CredentialRow | None
    ) -> tuple[Any, str | None]:
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
        if not _is_alias(name, run):
            raise Forbidden(f"{run.path} does not name the credential `{name[:80]}`")
        return await self._resolution.opened(name, row)


def _in_data(value: Any) -> Iterator[str]:  # noqa: ANN401 - type and fields, or names of variables
    return secrets_in(value["data"])


def _is_alias(name: str, run: RunFacts) -> bool:
    """Whether a name is that of a credential which the run may have."""
    return name in run.aliases and name not in run.named.keychain


def _is_held(command: CommandRow | None, asked: Asked, now: str) -> bool:
    return (
        command is not None
        and command.execution_id == asked.execution_id
        and command.status == "CLAIMED"
        and command.worker_id == asked.worker_id
        and (command.lease_until or "") > now
    )
