"""What the files of this folder share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from noetl.gateway.requests.ends import Outlet

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.gateway.metrics import GatewayMetrics
    from noetl.gateway.person import Person
    from noetl.gateway.requests.ends import Ends
    from noetl.gateway.requests.rebuilding import Rebuilds
    from noetl.gateway.requests.records import Records
    from noetl.gateway.upstream import Upstream
    from noetl.ids import Ids
    from noetl.telemetry.fingerprints import Fingerprints


class Clients(Outlet, Protocol):
    """Who knows clients, and tells them."""

    async def owns(self, person: Person, client_id: str) -> bool:
        """Whether a client is somebody's, connected or just gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What requests are made with."""

    records: Records
    rebuilds: Rebuilds
    ends: Ends
    hub: Clients
    upstream: Upstream
    clock: Clock
    ids: Ids
    metrics: GatewayMetrics
    seen: Fingerprints
    gateway_url: str
    """Where playbooks call back."""
    deadline_s: float
    needs_token: bool
    """Whether a callback has to show the token of its request."""
