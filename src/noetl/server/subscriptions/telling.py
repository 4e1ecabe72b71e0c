"""Who takes messages in, and so may say what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.edge.errors import Forbidden
from noetl.server.access.caller import LOCAL
from noetl.server.access.listening import LISTENERS, must_listen, telling

if TYPE_CHECKING:
    from noetl.server.access.caller import Caller
    from noetl.server.subscriptions.documents import Specs
    from noetl.store.subscriptions import SubscriptionRow

_WORKER = "worker"


async def must_tell(caller: Caller, row: SubscriptionRow, specs: Specs) -> None:
    """Refuse who does not take in the messages of a subscription.

    Runtimes and gateways do; workers do when it is drained by the clock, on their pool.
    """
    if caller is LOCAL or not LISTENERS.isdisjoint(caller.roles):
        must_listen(caller, telling(caller), row.path)
        return
    if _WORKER not in caller.roles:
        raise Forbidden(
            "what became of messages is told by the platform's own processes",
            code="field_not_allowed",
        )
    _, spec = await specs.of(row)
    if spec.activation != "scheduled" or caller.pool not in {None, spec.runtime.pool}:
        raise Forbidden(f"{caller.account} does not drain {row.path}")
