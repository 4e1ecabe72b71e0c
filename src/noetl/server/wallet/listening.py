"""Secrets for processes that listen: what the document of their subscription names, sealed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.dsl.draining import aliases_of
from noetl.edge.errors import Forbidden
from noetl.secrets.sealed import about_delivery
from noetl.server.access.caller import LOCAL
from noetl.server.access.listening import LISTENERS, telling

if TYPE_CHECKING:
    from noetl.api.credentials import SealedAnswer
    from noetl.server.access.caller import Caller
    from noetl.server.subscriptions.desk import SubscriptionDesk
    from noetl.server.wallet.keychain.resolution import Resolution
    from noetl.server.wallet.sealing import Sealing

_KINDS = ("subscription", "gateway")


class Listening:
    """Gives secrets to runtimes and gateways."""

    def __init__(self, desk: SubscriptionDesk, resolution: Resolution, sealing: Sealing) -> None:
        self._desk = desk
        self._resolution = resolution
        self._sealing = sealing

    async def sealed(
        self, name: str, process: str, subscription_id: str, caller: Caller = LOCAL
    ) -> SealedAnswer:
        """A credential of a subscription, for this process alone."""
        with self._sealing.counted():
            return await self._sealed(name, process, subscription_id, caller)

    async def _sealed(
        self, name: str, process: str, subscription_id: str, caller: Caller
    ) -> SealedAnswer:
        if caller is not LOCAL and LISTENERS.isdisjoint(caller.roles):
            raise Forbidden("secrets of a subscription are given to those who listen for it")
        row = await self._desk.found(caller, telling(caller), subscription_id)
        _, spec = await self._desk.specs.of(row)
        if name not in aliases_of(spec):
            raise Forbidden(f"{row.path} does not name the credential `{name[:80]}`")
        key = await self._sealing.key_of(process, *_KINDS)
        value, until = await self._resolution.credential(row.tenant_id, name)
        about = about_delivery(process, row.subscription_id, name)
        return self._sealing.seal(key, value, about, until)
