"""A stored log, its playbooks found again, against today's engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.cli.failures import failure_of
from noetl.cli.files import read
from noetl.cli.session import resumed
from noetl.errors import NoetlError
from noetl.local.replay import replay_beside

if TYPE_CHECKING:
    from noetl.cli.session import Resumed
    from noetl.local.replay import Replayed


def replayed(name: str) -> Replayed:
    """Replay the log of that name."""
    log = resumed(name)
    try:
        return asyncio.run(_replayed(log))
    except NoetlError as fault:
        raise failure_of(fault) from fault


async def _replayed(log: Resumed) -> Replayed:
    source = read(log.file)
    text = source.data.decode("utf-8", "replace")
    return await replay_beside(log.events, text, Path(source.name).parent)
