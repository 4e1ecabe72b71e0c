"""Everything that routes of the gateway need, put together once in `app.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from noetl.api.registering import Registration
    from noetl.bus.gateway import GatewayBus, MemoryGatewayBus
    from noetl.clock import Clock
    from noetl.gateway.access import Access
    from noetl.gateway.cors import Cors
    from noetl.gateway.hooks import Hooks
    from noetl.gateway.hub import Hub
    from noetl.gateway.ingress.arriving import Arrivals
    from noetl.gateway.limits import Limits
    from noetl.gateway.metrics import GatewayMetrics
    from noetl.gateway.oidc import Providers, SignIns
    from noetl.gateway.peers import Peers
    from noetl.gateway.requests import Requests
    from noetl.gateway.rpc import Calls
    from noetl.gateway.sessions import Sessions
    from noetl.gateway.shards import Shards
    from noetl.gateway.tasks import Tasks
    from noetl.gateway.tickets import Tickets
    from noetl.gateway.traffic import Traffic
    from noetl.gateway.upstream import Upstream
    from noetl.ids import Ids
    from noetl.secrets.sealed import KeyPair
    from noetl.settings import GatewaySettings
    from noetl.telemetry.fingerprints import Fingerprints
    from noetl.telemetry.traces.tracer import Tracer


@dataclass(kw_only=True, slots=True)
class Gate:
    """One gateway process, as its routes see it."""

    settings: GatewaySettings
    clock: Clock
    ids: Ids
    bus: GatewayBus | MemoryGatewayBus
    upstream: Upstream
    sessions: Sessions
    tickets: Tickets
    providers: Providers
    sign_ins: SignIns
    hooks: Hooks
    access: Access
    peers: Peers
    requests: Requests
    hub: Hub
    calls: Calls
    limits: Limits
    ingress: Arrivals
    shards: Shards
    metrics: GatewayMetrics
    tasks: Tasks
    cors: Cors
    traffic: Traffic
    """Calls that are not answered yet."""
    closing: asyncio.Event
    """Set when the gateway is to stop: streams end, and no new one begins."""
    seen: Fingerprints
    """Secrets that were seen lately: no line of the log and no answer shows one."""
    registration: Registration
    keys: KeyPair
    """What the server seals secrets of listeners to."""
    tracer: Tracer | None = None
