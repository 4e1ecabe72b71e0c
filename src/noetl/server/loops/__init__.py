"""Work that nobody asks for: each module is one supervised loop, `async def run(plane)`.

The loops below run on every server; those that only one server runs are in `leading`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.server.loops import deliver, hints, leading, publish, waiting

if TYPE_CHECKING:
    from noetl.server.loops.kept import Loop

LOOPS: Final[dict[str, Loop]] = {
    "hints": hints.run,
    "deliver": deliver.run,
    "publish": publish.run,
    "waiting": waiting.run,
    "leading": leading.run,
}
"""Every loop of a server, by name; each is to be kept up by `kept.kept_up`."""
