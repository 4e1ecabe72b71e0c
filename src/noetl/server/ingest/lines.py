"""Requests that wait for a commit: what concerns runs that were begun, and behind it new runs.

A batch takes few new runs, after all that was begun before: whoever asks for more than can be done
does not keep it from ending. A request for many runs is taken in slices, one with each batch, so
that neither reports nor requests for a single run wait for more than a slice of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from noetl.edge.errors import PoolSaturated
from noetl.server.ingest.pace import MOST_STARTS, Pace

if TYPE_CHECKING:
    from noetl.server.ingest.posts import Post, Work

MOST_QUEUED: Final = 4_096
MOST_QUEUED_BYTES: Final = 64 * 1024 * 1024
MOST_STARTS_QUEUED: Final = 1_024
"""Requests for new runs; they are refused long before reports would be."""
MOST_TAKEN: Final = 512
MOST_TAKEN_BYTES: Final = 16 * 1024 * 1024
MOST_EVENTS: Final = 4_096
FEW: Final = 8
"""Runs of a request that is never taken in slices."""


class Line:
    """Requests in the order in which they came."""

    def __init__(self, most: int, most_weight: int) -> None:
        self.most = most
        """Requests that may wait."""
        self.most_weight = most_weight
        """After how many events a batch takes no more of it."""
        self.works: deque[Work] = deque()


@dataclass(slots=True)
class Taken:
    """What a batch is made of."""

    works: list[Work] = field(default_factory=list)
    """Requests that were taken, or begun to be."""
    posts: list[Post] = field(default_factory=list)
    size: int = 0

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more are not too many; something is always taken."""
        return not self.works or self.size + size <= MOST_TAKEN_BYTES


class Lines:
    """All lines: of what was begun, of requests for few runs, and of those for many."""

    def __init__(self) -> None:
        self.pace = Pace()
        self._begun = Line(MOST_QUEUED, MOST_EVENTS)
        self._few = Line(MOST_STARTS_QUEUED, MOST_STARTS)
        self._many = Line(MOST_STARTS_QUEUED, MOST_STARTS)
        self._bytes = 0

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._begun.works) + len(self._few.works) + len(self._many.works)

    @property
    def pressure(self) -> Literal["ok", "slow", "stop"]:
        """How full the line of the reports is, as workers are told."""
        queued = len(self._begun.works)
        if queued < MOST_QUEUED // 2:
            return "ok"
        return "slow" if queued < MOST_QUEUED * 9 // 10 else "stop"

    def add(self, work: Work) -> None:
        """Let a request wait, if there is room for it."""
        line = self._of(work)
        if len(line.works) >= line.most:
            raise PoolSaturated(f"{line.most} requests are queued", hint="try again")
        if self._bytes and self._bytes + work.size > MOST_QUEUED_BYTES:
            raise PoolSaturated(f"{self._bytes} bytes are queued", hint="try again")
        line.works.append(work)
        self._bytes += work.size

    def _of(self, work: Work) -> Line:
        if not any(post.gives_way for post in work.posts):
            return self._begun
        return self._few if len(work.posts) <= FEW else self._many

    def look(self, work: Work) -> None:
        """Let a request that only asks for work be looked at again."""
        if work not in self._begun.works:
            self._begun.works.append(work)

    def taken(self) -> Taken:
        """What the next batch is made of."""
        taken = Taken()
        for line in (self._begun, self._few):
            self._whole(line, taken)
        self._slice(taken)
        return taken

    def _whole(self, line: Line, taken: Taken) -> None:
        weight = 0
        while line.works and len(taken.works) < MOST_TAKEN and weight < line.most_weight:
            if not taken.has_room(line.works[0].size):
                return
            work = line.works.popleft()
            weight += sum(post.weight for post in work.posts)
            taken.works.append(work)
            taken.posts += work.posts
            taken.size += work.size
            self._bytes -= work.size

    def _slice(self, taken: Taken) -> None:
        """Take the next runs of requests for many; what is left of one stays in front."""
        works, room = self._many.works, self.pace.starts
        while works and room > 0:
            work = works[0]
            posts = work.posts[work.taken : work.taken + room]
            size = work.size * len(posts) // len(work.posts)
            if not taken.has_room(size):
                return
            if not work.taken:
                taken.works.append(work)
            work.taken += len(posts)
            room -= len(posts)
            taken.posts += posts
            taken.size += size
            if not work.left:
                works.popleft()
                self._bytes -= work.size

    def emptied(self) -> list[Work]:
        """All that wait, for the end of the server."""
        works = [*self._begun.works, *self._few.works, *self._many.works]
        for line in (self._begun, self._few, self._many):
            line.works.clear()
        self._bytes = 0
        return works
