"""Who gets which command: requests of a batch and parked ones take what is claimable.

A claim is an event of the batch that made the command claimable, so that work reaches its worker
with the answer to a report, without a second commit and without a hint.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from noetl.api.commands import Command as Body
from noetl.api.commands import CommandContext
from noetl.clock import rfc3339
from noetl.dsl.secret_inputs import callback_of
from noetl.engine import events as ev
from noetl.server.ingest.caution import is_last_chance, is_wary
from noetl.server.ingest.pending import Pending, Waiting
from noetl.server.signals import Hint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from datetime import datetime

    from noetl.clock import Clock
    from noetl.engine.state import Command, State
    from noetl.server.ingest.posts import Ask
    from noetl.server.ingest.turn import Turn
    from noetl.store.base import Change, CommandRow, Commands

OLD_AFTER: Final = timedelta(seconds=1)
_SPARE: Final = 16
_MOST_CHECKPOINTS: Final = 10_000
HELD: Final = frozenset({"CLAIMED", "RUNNING"})
_OLD, _FRESH, _YOUNG = 0, 1, 2


@dataclass(slots=True, eq=False)
class Batch:
    """What one commit is made of."""

    moment: datetime
    now: str
    opened: Callable[[Batch, str], Awaitable[Turn | None]]
    turns: dict[str, Turn] = field(default_factory=dict)
    asks: list[Ask] = field(default_factory=list)
    served: dict[Ask, None] = field(default_factory=dict)
    """Requests that were given something."""
    waits: list[tuple[str, str]] = field(default_factory=list)
    """Pools of the commands that were given, and since when each had waited."""
    wary: set[str] = field(default_factory=set)
    """Workers that hold, or were given, a command that one more loss would end."""

    def has_ended(self, row: CommandRow) -> bool:
        """Whether a command that a worker holds ends with this batch."""
        if (turn := self.turns.get(row.execution_id)) is None:
            return False
        command = turn.state.commands.get(row.command_key)
        return command is None or not is_held(command, row.worker_id or "")

    async def turn(self, execution_id: str) -> Turn | None:
        """The turn of a run, opened when the batch has none."""
        return self.turns.get(execution_id) or await self.opened(self, execution_id)


@dataclass(slots=True)
class _Candidate:
    execution_id: str
    command_id: str
    kind: str
    priority: int
    rank: int
    since: str
    cause: str | None = None


class HandOut:
    """Gives claimable commands to workers."""

    def __init__(self, commands: Commands, clock: Clock, lease_s: float) -> None:
        self.pending = Pending(commands, clock)
        self._commands = commands
        self.lease_s = lease_s
        self._checkpoints: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._parked: dict[str, dict[Ask, None]] = {}

    def remember(self, command_id: str, attempt: int, checkpoint: object) -> None:
        """Keep where an attempt begins; the state knows only what parks have told."""
        if checkpoint is not None:
            self._checkpoints[command_id, attempt] = checkpoint
            if len(self._checkpoints) > _MOST_CHECKPOINTS:
                self._checkpoints.popitem(last=False)

    def park(self, ask: Ask) -> None:
        """Keep a request until there is work of its pool."""
        self._parked.setdefault(ask.pool, {})[ask] = None

    def close(self, ask: Ask) -> None:
        """Give a request nothing more."""
        ask.is_closed = True
        parked = self._parked.get(ask.pool)
        if parked is not None:
            parked.pop(ask, None)
            if not parked:
                del self._parked[ask.pool]

    def queued(self, turn: Turn, written: Change) -> Iterator[Hint]:
        """Note which commands of a commit wait for a worker now, and hint at each of them."""
        pending, state, execution_id = self.pending, turn.state, written.execution_id
        for row in written.commands:
            if row.status != "PENDING":
                pending.drop(row.command_id)
        if written.execution.completed_at is not None or written.execution.status == "PAUSED":
            pending.leave(execution_id)
        for key in turn.fresh:
            left = state.commands.get(key)
            if left is not None and left.status == "PENDING" and left.pool is not None:
                waiting = Waiting(execution_id, left.id, left.kind, left.priority, turn.now)
                pending.add(left.pool, waiting)
                yield Hint(execution_id, left.pool, left.id, left.step, left.attempt)

    def parked(self) -> Iterator[Ask]:
        """Every request that waits."""
        for asks in self._parked.values():
            yield from asks

    async def run(self, batch: Batch) -> None:
        """Claim for the requests of the batch, then for parked ones."""
        asking: dict[str, list[Ask]] = {}
        for ask in batch.asks:
            if ask.is_repeat:
                await self._held_already(batch, ask)
                ask.slots = 0  # a copy that comes late may have nobody who reads its answer
            if ask.slots > 0:
                asking.setdefault(ask.pool, []).append(ask)
        self._dismiss(batch)
        fresh = _fresh(batch)
        for pool in {**asking, **fresh}:
            asks = asking.get(pool, [])
            candidates = fresh.get(pool, [])
            if asks:
                candidates = candidates + await self._waiting(batch, pool, asks)
            asks = asks + list(self._parked.get(pool, ()))
            if asks and candidates:
                candidates.sort(key=lambda item: (-item.priority, item.rank))
                await self._serve(batch, asks, candidates)

    def _dismiss(self, batch: Batch) -> None:
        """Let go of parked requests of workers that were just lost: nobody may be at the end."""
        turns = batch.turns.values()
        lost = {stop.worker_id for turn in turns for stop in turn.stopped if not stop.is_over}
        for ask in [ask for ask in self.parked() if ask.worker_id in lost] if lost else ():
            self.close(ask)
            if ask.work is not None and not ask.work.done.done():
                ask.work.done.set_result(None)  # one that lives asks again

    async def _held_already(self, batch: Batch, ask: Ask) -> None:
        """A repeated request is answered with what its worker was given and has not started."""
        told = {body.command_id for body in ask.given}
        for row in await self._commands.of_worker(ask.worker_id):
            if row.started_at is not None or row.command_id in told or not ask.wants(row.kind):
                continue
            turn = await batch.turn(row.execution_id)
            key = None if turn is None else turn.state.command_ids.get(row.command_id)
            command = None if turn is None or key is None else turn.state.commands.get(key)
            if turn is None or command is None or not is_held(command, ask.worker_id):
                continue
            ask.given.append(self.body(turn.state, command, row.lease_until or batch.now))
            ask.slots -= 1

    async def _waiting(self, batch: Batch, pool: str, asks: list[Ask]) -> list[_Candidate]:
        """What the pool had before this batch."""
        old = rfc3339(batch.moment - OLD_AFTER)
        found: dict[str, _Candidate] = {}
        for exclude in {ask.exclude: None for ask in asks}:
            slots = sum(ask.slots for ask in asks if ask.exclude == exclude)
            waiting, rows = await self.pending.of(pool, slots + _SPARE, exclude)
            for row in rows:
                if row.attempt > 1:
                    self.remember(row.command_id, row.attempt, row.checkpoint)
            for item in waiting:
                found[item.command_id] = _Candidate(
                    item.execution_id,
                    item.command_id,
                    item.kind,
                    item.priority,
                    _OLD if item.available_at < old else _YOUNG,
                    item.available_at,
                )
        return list(found.values())

    async def _serve(self, batch: Batch, asks: list[Ask], candidates: list[_Candidate]) -> None:
        until = rfc3339(batch.moment + timedelta(seconds=self.lease_s))
        for item in candidates:
            if not any(ask.slots > 0 for ask in asks):
                return
            # Who asks for much gets no more than others, as long as they have room.
            fitting = [one for one in asks if one.wants(item.kind)]
            if not fitting:
                continue
            ask: Ask | None = fitting[0] if len(fitting) == 1 else min(fitting, key=_given)
            turn = await batch.turn(item.execution_id)
            command = None if turn is None else claimable(turn.state, item.command_id)
            if turn is None or command is None:
                self.pending.drop(item.command_id)
                continue
            if is_last_chance(command.lost, command.max_attempts):
                ask = await self._apart(batch, asks, item.kind)
                if ask is not None:
                    batch.wary.add(ask.worker_id)
            if ask is None:
                continue  # it waits
            ask.given.append(self.claim(turn, command, ask.worker_id, until, item.cause))
            ask.slots -= 1
            batch.served[ask] = None
            batch.waits.append((ask.pool, item.since))

    async def _apart(self, batch: Batch, asks: list[Ask], kind: str) -> Ask | None:
        """A request whose worker holds no other command that one more loss would end."""
        for ask in asks:
            if ask.wants(kind) and ask.worker_id not in batch.wary:
                if not await is_wary(self._commands, ask.worker_id, batch.has_ended):
                    return ask
                batch.wary.add(ask.worker_id)
        return None

    def claim(
        self, turn: Turn, command: Command, worker_id: str, until: str, cause: str | None
    ) -> Body:
        """Record a claim; the command as the worker gets it."""
        turn.record(
            ev.CommandClaimed(
                step=command.step,
                command_key=command.key,
                worker_id=worker_id,
                attempt=command.attempt,
                lease_until=until,
            ),
            parent_event_id=cause,
        )
        return self.body(turn.state, command, until)

    def body(self, state: State, command: Command, until: str) -> Body:
        """A command as its holder sees it."""
        issued = command.issued
        checkpoint, awaited = command.checkpoint, _awaited(command)
        if command.attempt > 1:
            checkpoint = self._checkpoints.get((command.id, command.attempt), checkpoint)
            if checkpoint != command.checkpoint:  # the task that waited is behind it
                awaited = None
        return Body(
            execution_id=state.execution_id,
            event_id=command.id,
            command_id=command.id,
            command_key=command.key,
            node_id=command.key,
            node_name=issued.step,
            action=issued.kind,
            attempt=command.attempt,
            max_attempts=issued.max_attempts,
            lease_seconds=self.lease_s,
            lease_until=until,
            pool=issued.pool or "",
            priority=issued.priority,
            idempotency_key=issued.idempotency_key,
            catalog_id=state.catalog_id,
            path=state.path,
            version=state.version,
            context=CommandContext(
                tool={"kind": issued.kind},
                bindings=issued.bindings,
                refs=dict(issued.refs),
                checkpoint=checkpoint,
                awaited=awaited,
            ),
            idempotent=issued.idempotent,
            iteration=issued.index,
            frame=issued.frame,
            is_claim=issued.is_claim,
            deadline=issued.deadline,
            trace=state.trace,
            meta=_meta(state, issued),
        )


def _meta(state: State, issued: ev.CommandIssued) -> dict[str, Any]:
    """What else a worker is told: which of how many, and where the client of the run waits."""
    told: dict[str, Any] = {"visit": issued.visit, "total": issued.total}
    if url := callback_of(state.workload):
        told["callback"] = url
    return told


def _given(ask: Ask) -> int:
    return len(ask.given)


def _awaited(command: Command) -> dict[str, Any] | None:
    """The outcome that a resumed task is told; a large one by its reference."""
    if command.awaited is None or command.awaited_ref is None:
        return command.awaited
    return {**command.awaited, "reference": command.awaited_ref}


def is_held(command: Command, worker_id: str) -> bool:
    """Whether a worker has an attempt that it has not reported on."""
    return command.status in HELD and command.worker_id == worker_id and command.report is None


def claimable(state: State, command_id: str) -> Command | None:
    """The command, if a worker may have it now."""
    if state.terminal is not None or state.is_paused:
        return None
    key = state.command_ids.get(command_id)
    command = None if key is None else state.commands.get(key)
    return command if command is not None and command.status == "PENDING" else None


def _fresh(batch: Batch) -> dict[str, list[_Candidate]]:
    """What this batch made claimable, by pool."""
    found: dict[str, list[_Candidate]] = {}
    for execution_id, turn in batch.turns.items():
        state = turn.state
        if state.terminal is not None or state.is_paused:
            continue
        for key, cause in turn.fresh.items():
            command = state.commands.get(key)
            if command is None or command.status != "PENDING" or command.pool is None:
                continue
            found.setdefault(command.pool, []).append(
                _Candidate(
                    execution_id,
                    command.id,
                    command.kind,
                    command.priority,
                    _FRESH,
                    batch.now,
                    cause,
                )
            )
    return found
