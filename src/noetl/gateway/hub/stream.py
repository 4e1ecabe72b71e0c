"""One connection of a client: what it is still to be told, and how it comes to its end.

A stream has a place in the log of its client. What comes live is queued when it follows that
place; otherwise the stream notes that it is behind and reads the log, in its own task and at the
pace of its reader. So there is neither a gap nor a repetition, whatever a connection has lost.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.bus.base import BusGone
from noetl.bus.streams import CLIENTS
from noetl.gateway import frames
from noetl.gateway.hub.presence import Present

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from noetl.bus.clients import ClientLog, Logged
    from noetl.gateway.metrics import GatewayMetrics
    from noetl.gateway.person import Person

    Wire = Callable[[bytes, str], bytes]
    """A notification and the id of its event, as a transport sends them."""

MOST_MESSAGES: Final = 1000
MOST_BYTES: Final = 4 * 1024 * 1024
CHUNK: Final = 64 * 1024
"""What is written at once; the rest waits where it is counted."""
PAGE: Final = 100
"""Messages of the log that are read at once."""
ROUND_IT: Final = 256
"""Most bytes that a transport puts around a message."""

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
TOO_BIG: Final = 1009
TRY_AGAIN: Final = 1013
BAD_FRAME: Final = 4400
NO_SESSION: Final = 4401
FORBIDDEN: Final = 4403
NO_INITIALIZE: Final = 4408
SUPERSEDED: Final = 4409
TOO_MANY: Final = 4429


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a stream ends, and what its client is told last."""

    reason: str
    code: int = GOING_AWAY
    frame: bytes | None = None
    retry_ms: int = 0
    """When the client is to come back; 0 leaves it to the client."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Whether what a client missed is there."""

    requested: str | None = None
    recovered: bool = False

    def told(self) -> dict[str, object]:
        """As the first message has it."""
        return {
            "requested": self.requested is not None,
            "recovered": self.recovered,
            "from": self.requested,
        }


@dataclass(slots=True, kw_only=True)
class Timing:
    """When something is to be done to a stream, in seconds of the clock that only grows."""

    ping_at: float
    comment_at: float
    look_at: float
    """When it is looked whether the client is still this one's, and the session still lasts."""
    ends_at: float
    expires_at: float | None = None
    is_warned: bool = False
    heard_at: float = 0.0


class Stream:
    """What one connection of a client is told, in order."""

    def __init__(  # noqa: PLR0913 - what it is made of, each given by somebody else
        self,
        *,
        person: Person,
        client_id: str,
        transport: str,
        epoch: str,
        log: ClientLog,
        wire: Wire,
        timing: Timing,
        metrics: GatewayMetrics,
    ) -> None:
        self.person = person
        self.client_id = client_id
        self.transport = transport
        self.epoch = epoch
        self.timing = timing
        self.recovery = Recovery()
        self.is_new = False
        """Nobody can know the client's id yet: nothing is kept for it."""
        self.is_lost = False
        """What the client missed is not in the log: its results are to be told again."""
        self.present = Present(session_id="", user_id="")
        self.revision = 0
        self.ears = AsyncExitStack()
        """Until it is closed, what comes live is heard."""
        self.ending: Ending | None = None
        self.writing_since: float | None = None
        """Since when a write does not come to its end."""
        self.abort: Callable[[], object] | None = None
        """Cuts the connection, whatever is still to be written."""
        self._log = log
        self._wire = wire
        self._metrics = metrics
        self._last = 0
        self._is_begun = False
        self._is_behind = False
        self._is_waiting = False
        self._queue: deque[bytes] = deque()
        self._bytes = 0
        self._room = (MOST_MESSAGES, MOST_BYTES)
        self.is_cut = False
        """The connection was taken away from a reader that took nothing."""
        self._waiter: asyncio.Future[None] | None = None
        self._is_empty = asyncio.Event()
        self._results: OrderedDict[int, str] = OrderedDict()
        """The requests whose results were told and not acknowledged, by sequence."""

    @property
    def generation(self) -> int:
        """Which connection of its client it is."""
        return self.present.generation

    @property
    def place(self) -> int:
        """The last message of the log that was queued."""
        return self._last

    @property
    def behind(self) -> tuple[int, int]:
        """Messages and bytes that are queued."""
        return len(self._queue), self._bytes

    def begin(self, seq: int, messages: Iterable[Logged], *, has_more: bool) -> None:
        """Go on behind a place of the log, with the first page of what came after it."""
        self._last = seq
        self._page(messages)
        self._is_begun = True
        self._is_behind = self._is_behind or has_more

    def hear(self, one: Logged) -> None:
        """A message of the log, live."""
        if one.seq <= self._last or self.ending is not None:
            return
        if not self._is_begun or self._is_behind or one.before > self._last:
            self.look()  # what came before the place was known is read again from there
        else:
            self._follow(one)

    def look(self) -> None:
        """The log may have more than was heard."""
        self._is_behind, self._is_waiting = True, False
        self._wake()

    @property
    def is_waiting(self) -> bool:
        """Whether the log could not be read: somebody is to say when it can."""
        return self._is_waiting

    def tell(self, frame: bytes) -> None:
        """A message that is not in the log."""
        self._count(frame)
        self.put(self._wire(frame, ""))

    def spare(self, frame: bytes) -> None:
        """A message that a reader may miss: who is far behind is not told."""
        if 2 * len(self._queue) < MOST_MESSAGES and 2 * self._bytes < MOST_BYTES:
            self.tell(frame)

    def put(self, data: bytes) -> None:
        """Bytes as they are sent; a reader that is too far behind loses its connection."""
        if self.ending is not None:
            return
        self._queue.append(data)
        self._bytes += len(data)
        if len(self._queue) > self._room[0] or self._bytes > self._room[1]:
            self.drop("slow_consumer")
        self._wake()

    def finish(self, ending: Ending) -> None:
        """End, when what is queued was sent; the first ending counts."""
        if self.ending is not None:
            return
        if ending.frame is not None:
            self.tell(ending.frame)
        if self.ending is None:
            self.ending = ending
        self._wake()

    def drop(self, reason: str) -> None:
        """End without what is queued: the log keeps it."""
        self._queue.clear()
        self._bytes = 0
        self._metrics.slow_consumer.inc(self.transport)
        self.ending = Ending(reason, TRY_AGAIN)
        self._wake()

    def cut(self) -> None:
        """Take the connection away from a reader that takes nothing."""
        if not self.is_cut:
            self.is_cut = True
            if self.ending is None:
                self.drop("stuck")
            if self.abort is not None:
                self.abort()

    async def next(self) -> list[bytes]:
        """What is to be written now; nothing when the stream has ended."""
        while True:
            if self._queue:
                return self._taken()
            self._room = (MOST_MESSAGES, MOST_BYTES)
            if self.ending is not None:
                return []
            if self._is_behind:
                await self._read()
                continue
            self._is_empty.set()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def taken(self, seq: int) -> None:
        """Come back when the reader has taken all up to a place of the log, and what is queued."""
        if self._last < seq:
            self.look()
        while self._last < seq or self._is_behind or self._queue:
            self._is_empty.clear()
            await self._is_empty.wait()

    def acknowledged(self, seq: int) -> list[str]:
        """The requests whose results the client has, as it says."""
        found = []
        while self._results and next(iter(self._results)) <= seq:
            found.append(self._results.popitem(last=False)[1])
        return found

    def was_told(self, seq: int) -> bool:
        """Whether a message that is not acknowledged yet is a result of this client."""
        return seq in self._results

    def has_told(self, request_id: str) -> bool:
        """Whether the result of a request is among what was told lately."""
        return request_id in self._results.values()

    def _taken(self) -> list[bytes]:
        """The first of what is queued, as much as is written at once."""
        taken, size = [], 0
        while self._queue and size < CHUNK:
            data = self._queue.popleft()
            size += len(data)
            taken.append(data)
        self._bytes -= size
        return taken

    async def _read(self) -> None:
        """Read what comes next in the log; what comes live meanwhile is found by the next look."""
        self._is_behind = False
        try:
            history = await self._log.after(self.client_id, self._last, PAGE)
            is_lost = not history.is_whole and await self._is_trimmed()
        except BusGone:
            self._is_waiting = True
            return
        if is_lost:
            # What is missing cannot be told here: the client comes back and is told so.
            self.drop("history_lost")
            return
        self._page(history.messages)
        if len(history.messages) >= PAGE:
            self._is_behind = True

    async def _is_trimmed(self) -> bool:
        """Whether the log has lost messages that this stream has not heard.

        It was heard up to its place a moment ago, so nothing of it is too old: there is only the
        limit of messages.
        """
        most = CLIENTS.max_msgs_per_subject
        return len((await self._log.after(self.client_id, self._last, most)).messages) >= most

    def _page(self, messages: Iterable[Logged]) -> None:
        """Queue what was read; it takes nothing from the room of what comes live."""
        fresh = [one for one in messages if one.seq > self._last]
        self._room = (
            self._room[0] + len(fresh),
            self._room[1] + sum(len(one.payload) + ROUND_IT for one in fresh),
        )
        for one in fresh:
            self._follow(one)

    def _follow(self, one: Logged) -> None:
        self._last = one.seq
        self._count(one.payload)
        request_id = frames.request_of(one.payload)
        if request_id:
            self._results[one.seq] = request_id
            if len(self._results) > MOST_MESSAGES:
                self._results.popitem(last=False)
        self.put(self._wire(one.payload, f"{self.epoch}-{one.seq}"))

    def _count(self, frame: bytes) -> None:
        self._metrics.messages_sent.inc(self.transport, frames.word_of(frames.kind_of(frame)))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
