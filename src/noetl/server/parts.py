"""What a server is made from; the wiring that starts it chooses the backends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noetl.api.results import INLINE_BYTES
from noetl.ids import random_key

if TYPE_CHECKING:
    from noetl.blobs.base import Blobs
    from noetl.bus.base import Bus
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.store.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParts:
    """Backends and numbers."""

    store: Store
    bus: Bus
    blobs: Blobs
    clock: Clock
    ids: Ids
    lease_s: float = 15.0
    max_attempts: int = 3
    """How often a command may lose its worker before it fails."""
    inline_bytes: int = INLINE_BYTES
    server_url: str = ""
    kinds: frozenset[str] | None = None
    """The kinds of tools that workers of this installation have; none: every known one."""
    is_open: bool = True
    """Nobody is asked who he is: the server is part of the caller's own process."""
    internal_tokens: tuple[str, ...] = ()
    """Bearers of the platform's own processes; the second one is accepted while they rotate."""
    publishes: bool = False
    """The events of commits are published on the bus."""
    is_alone: bool = True
    """No other server writes to this store."""
    servers: tuple[str, ...] = ()
    """Where workers may claim, this server included."""
    env: str = "dev"
    cursor_key: bytes = field(default_factory=lambda: random_key().encode())
    """Signs the cursors of lists; the same on all servers of an installation."""
