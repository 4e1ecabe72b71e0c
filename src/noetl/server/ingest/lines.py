"""Requests that wait for a commit: what concerns runs that were begun, and behind it new runs.

A batch takes few new runs, after all that was begun before: whoever asks for more than can be done
does not keep it from ending.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Literal

from noetl.edge.errors import PoolSaturated

if TYPE_CHECKING:
    from noetl.server.ingest.posts import Work

MOST_QUEUED: Final = 4_096
MOST_QUEUED_BYTES: Final = 64 * 1024 * 1024
MOST_STARTS_QUEUED: Final = 1_024
"""Requests for new runs; they are refused long before reports would be."""
MOST_TAKEN: Final = 512
MOST_TAKEN_BYTES: Final = 16 * 1024 * 1024
MOST_EVENTS: Final = 4_096
MOST_STARTS: Final = 64
"""Runs that a batch begins, unless one request asks for more."""


class Line:
    """Requests in the order in which they came."""

    def __init__(self, most: int, most_weight: int) -> None:
        self.most = most
        """Requests that may wait."""
        self.most_weight = most_weight
        """After how many events a batch takes no more of it."""
        self.works: deque[Work] = deque()


class Lines:
    """Both lines."""

    def __init__(self) -> None:
        self._begun = Line(MOST_QUEUED, MOST_EVENTS)
        self._new = Line(MOST_STARTS_QUEUED, MOST_STARTS)
        self._bytes = 0

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._begun.works) + len(self._new.works)

    @property
    def pressure(self) -> Literal["ok", "slow", "stop"]:
        """How full the line of the reports is, as workers are told."""
        queued = len(self._begun.works)
        if queued < MOST_QUEUED // 2:
            return "ok"
        return "slow" if queued < MOST_QUEUED * 9 // 10 else "stop"

    def add(self, work: Work) -> None:
        """Let a request wait, if there is room for it."""
        line = self._new if any(post.gives_way for post in work.posts) else self._begun
        if len(line.works) >= line.most:
            raise PoolSaturated(f"{line.most} requests are queued", hint="try again")
        if self._bytes and self._bytes + work.size > MOST_QUEUED_BYTES:
            raise PoolSaturated(f"{self._bytes} bytes are queued", hint="try again")
        line.works.append(work)
        self._bytes += work.size

    def look(self, work: Work) -> None:
        """Let a request that only asks for work be looked at again."""
        if work not in self._begun.works:
            self._begun.works.append(work)

    def taken(self) -> list[Work]:
        """What a batch is made of."""
        works: list[Work] = []
        size = 0
        for line in (self._begun, self._new):
            weight = 0
            while line.works and len(works) < MOST_TAKEN and weight < line.most_weight:
                if works and size + line.works[0].size > MOST_TAKEN_BYTES:
                    break
                work = line.works.popleft()
                weight += sum(post.weight for post in work.posts)
                size += work.size
                works.append(work)
        self._bytes -= size
        return works

    def emptied(self) -> list[Work]:
        """All that wait, for the end of the server."""
        works = [*self._begun.works, *self._new.works]
        self._begun.works.clear()
        self._new.works.clear()
        self._bytes = 0
        return works
