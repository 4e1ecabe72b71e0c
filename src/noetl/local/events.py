"""The events of a listener without a server: one JSON line each, as the server would have it.

The file is appended to by one listener after the other, so that a subscription keeps its id and
the numbers of its events go on.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.clock import rfc3339
from noetl.engine import subscriptions as names
from noetl.engine.events import OF_SUBSCRIPTIONS, Recorded, SubscriptionEvent
from noetl.engine.rows import InvalidRow
from noetl.local.journal import LogUnwritable
from noetl.store.codec import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from noetl.api.events import Report
    from noetl.clock import Clock
    from noetl.ids import Ids

STDOUT: Final = "-"
RECEIVED: Final = "subscription.message.received"
_MODE: Final = 0o600
_OURS: Final = b'"subscription.'
_encode: Final = msgspec.json.Encoder().encode


class EventFile:
    """Where a listener tells what happens; the terminal when there is no file."""

    def __init__(
        self,
        file: Path | None,
        *,
        ids: Ids,
        clock: Clock,
        on_line: Callable[[bytes], None] | None = None,
    ) -> None:
        self._ids = ids
        self._clock = clock
        self._on_line = on_line
        self._file: int | None = None
        self.subscription_id = ids.new()
        self._seq = 0
        self._last: str | None = None
        self.counts: Counter[str] = Counter()
        """How often each kind of event was told by this listener."""
        if file is not None:
            self._open(file)

    @property
    def is_new(self) -> bool:
        """Whether nothing was told of this subscription before."""
        return self._seq == 0

    def tell(self, event_type: str, facts: dict[str, Any], **about: str) -> None:
        """An event of the subscription happened now."""
        event = OF_SUBSCRIPTIONS[event_type](facts=facts, about=about)
        self._append(event, self._ids.new(), rfc3339(self._clock.now()))

    async def post(self, events: Sequence[Report]) -> int:
        """Events of the subscription that happened a little earlier."""
        for event in events:
            kind = OF_SUBSCRIPTIONS[str(event.event_type)]
            made = kind(facts=event.payload or {})
            now = event.created_at or rfc3339(self._clock.now())
            self._append(made, str(event.event_id or self._ids.new()), now)
        return 0

    def row(self, row: Mapping[str, Any]) -> None:
        """An event of a run, as a server shows it."""
        self._write(_encode(row))

    def of_run(self, recorded: Recorded) -> None:
        """An event of a run."""
        self._write(encode(recorded))

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, event: SubscriptionEvent, event_id: str, created_at: str) -> None:
        recorded = Recorded(
            execution_id=self.subscription_id,
            seq=self._seq + 1,
            event_id=event_id,
            prev_event_id=self._last,
            created_at=created_at,
            event=event,
        )
        self._write(encode(recorded))
        self._seq, self._last = recorded.seq, event_id
        self.counts[str(event.__struct_config__.tag)] += 1

    def _write(self, line: bytes) -> None:
        if self._on_line is not None:
            self._on_line(line)
        data = line + b"\n"
        try:
            if self._file is None:
                if self._on_line is None:
                    sys.stdout.buffer.write(data)
                    sys.stdout.flush()
                return
            written = os.write(self._file, data)
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError as fault:
            raise LogUnwritable(
                f"the events cannot be written: {fault.strerror}", hint="is the disk full?"
            ) from fault

    def _open(self, file: Path) -> None:
        """Go on behind the last whole line."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(file, flags, _MODE)
            end = 0
            with file.open("rb") as lines:
                for line in lines:
                    if not line.endswith(b"\n"):
                        break
                    end += len(line)
                    if _OURS in line:
                        self._known(line)
            os.ftruncate(self._file, end)
        except OSError as fault:
            raise LogUnwritable(
                f"the events cannot be written to {file}: {fault.strerror}",
                hint="name another file with `--events`",
            ) from fault

    def _known(self, line: bytes) -> None:
        try:
            recorded = decode(line)
        except InvalidRow:
            return
        event = recorded.event
        tag = str(event.__struct_config__.tag)
        if isinstance(event, SubscriptionEvent) and tag not in names.OF_RUNS:
            self.subscription_id = recorded.execution_id
            self._seq, self._last = recorded.seq, recorded.event_id
