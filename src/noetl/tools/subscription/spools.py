"""What a worker has for the spools of subscriptions that are drained by the clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from noetl.blobs.spool.jetstream import Messages

DRAIN_S: Final = 60.0
"""So long a tick goes on for what waits; the next one goes on where it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spools:
    """Where messages wait between two ticks."""

    home: Path
    """What a relative path of `local_disk` begins at."""
    default: str = ""
    """`local_disk:<path>` or `nats_object:<bucket>`, where a document names no backend.

    Without a word it is the bucket that listeners and gateways take.
    """
    messages: Callable[[str], Messages] | None = None
    """The messages of a bucket of JetStream, where there is a broker."""
    drain_s: float = DRAIN_S
