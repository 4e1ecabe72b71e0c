"""What a resolver knows of the operation that it answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.gateway.gate import Gate
    from noetl.gateway.person import Person
    from noetl.gateway.proxy import Proxy

MOST_WAIT_S: Final = 60
"""How long one operation may wait for runs."""
_LANES: Final = 8


@dataclass(slots=True, kw_only=True)
class Asked:
    """One operation: who asks, and how long it may take."""

    gate: Gate
    proxy: Proxy
    person: Person
    request_id: str = ""
    key: str | None = None
    """The idempotency key of its request."""
    limit: asyncio.Timeout | None = None
    waited_s: float = 0.0
    lanes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LANES))
    """So many runs of a list are asked for at once."""

    def server(self, execution_id: str | None = None) -> Client:
        """The server, as the person calls it."""
        return self.gate.upstream.acting_for(self.person, execution_id)

    def patience(self, wait_s: float) -> float:
        """How long may be waited; the time of the operation does not pass meanwhile."""
        granted = max(0.0, min(wait_s, MOST_WAIT_S - self.waited_s))
        self.waited_s += granted
        when = None if self.limit is None else self.limit.when()
        if self.limit is not None and when is not None:
            self.limit.reschedule(when + granted)
        return granted
