"""One run within a batch: events are recorded and folded, decisions follow, nothing is written yet.

A post is a generator over the state: each event that it yields is folded before it goes on, so one
post may judge many reports. It is run again from the start when the commit lost a race.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.engine import events as ev
from noetl.engine.decide import Need, decide
from noetl.engine.fold import fold
from noetl.errors import NoetlError
from noetl.ids import random_key
from noetl.server.signals import Stop

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.engine.state import Command, State
    from noetl.ids import Ids
    from noetl.server.ingest.cache import Entry
    from noetl.server.ingest.large import Large
    from noetl.server.ingest.posts import Post, Stamped
    from noetl.server.metrics import ServerMetrics
    from noetl.store.base import EventLog

MOST_DECISIONS: Final = 10_000
MOST_DEFECTS: Final = 3
DECISIONS_AT_A_STRETCH: Final = 512
_log: Final = logging.getLogger(__name__)

# What the turn itself must know of an event, before the fold and after it.
_CLOSES, _ENDS, _LOSES, _FREES, _RESUMES, _PARKS = range(6)
_ROLES: Final[dict[type[ev.Event], int]] = {
    ev.CommandCompleted: _CLOSES,
    ev.CommandFailed: _CLOSES,
    ev.CommandCancelled: _CLOSES,
    ev.PlaybookCompleted: _ENDS,
    ev.PlaybookFailed: _ENDS,
    ev.PlaybookCancelled: _ENDS,
    ev.CommandLost: _LOSES,
    ev.CommandIssued: _FREES,
    ev.CommandResumed: _FREES,
    ev.ExecutionResumed: _RESUMES,
    ev.CommandParked: _PARKS,
}


@dataclass(slots=True, kw_only=True)
class Tools:
    """What turns are made with."""

    ids: Ids
    log: EventLog
    large: Large
    clock: Clock
    metrics: ServerMetrics


@dataclass(slots=True, eq=False)
class Turn:
    """What one batch does to one run."""

    entry: Entry
    now: str
    tools: Tools
    expected_seq: int
    recorded: list[ev.Recorded] = field(default_factory=list)
    closed: dict[str, Command] = field(default_factory=dict)
    fresh: dict[str, str | None] = field(default_factory=dict)
    """Commands that became claimable, and the post that caused it."""
    stopped: list[Stop] = field(default_factory=list)
    """What a worker holds for nothing now."""
    posts: list[Post] = field(default_factory=list)
    posted: dict[str, ev.Recorded] = field(default_factory=dict)
    """Events of this turn that came with an id of their own."""
    has_lost: bool = False
    """A commit of these posts lost: perhaps one of their ids is stored already."""
    dedup: tuple[str, str, str] | None = None
    dedup_digest: str = ""
    replay: tuple[str, str, str] | None = None
    decisions: int = 0
    cause: str | None = None
    spares_children: bool = False
    is_unfinished: bool = False
    is_defective: bool = False
    decided_s: float = 0.0
    """How long the decisions of the last post took."""

    @property
    def state(self) -> State:
        """The state after what was recorded so far."""
        return self.entry.state

    async def apply(self, post: Post) -> None:
        """Run a post: record what it yields and decide after each event."""
        began, self.decided_s = self.tools.clock.monotonic(), 0.0
        await self._apply(post)
        took = self.tools.clock.monotonic() - began
        self.tools.metrics.engine_decide.observe(self.decided_s)
        self.tools.metrics.engine_fold.observe(took - self.decided_s)

    async def _apply(self, post: Post) -> None:
        self.posts.append(post)
        post.error = None
        self.has_lost = self.has_lost or post.losses > 0
        issued = len(self.fresh)
        is_settled = False
        try:
            for stamped in post.make(self.state):
                await self._take(stamped)
                if stamped.is_new and not stamped.has_more:
                    await self.settle()
                    is_settled = True
        except NoetlError as refusal:
            post.error = refusal
        if not is_settled:
            await self.settle()
        post.generated = len(self.fresh) - issued
        self.spares_children = self.spares_children or post.spares_children
        if post.dedup is not None:
            self.dedup, self.dedup_digest = post.dedup, post.dedup_digest
        self.replay = post.replay or self.replay

    async def _take(self, stamped: Stamped) -> None:
        if stamped.event_id is not None:
            found = self.posted.get(stamped.event_id)
            if found is None and (stamped.unless_stored or self.has_lost):
                found = await self.tools.log.find(self.state.execution_id, stamped.event_id)
            if found is not None:
                stamped.recorded, stamped.is_new = found, False
                return
        event = stamped.event
        if not self.tools.large.fits(event):
            event = await self.tools.large.externalised(self.state.execution_id, event)
        stamped.recorded = self.record(
            event, stamped.event_id, stamped.parent_event_id, stamped.event_time
        )
        self.cause = stamped.recorded.event_id
        if stamped.event_id is not None:
            self.posted[stamped.event_id] = stamped.recorded

    def record(
        self,
        event: ev.Event,
        event_id: str | None = None,
        parent_event_id: str | None = None,
        event_time: str | None = None,
    ) -> ev.Recorded:
        """Stamp and fold one event."""
        state = self.entry.state
        role = _ROLES.get(type(event))
        if role is not None:
            event = self._before(role, event, state)
        recorded = ev.Recorded(
            execution_id=state.execution_id or getattr(event, "execution_id", ""),
            seq=state.seq + 1,
            event_id=event_id or self.tools.ids.new(),
            prev_event_id=state.last_event_id,
            created_at=self.now,
            event=event,  # type: ignore[arg-type]  # the union is closed
            parent_event_id=parent_event_id,
            event_time=event_time,
        )
        fold(state, recorded)
        if role is not None:
            self._after(role, event, state)
        self.recorded.append(recorded)
        return recorded

    def _before(self, role: int, event: Any, state: State) -> ev.Event:  # noqa: ANN401 - an event of that role
        """Keep what the fold is about to forget, and mint what only the host can."""
        if role in {_CLOSES, _LOSES}:
            command = state.commands.get(event.command_key)
            if command is not None:
                if role == _CLOSES:
                    self.closed[event.command_key] = command
                if role == _LOSES or isinstance(event, ev.CommandCancelled):
                    self._stop(command, is_over=role != _LOSES)
        elif role == _ENDS:
            for command in state.commands.values():
                self._stop(command)
        elif role == _PARKS and event.reason == "callback":
            event = msgspec.structs.replace(event, callback_key=random_key())
        made: ev.Event = event
        return made

    def _after(self, role: int, event: Any, state: State) -> None:  # noqa: ANN401 - an event of that role
        """Note what has become claimable."""
        if role in {_FREES, _LOSES}:
            command = state.commands.get(event.command_key)
            if command is not None and command.status == "PENDING" and command.pool is not None:
                self.fresh[event.command_key] = self.cause
        elif role == _RESUMES:
            for key, command in state.commands.items():
                if command.status == "PENDING" and command.pool is not None:
                    self.fresh[key] = self.cause

    def _stop(self, command: Command, *, is_over: bool = True) -> None:
        """Note who holds which attempt, before the fold forgets it."""
        worker_id, pool = command.worker_id, command.pool or ""
        if worker_id is not None and command.status in {"CLAIMED", "RUNNING"}:
            stop = Stop(worker_id, pool, command.id, command.attempt, is_over)
            self.stopped.append(stop)

    async def settle(self) -> None:
        """Decide until nothing follows, or until the turn has done its share."""
        if self.is_defective:
            return
        began = self.tools.clock.monotonic()
        await self._settle()
        self.decided_s += self.tools.clock.monotonic() - began

    async def _settle(self) -> None:
        large, execution_id, stretch = self.tools.large, self.state.execution_id, 0
        while self.decisions < MOST_DECISIONS:
            decided = await self._next()
            if not decided:
                return
            self.decisions += len(decided)
            # First all values are stored: a decision is recorded as a whole or not at all.
            small = [
                event if large.fits(event) else await large.externalised(execution_id, event)
                for event in decided
            ]
            for event in small:
                self.record(event, parent_event_id=self.cause)
                self.tools.metrics.engine_decisions.inc(event.__struct_config__.tag)  # type: ignore[arg-type]  # every event has one
            stretch += len(decided)
            if stretch > DECISIONS_AT_A_STRETCH:
                stretch = 0
                await asyncio.sleep(0)  # beats and readers need the loop, too
        self.is_unfinished = True

    async def _next(self) -> list[ev.Event]:
        """The next decision, with the objects that it reads; none when nothing follows."""
        resolved: dict[str, Any] = {}
        while True:
            try:
                decided = decide(self.state, resolved)
            except Exception as defect:  # noqa: BLE001 - a defect of the engine is isolated and recorded
                self._stumble(defect)
                return []
            if not isinstance(decided, Need):
                if not decided:
                    self.entry.defects = 0
                return decided
            resolved.update(await self.tools.large.loaded(decided.refs))

    def _stumble(self, defect: Exception) -> None:
        """Record a defect; the third equal one in a row ends the run."""
        entry = self.entry
        message = f"{type(defect).__name__}: {defect}"
        entry.defects = entry.defects + 1 if message == entry.defect else 1
        entry.defect = message
        self.is_defective = True
        about = {"execution_id": self.state.execution_id}
        _log.error("the engine has failed", exc_info=defect, extra=about)
        self.record(ev.EngineFailed(message=message), parent_event_id=self.cause)
        if entry.defects >= MOST_DEFECTS:
            self._fail("internal", "engine_error", message)

    def _fail(self, kind: str, code: str, message: str) -> None:
        """End the run: nothing that follows can be decided."""
        error = ev.Error(kind=kind, code=code, message=message)
        self.record(ev.PlaybookFailed(error=error), parent_event_id=self.cause)
