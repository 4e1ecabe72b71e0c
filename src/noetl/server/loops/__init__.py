"""Work that nobody asks for: each module is one supervised loop, `async def run(plane)`.

The loops below run on every server; those that only one server runs are in `leading`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.server.loops import (
    audit,
    deliver,
    feed,
    held,
    hints,
    leading,
    publisher,
    secrets,
    waiting,
)

if TYPE_CHECKING:
    from noetl.server.loops.kept import Loop

LOOPS: Final[dict[str, Loop]] = {
    "audit": audit.run,
    "feed": feed.run,
    "hints": hints.run,
    "deliver": deliver.run,
    "held": held.run,
    "publish": publisher.run,
    "secrets": secrets.run,
    "waiting": waiting.run,
    "leading": leading.run,
}
"""Every loop of a server, by name; each is to be kept up by `kept.kept_up`."""
