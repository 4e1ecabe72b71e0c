"""Kept secrets: renewals that are under way, and how often values were read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.server.wallet.keychain.renewals import EVERY_S

if TYPE_CHECKING:
    from noetl.server.plane import Plane

__all__ = ("EVERY_S", "renew", "run")


async def run(plane: Plane) -> None:
    """Look after the renewals of this server."""
    await plane.secrets.renewals.run()


async def renew(plane: Plane) -> None:
    """Renew what is to be renewed ahead of its end."""
    await plane.secrets.renewals.look()
