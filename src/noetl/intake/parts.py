"""What the engine of one subscription works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl.blobs.spool.spool import Spool
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.intake.breakers import Breakers, Tell
    from noetl.intake.deliveries import Listener
    from noetl.intake.dispatch import Starter
    from noetl.intake.keeping import LetterBox
    from noetl.intake.metrics import IntakeMetrics
    from noetl.intake.runs import Runs
    from noetl.telemetry.traces.tracer import Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What an engine works with."""

    listener: Listener
    ids: Ids
    clock: Clock
    starter: Starter
    breakers: Breakers
    letters: LetterBox
    tell: Tell
    metrics: IntakeMetrics
    spool: Spool | None = None
    runs: Runs | None = None
    """How runs end; without it a run that was accepted counts as one that went well."""
    tracer: Tracer | None = None
