"""How long a poll of each source waits, and how long it may."""

from __future__ import annotations

from typing import Final

TIMEOUT_MS: Final = {"nats": 1000, "kafka": 1000, "pubsub": 10_000}
MOST_TIMEOUT_MS: Final = {"nats": 5000, "kafka": 5000, "pubsub": 20_000}
