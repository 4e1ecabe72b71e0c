"""What a request brings to the ingest: events for runs, and free slots for commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Sequence

    from noetl.api.commands import Command as Body
    from noetl.engine import events as ev
    from noetl.engine.program import Program
    from noetl.engine.state import State


@dataclass(slots=True, eq=False)
class Stamped:
    """An event to append, with what its creator knows of it."""

    event: ev.Event
    event_id: str | None = None
    parent_event_id: str | None = None
    event_time: str | None = None
    unless_stored: bool = False
    """An event of that id may be stored already; then it is found and nothing is appended."""
    has_more: bool = False
    """The next event belongs to it: nothing is decided in between."""
    recorded: ev.Recorded | None = None
    """The row, once it was yielded."""
    is_new: bool = True


@dataclass(slots=True, eq=False)
class Post:
    """Events for one run, made against its state inside the batch."""

    execution_id: str
    make: Callable[[State], Iterator[Stamped]]
    program: Program | None = None
    """Of a run that is to begin."""
    dedup: tuple[str, str, str] | None = None
    dedup_digest: str = ""
    """What was asked for under the key."""
    replay: tuple[str, str, str] | None = None
    """A second key; the run begins only if both are free."""
    spares_children: bool = False
    weight: int = 1
    """How many events it brings."""
    gives_way: bool = False
    """What was begun before goes first: it begins a run that somebody asks for."""
    pool: str = ""
    """Of the run that it begins."""
    error: BaseException | None = None
    losses: int = 0
    generated: int = 0
    """Commands that followed from it."""
    work: Work | None = None


@dataclass(slots=True, eq=False)
class Work:
    """One request: its posts, the commands it asks for, and who waits for the answer."""

    posts: tuple[Post, ...]
    done: asyncio.Future[None]
    ask: Ask | None = None
    open: int = 0
    size: int = 0
    """Bytes of the request."""
    at: float = 0.0
    """When it came, by the monotonic clock."""
    taken: int = 0
    """How many of its posts batches have taken so far, when they are taken in slices."""

    @property
    def left(self) -> tuple[Post, ...]:
        """Posts that no batch has taken."""
        return self.posts[self.taken :]

    def answer(self) -> None:
        """All of it was judged."""
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, fault: BaseException) -> None:
        """Nothing of it was done."""
        if not self.done.done():
            self.done.set_exception(fault)

    def refuse(self, posts: Sequence[Post], fault: Exception) -> None:
        """Fail it; or these of its posts, when others of them were or will be judged apart."""
        if not self.taken:
            self.fail(fault)
            return
        for post in posts:
            post.error = fault
        self.open -= len(posts)
        if self.open == 0:
            self.answer()


@dataclass(slots=True, eq=False)
class Ask:
    """A worker has free slots."""

    worker_id: str
    pool: str
    slots: int
    exclude: frozenset[str] = frozenset()
    waits: bool = False
    is_repeat: bool = False
    """Reports of the request were stored before, so its answer was lost."""
    given: list[Body] = field(default_factory=list)
    is_closed: bool = False
    has_lost: bool = False
    """A commit that gave it something lost a race: there may still be work for it."""
    work: Work | None = None

    def wants(self, kind: str) -> bool:
        """Whether it can take one more of this kind."""
        return self.slots > 0 and not self.is_closed and kind not in self.exclude

    def take_back(self, execution_id: str) -> None:
        """Forget what was given of a run whose commit lost a race."""
        kept = [body for body in self.given if body.execution_id != execution_id]
        self.has_lost = self.has_lost or len(kept) < len(self.given)
        self.slots += len(self.given) - len(kept)
        self.given = kept
