"""What a server is made from; the wiring that starts it chooses the backends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from noetl.api.results import INLINE_BYTES
from noetl.ids import random_key
from noetl.server.surroundings import Surroundings
from noetl.telemetry.fingerprints import Fingerprints

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from noetl.api.http import Transport
    from noetl.blobs.base import Blobs
    from noetl.bus.base import Bus
    from noetl.clock import Clock
    from noetl.dsl.plugins import Plugins
    from noetl.ids import Ids
    from noetl.secrets.fetch import Fetch
    from noetl.secrets.wallet import Wallet
    from noetl.server.plays import Player
    from noetl.store.base import Store
    from noetl.telemetry.traces.tracer import Tracer


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
    backlog_max: int = 10_000
    """Commands of a pool that wait for a worker, before new runs of it are refused."""
    server_url: str = ""
    public_url: str = ""
    """Where the API is, as seen from outside."""
    kinds: frozenset[str] | None = None
    """The kinds of tools that workers of this installation have; none: every known one."""
    plugins: Plugins | None = None
    """Kinds that plug-ins bring; none: what live workers tell."""
    is_open: bool = True
    """Nobody is asked who he is: the server is part of the caller's own process."""
    internal_tokens: tuple[str, ...] = ()
    """Bearers of the platform's own processes; the second one is accepted while they rotate."""
    internal_token_file: Path | None = None
    """Where the first one lies when it may change; it is not in `internal_tokens` then."""
    publishes: bool = False
    """The events of commits are published on the bus."""
    publisher: Literal["server", "playbook"] = "server"
    """Who publishes them; what a playbook is to publish waits in the store until it asks."""
    retention_days: int = 0
    """How long runs are kept after their end; 0: for ever."""
    is_alone: bool = True
    """No other server writes to this store."""
    servers: tuple[str, ...] = ()
    """Where workers may claim, this server included."""
    env: str = "dev"
    password_kib: int = 65_536
    """Memory that one check of a password takes."""
    wallet: Wallet | None = None
    """Seals and opens secrets; none: no secret is kept here."""
    fetch: Fetch | None = None
    """The way to systems that keep secrets or give tokens; none: nobody is asked."""
    metadata: Fetch | None = None
    """The way to the metadata service of the machine."""
    surroundings: Surroundings = field(default_factory=Surroundings)
    """Variables and folders of the server's machine that credentials may be read from."""
    seen: Fingerprints = field(default_factory=Fingerprints)
    """Secrets that were opened lately: no line of the log and no refusal shows one."""
    region: str = ""
    """Where this server is, for secrets that may not leave their region."""
    player: Player | None = None
    """Plays the tests of playbooks; none: they are played elsewhere."""
    gateways: Callable[[str], AbstractAsyncContextManager[Transport]] | None = None
    """The way to a gateway at an address; none: no gateway is asked for anything."""
    tracer: Tracer | None = None
    """Takes spans; none: nobody wants any."""
    cursor_key: bytes = field(default_factory=lambda: random_key().encode())
    """Signs the cursors of lists; the same on all servers of an installation."""
