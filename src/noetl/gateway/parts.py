"""What a gateway is made from; the wiring that starts it chooses the backends."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from noetl.api.registering import new_name
from noetl.gateway.shards import Shards
from noetl.secrets.sealed import KeyPair
from noetl.telemetry.fingerprints import Fingerprints

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.bus.gateway import GatewayBus, MemoryGatewayBus
    from noetl.clock import Clock
    from noetl.gateway.upstream import Upstream
    from noetl.ids import Ids
    from noetl.secrets.fetch import Fetch
    from noetl.settings import GatewaySettings
    from noetl.telemetry.traces.tracer import Tracer

KIND: Final = "gateway"
"""What the server knows such a process as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayParts:
    """Backends and settings."""

    settings: GatewaySettings
    clock: Clock
    ids: Ids
    bus: GatewayBus | MemoryGatewayBus
    upstream: Upstream
    fetch: Fetch
    """The way to sign-in providers, guarded."""
    shards: Shards = field(default_factory=Shards)
    seen: Fingerprints = field(default_factory=Fingerprints)
    keys: KeyPair = field(default_factory=KeyPair.make)
    name: str = field(default_factory=partial(new_name, KIND))
    """Of this replica; no other has it."""
    on_machine: Callable[[int], None] | None = None
    """Told the part of ids that is this process's own."""
    tracer: Tracer | None = None
    """Takes spans; none: nobody wants any."""
