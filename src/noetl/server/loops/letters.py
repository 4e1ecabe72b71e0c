"""Dead letters that the server keeps: looks for what is wanted of them, and has it done.

What is wanted stands in the logs of subscriptions, and what is done goes from there: a server that
takes over finds what is left. Each subscription has its own pace.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from noetl.errors import NoetlError
from noetl.server.signals import sleep_until

if TYPE_CHECKING:
    from noetl.server.plane import Plane

EVERY_S: Final = 5.0
"""So long after it was tried what could not be is tried again."""
IDLE_S: Final = 15.0
"""So long until it is seen that another server was asked."""
_log: Final = logging.getLogger(__name__)


async def run(plane: Plane) -> None:
    """Look now, again and again, and when somebody asks this server."""
    under_way: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            for name in [name for name, task in under_way.items() if task.done()]:
                under_way.pop(name).result()
            wanted = await plane.parts.store.letters.wanted()
            for name in wanted:
                if name not in under_way:
                    under_way[name] = asyncio.create_task(_done(plane, name), name="dead letters")
            await sleep_until(plane.letters.asked, EVERY_S if wanted else IDLE_S)
    finally:
        for task in under_way.values():
            task.cancel()
        await asyncio.gather(*under_way.values(), return_exceptions=True)


async def _done(plane: Plane, subscription_id: str) -> None:
    try:
        await plane.redriving.do(subscription_id)
    except NoetlError as fault:
        if not fault.retryable:
            raise
        about = {"subscription_id": subscription_id, "code": fault.code}
        _log.warning("dead letters wait", extra=about)
