"""What a worker tells about itself while it works; this form listens to nobody.

The one that is shown to scrapers is `noetl.worker.metrics`.
"""

from __future__ import annotations


class Meters:
    """Takes every number and keeps none."""

    def pulled(self, outcome: str, seconds: float) -> None:
        """A request for work ended."""

    def started(self, seconds: float) -> None:
        """A command began so long after it was claimed."""

    def ended(self, kind: str, seconds: float, error_kind: str | None) -> None:
        """A command ended, well or with an error."""

    def parked(self, reason: str) -> None:
        """A command waits without a slot."""

    def emitted(self, events: tuple[str, ...], seconds: float) -> None:
        """A batch of these events was answered."""

    def stored(self, outcome: str, size_bytes: int) -> None:
        """A large result was stored, or not."""

    def cancelled(self, via: str, commands: int) -> None:
        """Commands were stopped because somebody said so."""

    def reconnected(self, reason: str) -> None:
        """The way to the bus was made anew."""
