"""Which server a run is best asked at, and whether the servers see it the same way."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Literal

from noetl.errors import NoetlError
from noetl.gateway.errors import ShardMapMismatch
from noetl.ids import SHARD_HASH, SHARD_SEED, shard_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.api.runtime import ShardInfo

    Ask = Callable[[str], Awaitable[ShardInfo]]

State = Literal["unknown", "ok", "mismatch"]

LOOK_S: Final = 60.0
RETRY_S: Final = 1.0
"""How soon a server that could not be asked is asked again."""
_SAMPLE: Final = "320816801799737344"
_LARGEST: Final = (1 << 63) - 1
_SMALLEST: Final = -(1 << 63)
_DIGITS: Final = 19
_log: Final = logging.getLogger(__name__)


def id_of(text: object) -> str | None:
    """A text or number that may be the id of a run, in its one form; none when it is not."""
    if isinstance(text, bool):
        return None
    if isinstance(text, int):
        return str(text) if _SMALLEST <= text <= _LARGEST else None
    if not isinstance(text, str) or not text.isascii():
        return None
    digits = text.removeprefix("-")
    if not digits.isdigit() or len(digits) > _DIGITS:
        return None
    number = int(text)
    return str(number) if _SMALLEST <= number <= _LARGEST else None


class Shards:
    """The map of the shards; without servers of their own all are one."""

    def __init__(self, servers: tuple[str, ...] = ()) -> None:
        self.servers = servers
        self.count = max(1, len(servers))
        self.state: State = "unknown"
        self.reason = ""
        """What the servers see differently."""

    def index_of(self, execution_id: str) -> int:
        """The shard of a run; refused while the servers see it differently."""
        if self.state == "mismatch":
            raise ShardMapMismatch(
                "gateway and server disagree about the shards",
                hint="give both the same NOETL_SHARD_SERVERS",
            )
        return shard_of(execution_id, self.count)

    async def compare(self, ask: Ask) -> State:
        """Ask a server where it sees a run, and remember whether that is where we see it."""
        try:
            told = await ask(_SAMPLE)
        except NoetlError as fault:
            if self.state == "unknown":
                self.reason = fault.message
            return self.state  # a server that is away disagrees with nobody
        theirs = (
            told.server_config.get("shard_count"),
            told.shard_index,
            told.hash_function,
            told.seed,
        )
        ours = (self.count, shard_of(_SAMPLE, self.count), SHARD_HASH, SHARD_SEED)
        before, self.state = self.state, "ok" if theirs == ours else "mismatch"
        self.reason = "" if theirs == ours else f"the server has {theirs[0]!r}, we have {ours[0]}"
        if self.state == "mismatch" and before != "mismatch":
            _log.error("the map of the shards is not the server's", extra={"reason": self.reason})
        return self.state

    async def watch(self, ask: Ask) -> None:
        """Compare now and again, for ever."""
        while True:
            state = await self.compare(ask)
            await asyncio.sleep(RETRY_S if state == "unknown" else LOOK_S)
