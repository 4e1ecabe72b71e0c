"""Secrets for processes that listen: what the document of their subscription names, sealed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.dsl.documents.credential import secrets_in
from noetl.dsl.draining import aliases_of
from noetl.edge.errors import Forbidden
from noetl.errors import NoetlError
from noetl.secrets.sealed import about_delivery
from noetl.server.access.caller import LOCAL
from noetl.server.access.listening import LISTENERS, telling
from noetl.server.wallet.delivery import envelope
from noetl.server.wallet.errors import WorkerKeyMissing

if TYPE_CHECKING:
    from noetl.api.credentials import SealedAnswer
    from noetl.clock import Clock
    from noetl.server.access.caller import Caller
    from noetl.server.fleet.workers import Workers
    from noetl.server.metrics import ServerMetrics
    from noetl.server.subscriptions.desk import SubscriptionDesk
    from noetl.server.wallet.keychain.resolution import Resolution
    from noetl.telemetry.fingerprints import Fingerprints

_KINDS = ("subscription", "gateway")


class Listening:
    """Gives secrets to runtimes and gateways."""

    def __init__(  # noqa: PLR0913 - the parts it is made from
        self,
        desk: SubscriptionDesk,
        resolution: Resolution,
        workers: Workers,
        *,
        metrics: ServerMetrics,
        seen: Fingerprints,
        clock: Clock,
    ) -> None:
        self._desk = desk
        self._resolution = resolution
        self._workers = workers
        self._metrics = metrics
        self._seen = seen
        self._clock = clock

    async def sealed(
        self, name: str, process: str, subscription_id: str, caller: Caller = LOCAL
    ) -> SealedAnswer:
        """A credential of a subscription, for this process alone."""
        try:
            made = await self._sealed(name, process, subscription_id, caller)
        except NoetlError as refusal:
            is_refused = isinstance(refusal, Forbidden)
            self._metrics.credentials_sealed.inc("refused" if is_refused else "error")
            raise
        self._metrics.credentials_sealed.inc("ok")
        return made

    async def _sealed(
        self, name: str, process: str, subscription_id: str, caller: Caller
    ) -> SealedAnswer:
        if caller is not LOCAL and LISTENERS.isdisjoint(caller.roles):
            raise Forbidden("secrets of a subscription are given to those who listen for it")
        row = await self._desk.found(caller, telling(caller), subscription_id)
        _, spec = await self._desk.specs.of(row)
        if name not in aliases_of(spec):
            raise Forbidden(f"{row.path} does not name the credential `{name[:80]}`")
        key = await self._workers.key_of(process, _KINDS)
        if key is None:
            raise WorkerKeyMissing(
                f"the process {process[:80]!r} has registered no key",
                hint="register it with `runtime.worker_public_key`",
            )
        value, until = await self._resolution.credential(row.tenant_id, name)
        self._seen.add(*secrets_in(value))
        about = about_delivery(process, row.subscription_id, name)
        return envelope(key, value, about, until, self._clock)
