"""Listeners of a broker: each hears on whichever connection there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from noetl.bus.link import Link


def _nothing() -> None:
    """Nobody waits."""


@dataclass(slots=True, eq=False)
class Ear:
    """Somebody who listens under a subject."""

    subject: str
    heard: Callable[[Msg], None]
    ended: Callable[[], None] = _nothing
    """Is called when nothing will be heard any more."""
    link: Link | None = None
    subscription: Subscription | None = None

    async def attach(self, link: Link) -> None:
        """Hear on this connection."""
        self.subscription = await link.hear(self.subject, self._hear)
        self.link = link

    async def detach(self) -> None:
        """Hear no more."""
        self.ended()
        if self.link is not None and self.subscription is not None:
            await self.link.unhear(self.subscription)

    async def _hear(self, msg: Msg) -> None:
        self.heard(msg)
