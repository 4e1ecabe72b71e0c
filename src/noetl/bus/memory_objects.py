"""The messages of a store of objects, in the memory of this process; see `noetl.bus.objects`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.bus import streams, subjects

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
_ROLLUP: Final = "Nats-Rollup"


class MemoryObjects:
    """The messages of one store, by subject."""

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self._kept: dict[str, list[tuple[int, bytes]]] = {}
        self._seq = 0

    async def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> int | None:
        """Keep a message; its sequence, or none when a header expects another last one."""
        given, kept = headers or {}, self._kept.get(subject, [])
        expected = given.get(_EXPECTED)
        if expected is not None and int(expected) != (kept[-1][0] if kept else 0):
            return None
        self._seq += 1
        before = [] if _ROLLUP in given else kept
        self._kept[subject] = [*before, (self._seq, bytes(payload))]
        return self._seq

    async def last(self, subject: str) -> tuple[int, bytes] | None:
        """The newest message of a subject with its sequence."""
        kept = self._kept.get(subject)
        return kept[-1] if kept else None

    async def next(self, subject: str, seq: int) -> tuple[int, bytes] | None:
        """The first message of a subject from a sequence on."""
        return next((one for one in self._kept.get(subject, ()) if one[0] >= seq), None)

    async def copies(self) -> int:
        """As many as anybody may want: nothing here outlives the process."""
        return streams.MOST_COPIES

    async def subjects(self, pattern: str) -> list[str]:
        """The subjects with messages that fall under a pattern, in no order."""
        return [subject for subject in self._kept if subjects.matches(pattern, subject)]

    async def purge(self, subject: str) -> None:
        """Forget all messages of a subject."""
        self._kept.pop(subject, None)
