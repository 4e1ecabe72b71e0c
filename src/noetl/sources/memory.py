"""Messages of this process alone: the rules of a source without a broker."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.clock import rfc3339
from noetl.sources.base import Facts, PolledMessage, body_of, lowered, report_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from noetl.clock import Clock
    from noetl.sources.base import AckReport

ACK_WAIT_S: Final = 30.0


@dataclass(slots=True)
class _Kept:
    message: PolledMessage
    deliveries: int = 0
    ack_ids: set[str] = field(default_factory=set)
    timer: asyncio.TimerHandle | None = None


class MemorySource:
    """A queue whose messages come again until they are settled."""

    def __init__(self, clock: Clock, *, ack_wait_s: float = ACK_WAIT_S) -> None:
        self._clock = clock
        self._ack_wait_s = ack_wait_s
        self._numbers = count(1)
        self._waiting: deque[_Kept] = deque()
        self._given: dict[str, _Kept] = {}
        self._settled: set[str] = set()
        self._changed = asyncio.Event()

    def publish(self, body: bytes, headers: Mapping[str, str] | None = None, key: str = "") -> None:
        """One more message."""
        number = next(self._numbers)
        message = PolledMessage(
            id=f"memory:{number}",
            headers=lowered((headers or {}).items()),
            attributes=dict(headers or {}),
            metadata={"source": "memory", "size_bytes": len(body), "seq": number},
            ordering_key=key or None,
            **body_of(body),
        )
        self._put(_Kept(message))

    async def poll(self, batch: int, timeout_ms: int) -> list[PolledMessage]:
        """What waits now, else what comes within the time."""
        if not self._waiting and timeout_ms > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._changed.wait()
            except TimeoutError:
                return []
        return [self._delivered() for _ in range(min(batch, len(self._waiting)))]

    async def ack(self, ack_ids: Sequence[str]) -> AckReport:
        """They need no further delivery."""
        return self._settle(ack_ids, self._forget)

    async def nack(self, ack_ids: Sequence[str], delay_ms: int = 0) -> AckReport:
        """Deliver them again, after a while."""
        return self._settle(ack_ids, lambda kept: self._again_after(kept, delay_ms / 1000))

    async def term(self, ack_ids: Sequence[str]) -> AckReport:
        """Never deliver them again."""
        return self._settle(ack_ids, self._forget)

    async def extend(self, ack_ids: Sequence[str]) -> AckReport:
        """Somebody still works at them."""
        return self._settle(ack_ids, lambda kept: self._again_after(kept, self._ack_wait_s))

    async def backlog(self) -> int | None:
        """Messages that nobody has fetched, and those that nobody has settled."""
        return len(self._waiting) + len({id(kept) for kept in self._given.values()})

    def facts(self) -> Facts:
        """It delivers as often as needed, for as long as the process lives."""
        return Facts(ack_wait_s=self._ack_wait_s)

    async def close(self) -> None:
        """Let go of the timers."""
        for kept in self._given.values():
            _stop(kept)

    def _put(self, kept: _Kept) -> None:
        self._waiting.append(kept)
        self._changed.set()

    def _delivered(self) -> PolledMessage:
        kept = self._waiting.popleft()
        kept.deliveries += 1
        ack_id = f"{kept.message.id}:{kept.deliveries}"
        kept.ack_ids.add(ack_id)
        self._given[ack_id] = kept
        self._again_after(kept, self._ack_wait_s)
        more = {"received_at": rfc3339(self._clock.now()), "delivered": kept.deliveries}
        metadata = {**kept.message.metadata, **more}
        return msgspec.structs.replace(kept.message, metadata=metadata, ack_id=ack_id)

    def _settle(self, ack_ids: Sequence[str], do: Callable[[_Kept], None]) -> AckReport:
        faults: dict[str, tuple[str, str]] = {}
        for ack_id in ack_ids:
            kept = self._given.get(ack_id)
            if kept is not None:
                do(kept)
            elif ack_id not in self._settled:
                faults[ack_id] = ("stale", "nothing was delivered under this id")
        return report_of(ack_ids, faults)

    def _forget(self, kept: _Kept) -> None:
        _stop(kept)
        if kept in self._waiting:
            self._waiting.remove(kept)
        for ack_id in kept.ack_ids:
            self._given.pop(ack_id, None)
            self._settled.add(ack_id)

    def _again_after(self, kept: _Kept, delay_s: float) -> None:
        _stop(kept)
        loop = asyncio.get_running_loop()
        kept.timer = loop.call_later(delay_s, self._again, kept)

    def _again(self, kept: _Kept) -> None:
        kept.timer = None
        if kept not in self._waiting:
            self._put(kept)


def _stop(kept: _Kept) -> None:
    if kept.timer is not None:
        kept.timer.cancel()
        kept.timer = None
