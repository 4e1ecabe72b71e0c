"""Where what judges deliveries meets what runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from noetl.gateway.ingress.listeners import Known
    from noetl.gateway.ingress.pipeline import Planned
    from noetl.intake.outcomes import Disposition


class Desk(Protocol):
    """Takes deliveries that were verified and planned, and answers when they are safe."""

    async def deliver(self, known: Known, planned: Planned) -> Disposition:
        """Run it, or let it wait; the answer says which, and nothing is promised before."""
