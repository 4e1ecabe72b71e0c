"""Runs of a listener in this process: the real server and worker, renewed so that they stay small.

A run is accepted when it has started here, and only its end counts: a message is acknowledged
after that, so that nothing is lost with this process.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.catalog import Register
from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.engine import subscriptions as names
from noetl.engine.events import TERMINAL, PlaybookFailed, PlaybookStarted, SubscriptionEvent
from noetl.intake.outcomes import RunOutcome, StartOutcome, answered, of_entry, unanswered
from noetl.local.run import stack
from noetl.local.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noetl.api.client import Client
    from noetl.engine.events import Recorded
    from noetl.intake.dispatch import Start
    from noetl.local.parts import Parts

MOST_RUNS: Final = 500
"""Runs of one room; the next one has a room of its own."""


@dataclass(frozen=True, slots=True)
class Document:
    """The subscription whose messages are run."""

    subscription_id: str
    path: str
    text: str


@dataclass(slots=True, eq=False)
class _Room:
    """A server and its workers, until it is left."""

    client: asyncio.Future[Client]
    left: asyncio.Event = field(default_factory=asyncio.Event)
    started: int = 0
    entering: int = 0
    subscription_id: str = ""
    """The same subscription, as the server of this room knows it."""
    open: set[str] = field(default_factory=set)
    """Runs that have not ended."""
    task: asyncio.Task[None] | None = None


class Rooms:
    """Starts runs here, and tells how each has ended."""

    def __init__(
        self,
        parts: Parts,
        document: Document,
        *,
        on_end: Callable[[RunOutcome], None],
        on_event: Callable[[Recorded], None],
    ) -> None:
        self._parts = parts
        self._document = document
        self._on_end = on_end
        self._on_event = on_event
        self._room: _Room | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, starts: Sequence[Start]) -> list[StartOutcome]:
        """Start runs, one after the other."""
        return [await self._start(start) for start in starts]

    async def close(self) -> None:
        """End every room, and the runs in it."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _start(self, start: Start) -> StartOutcome:
        room = self._roomy()
        room.entering += 1
        try:
            client = await asyncio.shield(room.client)
            wanted = msgspec.structs.replace(start, parent_execution_id=room.subscription_id)
            started = await client.execute(wanted)
        except Refused as fault:
            told = fault.problem
            return answered(told.status, told.code, told.detail, told.retry_after)
        except NoAnswer as fault:
            return unanswered(fault.message, fault.code)
        finally:
            room.entering -= 1
            self._leave(room)
        return of_entry(started.status, started.execution_id, None)

    def _roomy(self) -> _Room:
        room = self._room
        if room is None or room.started >= MOST_RUNS:
            before, self._room = room, _Room(asyncio.get_running_loop().create_future())
            room = self._room
            room.task = asyncio.create_task(self._live(room), name="room")
            self._tasks.add(room.task)
            room.task.add_done_callback(self._tasks.discard)
            if before is not None:
                self._leave(before)
        room.started += 1
        return room

    async def _live(self, room: _Room) -> None:
        watch = Watch(on_event=lambda recorded: self._see(room, recorded))
        try:
            async with stack(replace(self._parts, watch=watch), "") as made:
                await made.client.register(Register(content=self._document.text))
                known = await made.client.register_subscription(self._document.path)
                room.subscription_id = known.subscription_id
                room.client.set_result(made.client)
                await room.left.wait()
        except BaseException as fault:
            if not room.client.done():
                room.client.set_exception(fault)
                room.client.exception()  # whoever waits for it is told
            raise

    def _leave(self, room: _Room) -> None:
        """Close a room that is not used any more."""
        if room is not self._room and not room.open and not room.entering:
            room.left.set()

    def _see(self, room: _Room, recorded: Recorded) -> None:
        """Tell of starts and ends of runs, and of what the headers of a message did."""
        event, execution_id = recorded.event, recorded.execution_id
        if isinstance(event, PlaybookStarted):
            if event.parent_execution_id == room.subscription_id:
                room.open.add(execution_id)
                self._on_event(self._below(recorded, event))
        elif isinstance(event, SubscriptionEvent):
            if str(event.__struct_config__.tag) in names.OF_RUNS:
                self._on_event(recorded)
        elif isinstance(event, TERMINAL) and execution_id in room.open:
            room.open.discard(execution_id)
            self._on_event(recorded)
            self._on_end(_outcome(recorded))
            self._leave(room)

    def _below(self, recorded: Recorded, event: PlaybookStarted) -> Recorded:
        """The start of a run as one of the subscription that others know."""
        own = self._document.subscription_id
        told = event.subscription
        if told is not None:
            told = {**told, "id": own}
        event = msgspec.structs.replace(event, parent_execution_id=own, subscription=told)
        return msgspec.structs.replace(recorded, event=event)


def _outcome(recorded: Recorded) -> RunOutcome:
    event = recorded.event
    error = event.error if isinstance(event, PlaybookFailed) else None
    return RunOutcome(
        execution_id=recorded.execution_id,
        status=event.status,
        error_kind=error.kind if error else "",
        is_retryable=error.retryable if error else False,
    )
