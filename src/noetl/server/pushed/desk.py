"""Everything about deliveries of senders, wired."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl.server.access.bearers import InternalToken
from noetl.server.fleet.gateways import Gateways
from noetl.server.pushed.deliveries import DeliveryDesk
from noetl.server.pushed.replaying import Replaying
from noetl.server.pushed.sending import Sending

if TYPE_CHECKING:
    from noetl.edge.cursor import Cursors
    from noetl.server.access.quota import Quotas
    from noetl.server.parts import ServerParts
    from noetl.server.runs.execute import Runs
    from noetl.server.subscriptions.desk import SubscriptionDesk
    from noetl.server.values.stored import Values
    from noetl.server.wallet.listeners import Listeners


@dataclass(slots=True, kw_only=True)
class Pushed:
    """What routes ask about deliveries."""

    deliveries: DeliveryDesk
    sending: Sending
    replaying: Replaying

    @classmethod
    def of(  # noqa: PLR0913 - the parts it is made from
        cls,
        parts: ServerParts,
        desk: SubscriptionDesk,
        listeners: Listeners,
        runs: Runs,
        *,
        values: Values,
        cursors: Cursors,
        quotas: Quotas,
    ) -> Pushed:
        """Make the parts that follow from the given ones."""
        store, clock, ids = parts.store, parts.clock, parts.ids
        deliveries = DeliveryDesk(desk, store.deliveries, values, cursors)
        gateways = Gateways(store.runtimes, clock, InternalToken(parts), parts.gateways)
        sending = Sending(desk, gateways, listeners, clock=clock, ids=ids)
        replaying = Replaying(parts, desk, deliveries, runs, sending, quotas)
        return cls(deliveries=deliveries, sending=sending, replaying=replaying)
