"""What a local stack is made of; the command that starts it chooses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noetl.telemetry.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from noetl.api.credentials import CredentialPut
    from noetl.clock import Clock
    from noetl.engine.events import Recorded
    from noetl.ids import Ids
    from noetl.local.watch import Watch
    from noetl.telemetry.traces.tracer import Tracer
    from noetl.tools.base import Tool
    from noetl.worker.secrets import Handed


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a local stack is made of."""

    watch: Watch
    folder: Path
    tools: Mapping[str, Tool]
    clock: Clock
    ids: Ids
    home: Path | None = None
    """Where large values lie; in memory without it."""
    slots: int = 8
    lease_s: float = 15.0
    ceiling_s: float = 86_400.0
    is_complete: bool = True
    """Whether the tools are all that there is: a playbook that requires others is refused."""
    on_worker: frozenset[str] = frozenset()
    """Steps of the playbook that a worker runs although the engine could."""
    redactor: Redactor = field(default_factory=Redactor)
    secrets: Callable[[Handed], Handed] | None = None
    """Stands before the secrets of commands; tests have stand-ins."""
    credentials: Sequence[CredentialPut] = ()
    """What the caller brought along; kept in memory for as long as the stack lives."""
    log: Sequence[Recorded] = ()
    """The log of a run to go on with."""
    tracer: Tracer | None = None
    """Takes spans; none: nobody wants any."""
    on_line: Callable[[str, str], None] | None = None
    """Told every line that a step writes, and the step."""
