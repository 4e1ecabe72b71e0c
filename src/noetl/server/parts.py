"""What a server is made from; the wiring that starts it chooses the backends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl.api.results import INLINE_BYTES

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
    inline_bytes: int = INLINE_BYTES
    server_url: str = ""
    kinds: frozenset[str] | None = None
    """The kinds of tools that workers of this installation have; none: every known one."""
