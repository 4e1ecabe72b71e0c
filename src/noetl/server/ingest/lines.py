"""Requests that wait for a commit: what concerns runs that were begun, and behind it new runs.

A batch takes few new runs, after all that was begun before: whoever asks for more than can be done
does not keep it from ending. A request for many runs is taken in slices, one with each batch, so
that neither reports nor requests for a single run wait for more than a slice of it. While several
pools work, what is for flooded ones goes in batches of its own, when the others have had theirs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from noetl.edge.errors import PoolSaturated
from noetl.server.ingest.pace import MOST_STARTS, Pace

if TYPE_CHECKING:
    from noetl.server.ingest.floods import Floods
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
    is_flood: bool = False
    """It is for flooded pools alone, while others work."""

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more are not too many; something is always taken."""
        return not self.works or self.size + size <= MOST_TAKEN_BYTES


class Lines:
    """All lines: of what was begun, of requests for few runs, of flooded pools, and for many."""

    def __init__(self, floods: Floods) -> None:
        self.pace = Pace()
        self._floods = floods
        self._begun = Line(MOST_QUEUED, MOST_EVENTS)
        self._few = Line(MOST_STARTS_QUEUED, MOST_STARTS)
        self._flooded = Line(MOST_QUEUED, MOST_EVENTS)
        self._many = Line(MOST_STARTS_QUEUED, MOST_STARTS)
        self._all = (self._begun, self._few, self._flooded, self._many)
        self._bytes = 0

    def __len__(self) -> int:
        """How many requests wait."""
        return sum(len(line.works) for line in self._all)

    @property
    def pressure(self) -> Literal["ok", "slow", "stop"]:
        """How full the lines of the reports are, as workers are told."""
        queued = len(self._begun.works) + len(self._flooded.works)
        if queued < MOST_QUEUED // 2:
            return "ok"
        return "slow" if queued < MOST_QUEUED * 9 // 10 else "stop"

    @property
    def wait_s(self) -> float | None:
        """How long until the next batch, 0 when it is due; none without any request."""
        if self._begun.works or self._few.works:
            return 0.0
        if self._flooded.works:
            return self._floods.wait_s(self._flooded.works[0].at)
        return self._floods.wait_s() if self._many.works else None

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
        gives_way = any(post.gives_way for post in work.posts)
        if gives_way and len(work.posts) > FEW:
            self._floods.pour({post.pool for post in work.posts if post.pool})
            return self._many
        if self._floods.covers(work):
            return self._flooded
        return self._few if gives_way else self._begun

    def look(self, work: Work) -> None:
        """Let a request that only asks for work be looked at again."""
        if work not in self._begun.works and work not in self._flooded.works:
            self._begun.works.append(work)

    def taken(self) -> Taken:
        """What the next batch is made of."""
        taken = Taken()
        for line in (self._begun, self._few):
            self._whole(line, taken, line.most_weight)
        if not self._floods.others_work:
            self._whole(self._flooded, taken, MOST_EVENTS)
            self._slice(taken, self.pace.starts)
        elif self.wait_s == 0 and not taken.works:
            taken.is_flood = True
            room = self.pace.piece
            self._whole(self._flooded, taken, room)
            self._slice(taken, room - len(taken.posts))
        return taken

    def _whole(self, line: Line, taken: Taken, most_weight: int) -> None:
        weight = 0
        while line.works and len(taken.works) < MOST_TAKEN and weight < most_weight:
            if not taken.has_room(line.works[0].size):
                return
            work = line.works.popleft()
            weight += sum(post.weight for post in work.posts)
            taken.works.append(work)
            taken.posts += work.posts
            taken.size += work.size
            self._bytes -= work.size

    def _slice(self, taken: Taken, room: int) -> None:
        """Take the next runs of requests for many; what is left of one stays in front."""
        works = self._many.works
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
        works = [work for line in self._all for work in line.works]
        for line in self._all:
            line.works.clear()
        self._bytes = 0
        return works
