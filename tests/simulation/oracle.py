"""What must hold of a world that has come to rest, whatever went wrong in it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from noetl.dsl.parse import read
from noetl.dsl.playbook import Playbook
from noetl.engine import events as ev
from noetl.engine.fold import fold
from noetl.engine.program import prepare
from noetl.engine.snapshot import dump
from noetl.engine.state import State
from noetl.engine.status import status_of
from noetl.store.base import Listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.engine.events import Recorded
    from noetl.store.base import ExecutionRow
    from tests.simulation.world import World

START = datetime(2026, 1, 1, tzinfo=UTC)
FAR = "9999-01-01T00:00:00.000000Z"
CLOSING = (ev.CommandCompleted, ev.CommandFailed, ev.CommandCancelled)
REPORTS = (ev.CallDone, ev.CallError, ev.CommandParked, ev.CommandStarted, ev.StepProgress)
# What comes from outside and may stand anywhere in the log.
OUTSIDE = (
    ev.CommandStarted, ev.StepProgress, ev.CallDone, ev.CallError, ev.CommandParked, ev.CommandLost,
    ev.CommandLate, ev.ExecutionReturned, ev.TimerFired, ev.ExecutionPaused, ev.ExecutionResumed,
    ev.CommandClaimed, ev.CommandResumed, ev.ExecutionAdmitted, *ev.TERMINAL,
)  # fmt: skip
HELD = ("CLAIMED", "RUNNING")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


class Wrong(AssertionError):
    """Something does not hold."""


def must(holds: object, message: str) -> None:
    """Complain unless it holds."""
    if not holds:
        raise Wrong(message)


@dataclass
class Told:
    """What a world came to, for comparing it with another one of the same seed."""

    ends: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Status and result by the place of a run."""
    spoilt: set[str] = field(default_factory=set)
    """Runs whose end depends on when things happened: a client or a lost worker ended them."""
    effects: dict[str, Any] = field(default_factory=dict)
    calls: int = 0
    logs: dict[str, list[Recorded]] = field(default_factory=dict)


async def examine(world: World) -> Told:
    """Check a world that has come to rest, and tell what it came to."""
    must(not world.faulted, f"a process died by itself: {world.faulted!r}")
    rows = await world.store.executions.listed(Listing(limit=10_000))
    known = {row.execution_id for row in rows}
    lost = [one for one in world.witness.accepted if one not in known]
    must(not lost, f"accepted runs are lost: {lost}")
    must(len(world.witness.accepted) == world.script.runs, "a client never got its answer")
    places = await world.places()
    told = Told(effects=dict(world.ledger.effects), calls=sum(world.ledger.calls.values()))
    for row in rows:
        log = await whole_log(world, row.execution_id)
        told.logs[places[row.execution_id]] = log
        await _run(world, row, log)
        place = places[row.execution_id]
        text = _named(log, places)
        told.ends[place] = (row.status, text)
        if is_spoilt(log):
            told.spoilt.add(place)
    _families(rows)
    _nothing_begins_late(world, rows)
    must(not world.ledger.clashes, f"one key, two effects: {world.ledger.clashes}")
    short = [key for key in world.ledger.effects if not world.ledger.calls.get(key)]
    must(not short, f"effects without a call: {short}")
    await _at_rest(world)
    return told


async def whole_log(world: World, execution_id: str) -> list[Recorded]:
    """Every event of a run."""
    return await world.store.log.read(execution_id, 0, 1_000_000)


async def _run(world: World, row: ExecutionRow, log: list[Recorded]) -> None:
    name = row.execution_id
    one_chain(name, log)
    one_end(name, log)
    fences_hold(name, log, world.witness.reports)
    loops_keep_their_limits(name, log)
    commands_close_once(name, log)
    nothing_is_decided_in_a_pause(name, log)
    state = await _folded(world, row, log)
    await _views_agree(world, row, state)
    await _caches_agree(world, row, log)


async def _folded(world: World, row: ExecutionRow, log: Sequence[Recorded]) -> State:
    entry = await world.store.catalog.get(row.catalog_id)
    must(entry is not None, f"{row.execution_id}: its playbook is gone")
    state = State(program=prepare(read(entry.content, Playbook)))  # type: ignore[union-attr] - checked
    for item in log:
        fold(state, item)
    return state


async def _views_agree(world: World, row: ExecutionRow, state: State) -> None:
    """The row, the detail of every server and the fold tell one status."""
    must(
        row.last_seq == state.seq, f"{row.execution_id}: the row is at {row.last_seq}, not the end"
    )
    told = {"list": row.status, "fold": status_of(state)}
    for made in world.servers:
        detail = await made.server.plane.details.execution(row.execution_id)
        told[made.process.name] = detail.status
        must(
            detail.last_seq == state.seq and detail.result == state.result,
            f"{row.execution_id}: the detail of {made.process.name} is old",
        )
    must(len(set(told.values())) == 1, f"{row.execution_id}: {told}")
    must(row.completed_at is not None, f"{row.execution_id} has not ended: {row.status}")


async def _caches_agree(world: World, row: ExecutionRow, log: list[Recorded]) -> None:
    """What a server holds is the fold of the log, up to where it has seen it."""
    for made in world.servers:
        entry = made.server.plane.cache.peek(row.execution_id)
        if entry is not None:
            again = await _folded(world, row, log[: entry.state.seq])
            must(
                dump(again) == dump(entry.state),
                f"{row.execution_id}: {made.process.name} holds a state that is not in the log",
            )


async def _at_rest(world: World) -> None:
    """Nothing is left to do for anyone."""
    store = world.store
    must(not await store.commands.expired(FAR), "a lease is open")
    must(not await store.commands.pending("shared", 100), "a command can be claimed")
    must(await store.timers.next_due() is None, "a timer is set")
    must(not await store.outbox.waiting(), "a message is undelivered")
    for made in world.workers:
        must(made.worker.running == 0, f"{made.process.name} still runs something")
        must(made.worker.reporter.is_empty, f"{made.process.name} has unsent reports")


def _nothing_begins_late(world: World, rows: Sequence[ExecutionRow]) -> None:
    """A worker that cannot know of the end of a run begins nothing once its leases are old."""
    ended = {row.execution_id: datetime.fromisoformat(row.completed_at or FAR) for row in rows}
    grace_s = 2 * world.plan.lease_s + 2 * world.plan.rates.slowest_s
    for began, execution_id, command_id in world.ledger.began:
        late_s = began - (ended[execution_id] - START).total_seconds()
        must(late_s <= grace_s, f"{execution_id}: {command_id} began {late_s:.1f} s after the end")


def _families(rows: Sequence[ExecutionRow]) -> None:
    """A child is started once for each request."""
    seen: set[tuple[str, str]] = set()
    for row in rows:
        if row.parent_execution_id is not None and row.parent_key is not None:
            key = (row.parent_execution_id, row.parent_key)
            must(key not in seen, f"two children for {key}")
            seen.add(key)


# ---------------------------------------------------------------------------- one log


def one_chain(name: str, log: Sequence[Recorded]) -> None:
    """`seq` is dense and every event names the one before (P9)."""
    must([item.seq for item in log] == list(range(1, len(log) + 1)), f"{name}: seq has holes")
    before = [None, *(item.event_id for item in log)]
    must([item.prev_event_id for item in log] == before[:-1], f"{name}: the chain is broken")
    ids = [item.event_id for item in log]
    must(len(set(ids)) == len(ids), f"{name}: an event is stored twice")


def one_end(name: str, log: Sequence[Recorded]) -> None:
    """One terminal event, and nothing but late reports and returns after it (P3, P8, P10)."""
    ends = [place for place, item in enumerate(log) if isinstance(item.event, ev.TERMINAL)]
    must(len(ends) == 1, f"{name}: {len(ends)} terminal events")
    after = [type(item.event).__name__ for item in log[ends[0] + 1 :]]
    must(set(after) <= {"CommandLate", "ExecutionReturned"}, f"{name}: {after} after the end")
    end: Any = log[ends[0]].event
    exits = [item.event for item in log if isinstance(item.event, ev.StepExited)]
    unhandled = [one for one in exits if one.outcome == "FAILED" and not one.handled]
    if isinstance(end, ev.PlaybookCompleted) and not end.by:
        must(not unhandled, f"{name}: completed with an unhandled failure")
    faults = [item.event.message for item in log if isinstance(item.event, ev.EngineFailed)]
    must(not faults, f"{name}: {faults}")


def fences_hold(name: str, log: Sequence[Recorded], sent: dict[str, tuple[str, str, int]]) -> None:
    """Only the holder of the current attempt is heard (P11), and nothing is claimed when closed."""
    held: dict[str, Holder] = {}
    for item in log:
        event: Any = item.event
        if isinstance(event, ev.CommandIssued):
            held[event.command_key] = Holder(item.event_id)
            continue
        found = held.get(getattr(event, "command_key", ""))
        if found is None:
            must(not isinstance(event, ev.CommandClaimed), f"{name}: an unknown command is claimed")
            continue
        where = f"{name}/{item.seq} {type(event).__name__} of {event.command_key}"
        match event:
            case ev.CommandClaimed():
                found.claim(where, event)
            case ev.CommandLost():
                must(found.status in HELD, f"{where}: nobody holds it")
                must(found.attempt == event.attempt, f"{where}: not the current attempt")
                found.attempt, found.status, found.worker_id = found.attempt + 1, "PENDING", ""
            case ev.CommandResumed():
                found.attempt, found.status, found.worker_id = event.attempt, "PENDING", ""
            case ev.CallDone() | ev.CallError() | ev.CommandParked() | ev.CommandStarted():
                found.report(where, item, sent.get(item.event_id))
            case ev.CommandCompleted() | ev.CommandFailed() | ev.CommandCancelled():
                must(found.status != "CLOSED", f"{where}: it is closed already")
                found.status = "CLOSED"


@dataclass
class Holder:
    """Who may speak for a command."""

    command_id: str
    attempt: int = 1
    status: str = "PENDING"
    worker_id: str = ""

    def claim(self, where: str, event: ev.CommandClaimed) -> None:
        must(self.status == "PENDING", f"{where}: it is {self.status}")
        must(self.attempt == event.attempt, f"{where}: not the current attempt")
        self.status, self.worker_id = "CLAIMED", event.worker_id

    def report(self, where: str, item: Recorded, sent: tuple[str, str, int] | None) -> None:
        event: Any = item.event
        must(event.attempt == self.attempt, f"{where}: attempt {event.attempt} is not current")
        if sent is not None:
            truth = (self.worker_id, self.command_id, self.attempt)
            must(sent == truth, f"{where}: sent by {sent}, held by {truth}")
            must(self.status in HELD, f"{where}: it is {self.status}")
        else:
            must(self.status not in HELD, f"{where}: nobody has sent it")
        if isinstance(event, ev.CommandParked):
            self.status, self.worker_id = "PARKED", ""
        elif isinstance(event, ev.CommandStarted):
            self.status = "RUNNING"
        else:
            self.status = "REPORTED"


def commands_close_once(name: str, log: Sequence[Recorded]) -> None:
    """Every command is issued once and closed once, at most when the run is cut short."""
    issued = [item.event.command_key for item in log if isinstance(item.event, ev.CommandIssued)]
    closed = [item.event.command_key for item in log if isinstance(item.event, CLOSING)]
    must(len(set(issued)) == len(issued), f"{name}: a command is issued twice")
    must(set(closed) <= set(issued), f"{name}: a command is closed and never issued")
    end: Any = next(item.event for item in log if isinstance(item.event, ev.TERMINAL))
    is_cut = isinstance(end, ev.PlaybookCancelled) or end.by
    if isinstance(end, ev.PlaybookFailed):
        is_cut = is_cut or end.error.code in {"step_limit", "execution_timeout"}
    if not is_cut:
        must(set(closed) == set(issued), f"{name}: open at the end: {set(issued) - set(closed)}")


def loops_keep_their_limits(name: str, log: Sequence[Recorded]) -> None:
    """No more iterations, frames or rows are open than may be (P4)."""
    most: dict[str, int] = {}
    rows: dict[str, int] = {}
    open_: dict[str, dict[str, ev.CommandIssued]] = {}
    for item in log:
        event = item.event
        if isinstance(event, ev.LoopStarted):
            most[event.step] = event.max_in_flight
            rows[event.step] = event.frame_spec.get("row_concurrency", 1)
            open_[event.step] = {}
        elif isinstance(event, ev.CommandIssued) and event.step in open_:
            mine = open_[event.step]
            mine[event.command_key] = event
            if event.frame is None:
                count, limit = len(mine), most[event.step]
            else:
                count, limit = len({one.frame for one in mine.values()}), most[event.step]
                same = [one for one in mine.values() if one.frame == event.frame]
                must(
                    len(same) <= (1 if event.is_claim else rows[event.step]),
                    f"{name}: too many rows of {event.step} are open",
                )
            must(count <= limit, f"{name}: {count} of {event.step} are open")
        elif isinstance(event, CLOSING) and event.step in open_:
            open_[event.step].pop(event.command_key, None)


def nothing_is_decided_in_a_pause(name: str, log: Sequence[Recorded]) -> None:
    """Only what comes from outside is written while a run is paused, and no claim (P10)."""
    is_paused = False
    for item in log:
        if isinstance(item.event, ev.ExecutionPaused):
            is_paused = True
        elif isinstance(item.event, (ev.ExecutionResumed, *ev.TERMINAL)):
            is_paused = False
        elif is_paused:
            fits = isinstance(item.event, OUTSIDE) and not isinstance(item.event, ev.CommandClaimed)
            must(fits, f"{name}/{item.seq}: {type(item.event).__name__} in a pause")


def is_spoilt(log: Sequence[Recorded]) -> bool:
    """Whether the end of a run tells of when things happened."""
    for item in log:
        event: Any = item.event
        if isinstance(event, ev.TERMINAL):
            return isinstance(event, ev.PlaybookCancelled) or bool(event.by)
        error = getattr(event, "error", None)
        if isinstance(error, ev.Error) and error.code in {"worker_lost", "lease_exhausted"}:
            return True
    return False


def _named(log: Sequence[Recorded], places: dict[str, str]) -> str:
    """The end of a run as text, with places instead of ids."""
    end: Any = next(item.event for item in log if isinstance(item.event, ev.TERMINAL))
    failed = getattr(end, "failed_steps", ())
    text = json.dumps([getattr(end, "result", None), list(failed)], sort_keys=True)
    for execution_id, place in places.items():
        text = text.replace(execution_id, place)
    return MOMENT.sub("<time>", text)


# ---------------------------------------------------------------------------- two worlds


def compare(calm: Told, wild: Told) -> int:
    """A world with troubles ends as the one without; how many runs could be compared."""
    compared = 0
    for place, end in calm.ends.items():
        if any(place.startswith(other) or other.startswith(place) for other in wild.spoilt):
            continue
        must(place in wild.ends, f"{place} did not run")
        must(end == wild.ends[place], f"{place} ended as {wild.ends[place]}, not as {end}")
        compared += 1
        mine = {key: value for key, value in calm.effects.items() if key.startswith(f"{place}:")}
        own = {key: value for key, value in wild.effects.items() if key.startswith(f"{place}:")}
        must(mine == own, f"{place}: ledger A differs in {sorted(set(mine) ^ set(own))}")
    return compared
