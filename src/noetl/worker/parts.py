"""What a worker is made of; the process that runs it chooses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from noetl.api.results import INLINE_BYTES
from noetl.engine.pipeline import MOST_RUNS
from noetl.telemetry.redact import Redactor
from noetl.worker.meters import Meters
from noetl.worker.tasks import CEILING_S, DEFAULT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noetl.api.client import Client
    from noetl.blobs.base import Blobs
    from noetl.bus.base import Bus
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.telemetry.traces.tracer import Tracer
    from noetl.tools.base import Tool
    from noetl.tools.objects.store import Stores
    from noetl.tools.sources import Scripts
    from noetl.worker.backlog import Backlog
    from noetl.worker.outbox import Outbox
    from noetl.worker.parcels import Parcels
    from noetl.worker.pulse import Line
    from noetl.worker.secrets import Handed

DRAIN_S: Final = 25.0


def _no_line() -> Line:
    raise RuntimeError("a heart with a thread needs a line of its own")


def _ignore(_machine: int) -> None:
    """The ids are somebody else's affair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What a worker is made of."""

    client: Client
    tools: Mapping[str, Tool]
    clock: Clock
    ids: Ids
    worker_id: str
    pool: str = "shared"
    slots: int = 16
    bus: Bus | None = None
    blobs: Blobs | None = None
    """Where tools read and leave large bytes; they refuse such work without it."""
    stores: Stores | None = None
    """Object stores that tools reach by the rules of this worker."""
    scripts: Scripts | None = None
    """Fetches scripts that lie elsewhere; tools refuse them without it."""
    redactor: Redactor = field(default_factory=Redactor)
    secrets: Callable[[Handed], Handed] | None = None
    """Stands before the secrets that the server seals to this worker; tests have stand-ins."""
    lifted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Credentials that the environment of this worker holds."""
    has_key: bool = False
    """The key that others seal to is made before it is needed."""
    drain_s: float = DRAIN_S
    ceiling_s: float = CEILING_S
    default_s: float = DEFAULT_S
    most_runs: int = MOST_RUNS
    """Task runs of one pipeline."""
    inline_bytes: int = INLINE_BYTES
    """How large a result may be that stands in its report."""
    sandbox: str = ""
    extras: tuple[str, ...] = ()
    kind_limits: Mapping[str, int] = field(default_factory=dict)
    heartbeat_s: float | None = None
    heart: Literal["loop", "thread"] = "loop"
    """Where beats are made; a thread needs `line`."""
    line: Callable[[], Line] = _no_line
    """Makes a client with a connection of its own, for another event loop."""
    server_url: str = ""
    other: Callable[[str], Client] | None = None
    """Makes the client of another server, for hints that name it."""
    outbox: Outbox | None = None
    """Where reports lie while the server is away; in memory without it."""
    backlog: Backlog | None = None
    """Where lines of steps lie meanwhile; in memory without it."""
    parcels: Parcels | None = None
    """Where large results lie meanwhile; without it they wait for the server in their slots."""
    brakes: Mapping[str, Callable[[], bool]] = field(default_factory=dict)
    """Reasons of the machine to take no more work, by name."""
    meters: Meters = field(default_factory=Meters)
    tracer: Tracer | None = None
    """Takes spans; none: nobody wants any."""
    on_machine: Callable[[int], None] = _ignore
    """Told the number that makes the ids of this process its own."""
