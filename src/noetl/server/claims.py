"""Claims, leases and their ends: what a worker may hold, for how long, and how it gives it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.commands import Beat, Claimed, Skipped
from noetl.engine import events as ev
from noetl.errors import NoetlError
from noetl.server.errors import Conflict, UnknownCommand
from noetl.server.handout import is_held
from noetl.server.moments import from_now, seconds_until
from noetl.server.posts import Ask, Post, Stamped
from noetl.server.reports import find_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noetl.api.commands import Claim, Command, Heartbeat, Held, Release
    from noetl.clock import Clock
    from noetl.engine.state import State
    from noetl.server.handout import HandOut
    from noetl.server.ingest import Ingest
    from noetl.server.workers import Workers
    from noetl.store.base import CommandRow, Commands

MOST_SLOTS: Final = 64
MOST_WAIT_S: Final = 20.0
_OPEN: Final = frozenset({"PENDING", "CLAIMED", "PARKED"})


class Claims:
    """Requests of workers for commands."""

    def __init__(
        self,
        ingest: Ingest,
        handout: HandOut,
        commands: Commands,
        workers: Workers,
        clock: Clock,
    ) -> None:
        self._ingest = ingest
        self._handout = handout
        self._commands = commands
        self._workers = workers
        self._clock = clock

    async def claim(self, body: Claim) -> Claimed:
        """Commands of a pool, or the named ones; parked while there are none."""
        self._workers.seen(body.worker_id, body.pool, body.free_slots)
        if body.event_ids:
            return await self._claim_named(body)
        slots = max(1, min(body.free_slots, MOST_SLOTS))
        ask = Ask(body.worker_id, body.pool, slots, frozenset(body.exclude_kinds))
        wait_s = max(0.0, min(body.wait_seconds, MOST_WAIT_S))
        await self._ingest.submit((), ask, wait_s)
        self._workers.seen(body.worker_id)
        return Claimed(claimed=tuple(ask.given))

    async def _claim_named(self, body: Claim) -> Claimed:
        claimed: list[Command] = []
        skipped: list[Skipped] = []
        for event_id in body.event_ids:
            try:
                claimed.append(await self.claim_one(event_id, body.worker_id))
            except NoetlError as refusal:
                skipped.append(Skipped(event_id=event_id, code=refusal.code))
        return Claimed(claimed=tuple(claimed), skipped=tuple(skipped))

    async def claim_one(self, event_id: str, worker_id: str) -> Command:
        """The command that a hint names, or why it cannot be had."""
        self._workers.seen(worker_id)
        row = await self._commands.get(_id_of(event_id))
        if row is None:
            raise UnknownCommand(f"there is no command {event_id}")
        if row.attempt > 1:
            self._handout.remember(row.command_id, row.attempt, row.checkpoint)
        given: list[Command] = []

        def make(state: State) -> Iterator[Stamped]:
            given.clear()
            command = find_command(state, row.command_id)
            if command is None or command.report is not None:
                raise _gone(state, row)
            if is_held(command, worker_id):
                until = row.lease_until or command.lease_until or ""
                given.append(self._handout.body(state, command, until))
                return
            if state.is_paused:
                raise Conflict("the execution is paused", code="execution_paused")
            if command.status != "PENDING":
                raise self._taken(row)
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
            given.append(self._handout.body(state, command, until))

        await self._ingest.post(Post(row.execution_id, make))
        return given[0]

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

    async def heartbeat(self, body: Heartbeat) -> Beat:
        """Extend the leases of a worker; what it no longer holds is lost, or to be stopped."""
        self._workers.seen(body.worker_id, free_slots=body.free_slots)
        until = from_now(self._clock, self._handout.lease_s)
        held = [(item.command_id, item.attempt) for item in body.commands]
        extended = await self._commands.extend(body.worker_id, held, until)
        kept = set(extended)
        for item in body.commands:
            if item.checkpoint is not None and item.command_id in kept:
                await self._commands.keep(item.command_id, item.attempt, item.checkpoint)
        lost: list[str] = []
        stopped: list[str] = []
        for item in body.commands:
            if item.command_id not in kept:
                row = await self._commands.get(item.command_id)
                is_open = row is not None and row.status in _OPEN
                (lost if is_open else stopped).append(item.command_id)
        return Beat(
            extended=tuple(extended),
            lost=tuple(lost),
            cancel=tuple(stopped),
            pressure=self._ingest.pressure,
        )

    async def release(self, body: Release) -> None:
        """Commands that a worker gives back are claimable at once; this is no loss."""
        self._workers.seen(body.worker_id)
        posts = []
        for item in body.commands:
            row = await self._commands.get(item.command_id)
            if row is not None:
                make = _returning(item, body.worker_id, self._handout)
                posts.append(Post(row.execution_id, make))
        if posts:
            await self._ingest.submit(posts)


def _returning(
    item: Held, worker_id: str, handout: HandOut
) -> Callable[[State], Iterator[Stamped]]:
    def make(state: State) -> Iterator[Stamped]:
        command = find_command(state, item.command_id)
        if command is None or not is_held(command, worker_id) or command.attempt != item.attempt:
            return
        handout.remember(item.command_id, item.attempt + 1, item.checkpoint)
        yield Stamped(
            ev.CommandResumed(
                step=command.step,
                command_key=command.key,
                attempt=command.attempt + 1,
                checkpoint=command.checkpoint if item.checkpoint is None else item.checkpoint,
                awaited=command.awaited,
            )
        )

    return make


def _id_of(event_id: str) -> str:
    parts = event_id.split(":")
    return parts[2] if len(parts) > 2 else event_id  # noqa: PLR2004 - execution, step, id


def _gone(state: State, row: CommandRow) -> Conflict:
    if state.terminal == "CANCELLED":
        return Conflict("the execution was cancelled", code="execution_cancelled")
    what = f"the execution is {state.terminal}" if state.terminal else f"it is {row.status}"
    return Conflict(f"command {row.command_id} has ended: {what}", code="already_terminal")
