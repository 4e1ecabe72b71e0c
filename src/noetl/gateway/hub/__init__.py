"""Who is connected, and what each client is told."""

from __future__ import annotations

from noetl.gateway.hub.switchboard import Hub
from noetl.gateway.hub.wheel import Pace

__all__ = ("Hub", "Pace")
