"""Every write to a run: queued requests become one commit, and each gets its answer.

One task owns all states. While it commits, requests queue up; the next turn takes them together, so
the size of a batch follows the load. What loses a race is decided again from the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Literal

from noetl.clock import rfc3339
from noetl.edge.errors import Draining, RaceLost, UnknownExecution
from noetl.edge.moments import from_now
from noetl.engine.events import EngineFailed, Error, PlaybookFailed
from noetl.errors import NoetlError
from noetl.server.ingest.cache import EVENT_BYTES, begun
from noetl.server.ingest.floods import Floods
from noetl.server.ingest.handout import Batch
from noetl.server.ingest.lines import Lines
from noetl.server.ingest.posts import Post, Stamped, Work
from noetl.server.ingest.turn import MOST_DEFECTS, Turn
from noetl.server.signals import sleep_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractAsyncContextManager

    from noetl.clock import Clock
    from noetl.engine.state import State
    from noetl.server.ingest.cache import Cache, Entry
    from noetl.server.ingest.handout import HandOut
    from noetl.server.ingest.posts import Ask
    from noetl.server.ingest.turn import Tools
    from noetl.server.ingest.writing import Writer
    from noetl.server.signals import Signals
    from noetl.store.base import Change, Commit, Store

EVENTS_AT_A_STRETCH: Final = 512
MOST_LOSSES: Final = 8
RETRY_DEFECT_S: Final = 30.0
RETRY_S: Final = 1.0
"""After which a run is looked at again whose commit failed and for which nobody asks."""
_log: Final = logging.getLogger(__name__)


class Ingest:
    """The queue, and the task that empties it."""

    def __init__(  # noqa: PLR0913 - the parts it is made from
        self,
        store: Store,
        cache: Cache,
        tools: Tools,
        clock: Clock,
        *,
        handout: HandOut,
        signals: Signals,
        writer: Writer,
    ) -> None:
        self._writer = writer
        self._store = store
        self._cache = cache
        self._tools = tools
        self._clock = clock
        self._handout = handout
        self._signals = signals
        self._floods = Floods(clock, handout.pending.count)
        self._lines = Lines(self._floods)
        self._busy_since: float | None = None
        self._again: deque[Post] = deque()
        self._unlucky: deque[Post] = deque()
        """Posts that have lost too many races."""
        self._stumbles: dict[str, tuple[str, int]] = {}
        """Runs whose last post met a defect: which one, and how often in a row."""
        self._wake = asyncio.Event()
        self._is_draining = False

    # ------------------------------------------------------------------------ requests

    async def post(self, post: Post) -> Post:
        """Append one post; its refusal is raised."""
        await self.submit((post,))
        if post.error is not None:
            raise post.error
        return post

    async def submit(
        self,
        posts: Iterable[Post] = (),
        ask: Ask | None = None,
        wait_s: float = 0.0,
        size: int = 0,
    ) -> None:
        """Append posts and claim for a request; errors stand in the posts."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work = Work(tuple(posts), done, ask, size=size, at=self._clock.monotonic())
        self._enqueue(work)
        if ask is None or wait_s <= 0:
            await done
            return
        ask.waits, ask.work = True, work
        try:
            async with asyncio.timeout(wait_s):
                await asyncio.shield(done)
        except TimeoutError:
            self._handout.close(ask)
            if ask.given:  # a commit is under way and decides
                await done
        finally:
            self._handout.close(ask)
            done.cancel()  # whoever left is not answered

    @property
    def pressure(self) -> Literal["ok", "slow", "stop"]:
        """How full the queue is, as workers are told."""
        return self._lines.pressure

    @property
    def hangs_s(self) -> float:
        """How long the batch takes that is under way; nothing else is stored meanwhile."""
        return 0.0 if self._busy_since is None else self._clock.monotonic() - self._busy_since

    def lease_until(self) -> str:
        """The end of a lease that begins now."""
        return from_now(self._clock, self._handout.lease_s)

    def nudge(self, execution_id: str) -> None:
        """Decide again, without a new event."""
        self._again.append(Post(execution_id, _nothing))
        self._wake.set()

    def look(self) -> None:
        """Ask the store again for the requests that wait: another server may have work for them."""
        waiting = {ask.pool: ask.work for ask in self._handout.parked() if ask.work is not None}
        for work in waiting.values():
            if not work.posts:
                self._lines.look(work)
        if waiting:
            self._wake.set()

    def _enqueue(self, work: Work) -> None:
        if self._is_draining:
            raise Draining("the server is stopping")
        self._lines.add(work)
        work.open = len(work.posts)
        for post in work.posts:
            post.work = work
        self._wake.set()

    # ------------------------------------------------------------------------ the task

    async def run(self) -> None:
        """Take what is queued, commit it, answer; until cancelled."""
        try:
            while True:
                await self._woken()
                while self._is_due():
                    await self._batch()
                    while self._unlucky:
                        await self._alone(self._unlucky.popleft())
                    await asyncio.sleep(0)  # let those who were answered queue their next request
        finally:
            self._drain()

    async def _woken(self) -> None:
        """Wait for a request, or until one that gives way has waited long enough."""
        wait_s = self._lines.wait_s
        if wait_s is None:
            await self._wake.wait()
        else:
            await sleep_until(self._wake, wait_s)
        self._wake.clear()

    def _is_due(self) -> bool:
        return bool(self._again or self._unlucky) or self._lines.wait_s == 0

    def _drain(self) -> None:
        self._is_draining = True
        for work in self._lines.emptied():
            work.refuse(work.left, Draining("the server is stopping"))
        for post in (*self._again, *self._unlucky):
            if post.work is not None:
                post.work.refuse((post,), Draining("the server is stopping"))
        for ask in list(self._handout.parked()):
            self._handout.close(ask)
            if ask.work is not None:
                ask.work.answer()

    async def _batch(self) -> None:
        """One commit of what is queued."""
        self._writer.metrics.ingest_queue_depth.set(len(self._lines))
        taken = self._lines.taken()
        again, self._again = self._again, deque()
        began = self._clock.monotonic()
        await self._done(taken.works, [*again, *taken.posts])
        if taken.is_flood:
            self._floods.took(self._clock.monotonic() - began)

    async def _alone(self, post: Post) -> None:
        """Write a post that has lost too often, while nobody else may write to its run.

        Its request gets no work with it: the runs of that work are not held.
        """
        await self._done([], [post], self._store.log.holding(post.execution_id))

    async def _done(
        self,
        works: list[Work],
        posts: list[Post],
        holding: AbstractAsyncContextManager[Commit] | None = None,
    ) -> None:
        """Fill a batch, commit it, answer; what fails is the answer of its requests."""
        moment = self._clock.now()
        self._busy_since = self._clock.monotonic()
        batch = Batch(moment, rfc3339(moment), self._opened)
        began = self._writer.begin(works)
        unjudged = posts
        try:
            if holding is None:
                await self._fill(batch, posts)
                await self._hand_out(batch, works, posts)
                changes = self._changes(batch)
                self._writer.filled(began)
                lost = await self._writer.write(changes, self._store.log.commit)
            else:
                async with holding as commit:
                    self._cache.drop(posts[0].execution_id)
                    await self._fill(batch, posts)
                    changes = self._changes(batch)
                    lost = await self._writer.write(changes, commit)
            await self._conclude(batch, changes, lost)
            self._finish(batch, works, posts)
            unjudged = []
            self._writer.dispatched(batch)
            if self._writer.spans is not None:
                self._writer.spans.committed(batch, lost, began)
            self._lines.pace.took(len(posts), self.hangs_s)
            await self._tell([item for key, item in changes.items() if key not in lost])
        except asyncio.CancelledError:
            self._refuse(works, unjudged, Draining("the server is stopping"))
            raise
        except Exception as fault:  # noqa: BLE001 - a failed commit is the answer of its requests
            self._undo(batch, works, unjudged, fault)
        finally:
            self._busy_since = None

    async def _fill(self, batch: Batch, posts: list[Post]) -> None:
        weight = 0
        for post in posts:
            weight += post.weight
            if weight > EVENTS_AT_A_STRETCH:
                weight = 0
                await asyncio.sleep(0)  # beats and readers need the loop, too
            try:
                turn = await self._turn_of(batch, post)
                if turn is not None:
                    await turn.apply(post)
                    if self._writer.spans is not None:
                        self._writer.spans.decided(turn)
            except Exception as defect:  # noqa: BLE001 - a defect in one run never fails its neighbours
                self._isolate(batch, post, defect)

    async def _hand_out(self, batch: Batch, works: list[Work], posts: list[Post]) -> None:
        asks = {work.ask: None for work in works if work.ask is not None}
        asks |= {post.work.ask: None for post in posts if post.work and post.work.ask}
        batch.asks = list(asks)
        await self._handout.run(batch)

    def _isolate(self, batch: Batch, post: Post, defect: Exception) -> None:
        """Take a run out of the batch: its other posts are tried again, this one has failed."""
        turn = batch.turns.pop(post.execution_id, None)
        self._cache.drop(post.execution_id)
        post.error = defect
        may_pass = isinstance(defect, NoetlError) and defect.retryable
        if post.work is None:  # nobody is told who could try again, or tell of it
            if may_pass:
                self._nudge_later(post.execution_id)
            else:
                about = {"execution_id": post.execution_id}
                _log.error("a post has failed", exc_info=defect, extra=about)
        for ask in batch.served:
            ask.take_back(post.execution_id)
        if turn is None:
            return
        self._again.extend(other for other in turn.posts if other is not post)
        if turn.expected_seq and post.work is not None and not may_pass:
            self._again.append(self._stumbled(post.execution_id, defect))

    def _stumbled(self, execution_id: str, defect: Exception) -> Post:
        """A post that records a defect; the third equal one in a row ends the run."""
        message = f"{type(defect).__name__}: {defect}"
        before, count = self._stumbles.get(execution_id, ("", 0))
        count = count + 1 if before == message else 1
        self._stumbles[execution_id] = (message, count)
        return Post(execution_id, _recording(message, is_last=count >= MOST_DEFECTS))

    def _went_well(self, execution_id: str, turn: Turn) -> None:
        if self._stumbles and not isinstance(turn.recorded[-1].event, EngineFailed):
            self._stumbles.pop(execution_id, None)

    def _nudge_later(self, execution_id: str) -> None:
        asyncio.get_running_loop().call_later(RETRY_DEFECT_S, self.nudge, execution_id)

    async def _turn_of(self, batch: Batch, post: Post) -> Turn | None:
        turn = batch.turns.get(post.execution_id)
        if turn is not None:
            return turn
        if post.program is not None:
            return self._turn(batch, post.execution_id, begun(post.program))
        try:
            return self._turn(batch, post.execution_id, await self._cache.get(post.execution_id))
        except NoetlError as unknown:
            post.error = unknown
            return None

    def _turn(self, batch: Batch, execution_id: str, entry: Entry) -> Turn:
        turn = Turn(entry, batch.now, self._tools, entry.state.seq)
        batch.turns[execution_id] = turn
        return turn

    async def _opened(self, batch: Batch, execution_id: str) -> Turn | None:
        try:
            return self._turn(batch, execution_id, await self._cache.get(execution_id))
        except UnknownExecution:
            return None

    # ------------------------------------------------------------------------ commit

    async def _conclude(
        self, batch: Batch, changes: dict[str, Change], lost: frozenset[str]
    ) -> None:
        """Keep the states of those who won; the others try again."""
        for execution_id, turn in batch.turns.items():
            if execution_id in lost or await self._writer.is_stale(execution_id, turn):
                self._lose(batch, execution_id, turn)
            elif turn.recorded:
                self._win(execution_id, turn, changes[execution_id])

    async def _tell(self, won: list[Change]) -> None:
        """Tell those who look on, once the answers are on their way.

        One turn of the loop makes them, the next one sends them.
        """
        if won:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self._writer.tell(won)

    def _changes(self, batch: Batch) -> dict[str, Change]:
        made: dict[str, Change] = {}
        for execution_id, turn in list(batch.turns.items()):
            if not turn.recorded:
                continue
            try:
                made[execution_id] = self._writer.change(turn)
            except Exception as defect:
                if not turn.posts:
                    raise
                self._isolate(batch, turn.posts[-1], defect)
        return made

    def _win(self, execution_id: str, turn: Turn, written: Change) -> None:
        entry = turn.entry
        if entry.row is not None and entry.row.status == "PAUSED":
            self._signals.timers.set()
        entry.row = written.execution
        if turn.expected_seq == 0:
            self._cache.put(entry)
        self._cache.grew(entry, _told_bytes(turn))
        if entry.state.terminal is not None:
            self._cache.retire(execution_id)
        if turn.is_unfinished:
            self.nudge(execution_id)
        if turn.is_defective and entry.state.terminal is None:
            self._nudge_later(execution_id)
        self._went_well(execution_id, turn)
        for stop in turn.stopped:
            self._signals.stop(stop)
        for hint in self._handout.queued(turn, written):
            self._signals.hint(hint)

    def _lose(self, batch: Batch, execution_id: str, turn: Turn) -> None:
        self._cache.drop(execution_id)
        self._handout.pending.doubt()
        for ask in batch.served:
            ask.take_back(execution_id)
        for ask in batch.asks:
            ask.has_lost = ask.has_lost or ask.slots > 0
        for post in turn.posts:
            post.losses += 1
            if post.program is not None:
                post.error = RaceLost("another server was faster", hint="try again")
            elif post.losses % MOST_LOSSES:
                self._again.append(post)
            else:
                self._unlucky.append(post)
        if self._again or self._unlucky:
            self._wake.set()

    def _finish(self, batch: Batch, works: list[Work], posts: list[Post]) -> None:
        waiting = {id(post) for post in (*self._again, *self._unlucky)}
        for post in posts:
            if post.work is not None and id(post) not in waiting:
                post.work.open -= 1
        concerned = {id(work): work for work in works}
        for post in posts:
            if post.work is not None:
                concerned[id(post.work)] = post.work
        for ask in batch.served:
            if ask.work is not None:
                concerned[id(ask.work)] = ask.work
        for work in concerned.values():
            if work.open == 0 and not work.done.done():
                self._settle(work)

    def _settle(self, work: Work) -> None:
        """Answer a request, or let it wait for work of its pool."""
        ask = work.ask
        if ask is not None and ask.waits and not ask.given and not ask.is_closed:
            self._handout.park(ask)
            if ask.has_lost:
                ask.has_lost = False
                self._lines.look(work)
                self._wake.set()
            return
        if ask is not None:
            self._handout.close(ask)
            if ask.given:
                route = "parked" if ask.waits else "reply"
                self._writer.metrics.command_publish.inc(route, ask.pool, by=len(ask.given))
        self._writer.answered(work.at)
        work.answer()

    def _undo(self, batch: Batch, works: list[Work], posts: list[Post], fault: Exception) -> None:
        """A commit that failed: no state is trusted, nobody is answered with success."""
        self._handout.pending.doubt()
        for execution_id in batch.turns:
            self._cache.drop(execution_id)
            for ask in batch.served:
                ask.take_back(execution_id)
        for ask in batch.served:
            if ask.is_closed and ask.work is not None:
                ask.work.fail(fault)
        self._refuse(works, posts, fault)
        may_pass = isinstance(fault, NoetlError) and fault.retryable
        for post in posts:
            if post.work is None and may_pass:
                asyncio.get_running_loop().call_later(RETRY_S, self.nudge, post.execution_id)

    def _refuse(self, works: list[Work], posts: list[Post], fault: Exception) -> None:
        """Fail the requests of a batch; of one that is taken in slices only what was in it."""
        waiting = {id(post) for post in (*self._again, *self._unlucky)}
        slices: dict[int, tuple[Work, list[Post]]] = {id(work): (work, []) for work in works}
        for post in posts:
            if post.work is not None:
                part = slices.setdefault(id(post.work), (post.work, []))[1]
                part += () if id(post) in waiting else (post,)
        for work, part in slices.values():
            work.refuse(part, fault)


def _told_bytes(turn: Turn) -> int:
    """What a state may have grown by: its events, and what its requests brought."""
    brought = sum(post.work.size // len(post.work.posts) for post in turn.posts if post.work)
    return len(turn.recorded) * EVENT_BYTES + brought


def _recording(message: str, *, is_last: bool) -> Callable[[State], Iterator[Stamped]]:
    def make(state: State) -> Iterator[Stamped]:
        yield Stamped(EngineFailed(message=message), has_more=is_last)
        if is_last and state.terminal is None:
            error = Error(kind="internal", code="engine_error", message=message)
            yield Stamped(PlaybookFailed(error=error))

    return make


def _nothing(_state: State) -> Iterator[Stamped]:
    return iter(())
