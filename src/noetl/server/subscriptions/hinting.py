"""Hints: gateways are told that what they know of a listener is old.

A hint that is lost costs half a minute: gateways ask again by themselves.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from noetl.bus import subjects
from noetl.bus.base import BusGone
from noetl.dsl.draining import aliases_of
from noetl.dsl.subscription.ingress import aliases_in
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from noetl.bus.base import Bus
    from noetl.dsl.subscription.document import SubscriptionSpec
    from noetl.server.subscriptions.documents import Specs
    from noetl.store.subscriptions import SubscriptionRow, Subscriptions

BUS_S: Final = 2.0
_log: Final = logging.getLogger(__name__)


class Hints:
    """Tells gateways."""

    def __init__(self, bus: Bus, subscriptions: Subscriptions, specs: Specs) -> None:
        self._bus = bus
        self._subscriptions = subscriptions
        self._specs = specs

    async def changed(self, *listeners: str | None) -> None:
        """Listeners are not what they were; a bus that is away is no reason to fail."""
        try:
            async with asyncio.timeout(BUS_S):
                for listener in sorted({one for one in listeners if one}):
                    await self._bus.tell(subjects.ingress(listener), b"")
        except (BusGone, TimeoutError):
            _log.debug("gateways were not told of a listener", extra={"listeners": listeners})

    async def credential(self, tenant_id: str, name: str) -> None:
        """A credential is not what it was: those who listen with it are told of."""
        rows = await self._subscriptions.listed(tenant_id)
        pushed = [row for row in rows if row.listener is not None]
        await self.changed(*[row.listener for row in pushed if await self._names(row, name)])

    async def _names(self, row: SubscriptionRow, name: str) -> bool:
        try:
            _, spec = await self._specs.of(row)
        except NoetlError:  # its document is gone: gateways find out when they ask
            return False
        return name in aliases_at_edge(spec)


def aliases_at_edge(spec: SubscriptionSpec) -> frozenset[str]:
    """The credentials that a gateway needs: of the verifier, the handshake and the spool."""
    own = frozenset() if spec.ingress is None else aliases_in(spec.ingress)
    return own | aliases_of(spec)
