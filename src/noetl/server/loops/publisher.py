"""Who publishes the events of commits: this server, or a playbook that asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.server.loops import publish

if TYPE_CHECKING:
    from noetl.server.plane import Plane


async def run(plane: Plane) -> None:
    """Publish what our own commits left; or leave it in the store, where a playbook finds it."""
    if plane.parts.publisher == "server":
        await publish.run(plane)
    signals = plane.signals
    while True:
        signals.unpublished.clear()
        await signals.publish.wait()
        signals.publish.clear()


async def sweep(plane: Plane) -> int:
    """Publish what was left behind, unless a playbook does."""
    return await publish.sweep(plane) if plane.parts.publisher == "server" else 0
