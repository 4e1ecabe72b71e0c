"""Claims, leases and their ends: what a worker may hold, for how long, and how it gives it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.commands import Beat, Claimed, Extended, Held, Release, Skipped
from noetl.edge.errors import Conflict, Unacceptable, UnknownCommand
from noetl.edge.moments import from_now, seconds_until
from noetl.engine import events as ev
from noetl.errors import NoetlError
from noetl.ids import InvalidId
from noetl.server.access.entry import LOCAL, own_pool
from noetl.server.fleet.plain import id_of_command
from noetl.server.fleet.reports import find_command
from noetl.server.ingest.caution import is_last_chance
from noetl.server.ingest.handout import is_held
from noetl.server.ingest.posts import Ask, Post, Stamped
from noetl.telemetry.failpoint import armed, failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from noetl.api.commands import Claim, Command, Heartbeat, HeldOne
    from noetl.clock import Clock
    from noetl.engine.state import Command as Open
    from noetl.engine.state import State
    from noetl.server.access.entry import Caller
    from noetl.server.fleet.workers import Workers
    from noetl.server.ingest.handout import HandOut
    from noetl.server.ingest.queue import Ingest
    from noetl.store.base import CommandRow, Store

MOST_SLOTS: Final = 64
MOST_WAIT_S: Final = 20.0
_OPEN: Final = frozenset({"PENDING", "CLAIMED", "PARKED"})


class Claims:
    """Requests of workers for commands."""

    def __init__(
        self,
        ingest: Ingest,
        handout: HandOut,
        store: Store,
        workers: Workers,
        clock: Clock,
    ) -> None:
        self._ingest = ingest
        self._handout = handout
        self._commands = store.commands
        self._log = store.log
        self._workers = workers
        self._clock = clock

    async def claim(self, body: Claim, caller: Caller = LOCAL) -> Claimed:
        """Commands of a pool, or the named ones; parked while there are none."""
        own_pool(caller, body.pool)
        self._workers.seen(body.worker_id, body.pool, body.free_slots)
        if body.event_ids:
            return await self._claim_named(body, caller)
        slots = max(1, min(body.free_slots, MOST_SLOTS))
        ask = Ask(body.worker_id, body.pool, slots, frozenset(body.exclude_kinds))
        wait_s = max(0.0, min(body.wait_seconds, MOST_WAIT_S))
        await self._ingest.submit((), ask, wait_s)
        if armed and ask.given:
            await failpoint("server.claim")
        self._workers.seen(body.worker_id)
        return Claimed(claimed=tuple(ask.given))

    async def _claim_named(self, body: Claim, caller: Caller) -> Claimed:
        """As many of the named commands as there are slots for, in one read and one commit."""
        if len(body.event_ids) > MOST_SLOTS:
            raise Unacceptable(
                f"{len(body.event_ids)} commands in one claim", code="batch_size_invalid",
                hint=f"at most {MOST_SLOTS}",
            )  # fmt: skip
        asked = dict.fromkeys(map(str, body.event_ids))
        names, refusals = _ids(asked)
        rows = await self._commands.those(tuple(names))
        given: dict[str, Command] = {}
        slots = max(1, min(body.free_slots, MOST_SLOTS))
        posts: dict[str, Post] = {}
        for command_id, name in names.items():
            row = rows.get(command_id)
            if row is None:
                refusals[name] = UnknownCommand.code
            elif caller.pool not in {None, row.pool}:
                refusals[name] = "pool_forbidden"
            else:
                make = self._taking(row, body.worker_id, given, slots)
                posts[name] = Post(row.execution_id, make)
        if posts:
            await self._ingest.submit(posts.values())
        for name, post in posts.items():
            if isinstance(post.error, NoetlError) and not post.error.retryable:
                refusals[name] = post.error.code
            elif post.error is not None:
                raise post.error
        return Claimed(
            claimed=tuple(given[number] for number in names if number in given),
            skipped=tuple(
                Skipped(event_id=name, code=refusals[name]) for name in asked if name in refusals
            ),
        )

    async def claim_one(
        self, event_id: str | int, worker_id: str, caller: Caller = LOCAL
    ) -> Command:
        """The command that a hint names, or why it cannot be had."""
        self._workers.seen(worker_id)
        row = await self._row(event_id, caller)
        given: dict[str, Command] = {}
        await self._ingest.post(Post(row.execution_id, self._taking(row, worker_id, given)))
        return given[row.command_id]

    def _taking(
        self, row: CommandRow, worker_id: str, given: dict[str, Command], slots: int = 1
    ) -> Callable[[State], Iterator[Stamped]]:
        """Claims a command while fewer are given than there are slots."""
        if row.attempt > 1:
            self._handout.remember(row.command_id, row.attempt, row.checkpoint)

        def make(state: State) -> Iterator[Stamped]:
            given.pop(row.command_id, None)
            command = find_command(state, row.command_id)
            if command is None or command.report is not None:
                raise _gone(state, row)
            is_mine = is_held(command, worker_id)
            if not is_mine:
                self._must_be_free(state, command, row)
            if len(given) >= slots:
                raise Conflict("the worker has no free slot", code="no_free_slot")
            if is_mine:
                until = row.lease_until or command.lease_until or ""
                given[row.command_id] = self._handout.body(state, command, until)
                return
            until = from_now(self._clock, self._handout.lease_s)
            yield Stamped(
                ev.CommandClaimed(
                    step=command.step,
                    command_key=command.key,
                    worker_id=worker_id,
                    attempt=command.attempt,
                    lease_until=until,
                )
            )
            given[row.command_id] = self._handout.body(state, command, until)

        return make

    def _must_be_free(self, state: State, command: Open, row: CommandRow) -> None:
        """Refuse a command that nobody may have now."""
        if state.is_paused:
            raise Conflict("the execution is paused", code="execution_paused")
        if command.status != "PENDING" or is_last_chance(command.lost, command.max_attempts):
            raise self._taken(row)  # the hand-out knows beside what a last try may run

    async def _row(self, event_id: str | int, caller: Caller) -> CommandRow:
        row = await self._commands.get(id_of_command(event_id))
        if row is None:
            raise UnknownCommand(f"there is no command {event_id}")
        own_pool(caller, row.pool or "")
        return row

    async def command(self, event_id: str, caller: Caller = LOCAL) -> dict[str, Any]:
        """A command as it stands, open or closed."""
        row = await self._row(event_id, caller)
        recorded = await self._log.find(row.execution_id, row.command_id)
        issued = None if recorded is None else recorded.event
        if not isinstance(issued, ev.CommandIssued):
            raise UnknownCommand(f"there is no command {event_id}")
        is_running = row.status == "CLAIMED" and row.started_at is not None
        return {
            "status": "RUNNING" if is_running else row.status,
            "event_id": row.command_id,
            "execution_id": row.execution_id,
            "command_id": row.command_id,
            "command_key": row.command_key,
            "node_id": row.command_key,
            "node_name": row.step,
            "action": row.kind,
            "attempt": row.attempt,
            "max_attempts": row.max_attempts,
            "pool": row.pool,
            "priority": row.priority,
            "worker_id": row.worker_id,
            "lease_until": row.lease_until,
            "started_at": row.started_at,
            "idempotency_key": issued.idempotency_key,
            "iteration": issued.index,
            "context": {
                "tool": {"kind": issued.kind},
                "bindings": issued.bindings,
                "refs": msgspec.to_builtins(issued.refs),
            },
            "meta": {"visit": issued.visit, "total": issued.total},
        }

    def _taken(self, row: CommandRow) -> Conflict:
        if row.lease_until is None:
            return Conflict("the command is not claimable now", code="active_claim", retry_after=1)
        rest = max(1.0, min(30.0, seconds_until(self._clock, row.lease_until)))
        return Conflict(
            f"worker {row.worker_id} holds attempt {row.attempt} until {row.lease_until}",
            code="active_claim",
            hint="retry after the lease",
            retry_after=round(rest),
        )

    async def heartbeat(
        self, body: Heartbeat, caller: Caller = LOCAL, *, is_draining: bool = False
    ) -> Beat:
        """Extend the leases of a worker; what it no longer holds is lost, or to be stopped.

        What is of another pool than the caller's is lost to him.
        """
        self._workers.told(body.worker_id, body.free_slots)
        until = from_now(self._clock, self._handout.lease_s)
        held = {id_of_command(item.command_id): item for item in body.commands}
        extended: list[str] = []
        if held:
            asked = [(command_id, item.attempt) for command_id, item in held.items()]
            extended = await self._commands.extend(body.worker_id, asked, until, pool=caller.pool)
        if armed:
            await failpoint("server.heartbeat")
        for command_id in extended:
            item = held.pop(command_id)
            if item.checkpoint is not None:
                await self._commands.keep(command_id, item.attempt, item.checkpoint)
        rows = await self._commands.those(tuple(held)) if held else {}
        lost: list[str] = []
        stopped: list[str] = []
        for command_id in held:
            row = rows.get(command_id)
            is_foreign = row is not None and caller.pool not in {None, row.pool}
            is_open = row is not None and row.status in _OPEN
            (lost if is_foreign or is_open else stopped).append(command_id)
        return Beat(
            extended=tuple(extended),
            lost=tuple(lost),
            cancel=tuple(stopped),
            drain=is_draining,
            pressure=self._ingest.pressure,
        )

    async def heartbeat_one(self, event_id: str, body: HeldOne, caller: Caller = LOCAL) -> Extended:
        """Extend one lease, or say why it cannot be had any longer."""
        row = await self._row(event_id, caller)
        self._workers.seen(body.worker_id)
        until = from_now(self._clock, self._handout.lease_s)
        asked = [(row.command_id, body.attempt)]
        if await self._commands.extend(body.worker_id, asked, until):
            if body.checkpoint is not None:
                await self._commands.keep(row.command_id, body.attempt, body.checkpoint)
            return Extended(lease_until=until)
        if row.status in _OPEN:
            raise Conflict(
                f"worker {body.worker_id} does not hold attempt {body.attempt}; "
                f"attempt {row.attempt} is {row.status}",
                code="stale_attempt",
            )
        raise Conflict(f"command {row.command_id} is {row.status}", code="already_terminal")

    async def release_one(self, event_id: str, body: HeldOne, caller: Caller = LOCAL) -> None:
        """Give one command back."""
        row = await self._row(event_id, caller)
        held = Held(command_id=row.command_id, attempt=body.attempt, checkpoint=body.checkpoint)
        released = Release(worker_id=body.worker_id, commands=(held,), reason=body.reason)
        await self.release(released, caller)

    async def release_all(self, worker_id: str, caller: Caller = LOCAL) -> int:
        """Give back whatever a worker holds: it has left."""
        held = tuple(
            Held(
                command_id=row.command_id,
                attempt=row.attempt,
                is_started=row.started_at is not None,
            )
            for row in await self._commands.of_worker(worker_id)
        )
        if held:
            await self.release(Release(worker_id=worker_id, commands=held, reason="left"), caller)
        return len(held)

    async def release(self, body: Release, caller: Caller = LOCAL) -> None:
        """Commands that a worker gives back are claimable at once; this is no loss."""
        self._workers.seen(body.worker_id)
        items = {id_of_command(item.command_id): item for item in body.commands}
        rows = await self._commands.those(tuple(items))
        posts = []
        for command_id, item in items.items():
            row = rows.get(command_id)
            if row is not None:
                own_pool(caller, row.pool or "")
                make = _returning(item, body.worker_id, self._handout)
                posts.append(Post(row.execution_id, make))
        if posts:
            await self._ingest.submit(posts)


def _ids(names: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Ids of commands with the name of each, and names that are none with the reason."""
    found: dict[str, str] = {}
    refusals: dict[str, str] = {}
    for name in names:
        try:
            found.setdefault(id_of_command(name), name)
        except InvalidId as refusal:
            refusals[name] = refusal.code
    return found, refusals


def _returning(
    item: Held, worker_id: str, handout: HandOut
) -> Callable[[State], Iterator[Stamped]]:
    def make(state: State) -> Iterator[Stamped]:
        command = find_command(state, str(item.command_id))
        if command is None or not is_held(command, worker_id) or command.attempt != item.attempt:
            return
        # What no tool has seen is the same attempt still; a start that was told is believed.
        is_untouched = not item.is_started and command.status == "CLAIMED"
        attempt = command.attempt if is_untouched else command.attempt + 1
        handout.remember(command.id, attempt, item.checkpoint)
        yield Stamped(
            ev.CommandResumed(
                step=command.step,
                command_key=command.key,
                attempt=attempt,
                checkpoint=command.checkpoint if item.checkpoint is None else item.checkpoint,
                awaited=command.awaited,
            )
        )

    return make


def _gone(state: State, row: CommandRow) -> Conflict:
    if state.terminal == "CANCELLED":
        return Conflict("the execution was cancelled", code="execution_cancelled")
    what = f"the execution is {state.terminal}" if state.terminal else f"it is {row.status}"
    return Conflict(f"command {row.command_id} has ended: {what}", code="already_terminal")
