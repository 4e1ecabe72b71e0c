"""What stands in for the server of a listener that has none: its state, and ends of runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from noetl.api.subscriptions import STOPPED_BY_ITSELF
from noetl.engine import subscriptions as names
from noetl.errors import NoetlError
from noetl.intake.dispatch import ServerStarter
from noetl.intake.outcomes import RunOutcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from noetl.api.client import Client
    from noetl.blobs.spool.item import Item
    from noetl.intake.dispatch import Start
    from noetl.intake.outcomes import StartOutcome
    from noetl.local.events import EventFile
    from noetl.subscription.state import Listened, Task

ASK_S: Final = 0.3
AT_ONCE: Final = 16
_STARTED: Final = "playbook.started"
_ENDS: Final = ("playbook.completed", "playbook.failed", "playbook.cancelled")
_MOST_EVENTS: Final = 500


class Alone:
    """Steers a listener that nobody else steers; tells of its life in the file."""

    is_unauthorized: ClassVar[bool] = False
    requests: ClassVar[Sequence[Mapping[str, Any]]] = ()

    def __init__(self, listened: Listened, events: EventFile) -> None:
        self._listened = listened
        self._events = events
        self.task: Task = "wait"

    async def start(self) -> Listened:
        """Make the subscription known, once."""
        if self._events.is_new:
            facts = {"path": self._listened.path, "version": self._listened.version}
            self._events.tell(names.REGISTERED, facts)
        return self._listened

    async def activate(self) -> None:
        """Set it going."""
        self._events.tell(names.ACTIVATED, {})
        self.task = "listen"

    async def look(self) -> Listened:
        """Nothing changes."""
        return self._listened

    def unauthorized(self) -> None:
        """The server of the runs has refused us; it is asked again after a while."""

    async def drained(self) -> None:
        """Nothing is under way."""

    async def stop(self) -> None:
        """Nobody listens any more."""
        if self.task == "listen":
            self._events.tell(names.DRAINING, {}, reason=STOPPED_BY_ITSELF)
            self._events.tell(names.DEACTIVATED, {}, reason=STOPPED_BY_ITSELF)
            self.task = "wait"


class Letters:
    """Tells of messages that are given up, where there is no spool to keep them."""

    def __init__(self, events: EventFile) -> None:
        self._events = events

    async def put(self, item: Item, reason: str) -> None:
        """The whole message goes into the file: there is no other place for it."""
        about = {"message_id": item.message_id, "recv_seq": item.recv_seq, "spool_ref": item.ref}
        facts = {**about, "attempts": item.attempts, "reason": reason, "message": item.message}
        self._events.tell(names.DEAD_LETTERED, facts)


class HereEndings:
    """Ends of runs in this process."""

    def __init__(self) -> None:
        self._told: asyncio.Queue[RunOutcome] = asyncio.Queue()

    def ended(self, outcome: RunOutcome) -> None:
        """A run has ended."""
        self._told.put_nowait(outcome)

    async def begin(self, listened: Listened) -> None:
        """Every end is told."""

    async def follow(
        self, listened: Listened, told: Callable[[RunOutcome], Awaitable[None]]
    ) -> None:
        """Tell of every run that ends, until cancelled."""
        del listened
        while True:
            await told(await self._told.get())

    async def of(self, execution_id: str) -> RunOutcome | None:
        """Nobody remembers runs that have ended."""
        del execution_id
        return None


class ThereRuns:
    """Runs that a server is asked to start by a person: it is asked how each has ended."""

    def __init__(self, client: Client, events: EventFile) -> None:
        self._client = client
        self._events = events
        self._starter = ServerStarter(client)
        self._open: dict[str, None] = {}

    async def start(self, starts: Sequence[Start]) -> list[StartOutcome]:
        """Start runs; what only the platform's own processes may say is left out."""
        plain = [
            msgspec.structs.replace(start, ingress=None, parent_execution_id=None)
            for start in starts
        ]
        outcomes = await self._starter.start(plain)
        for outcome in outcomes:
            if outcome.is_accepted and outcome.execution_id is not None:
                self._open[outcome.execution_id] = None
        return outcomes

    async def begin(self, listened: Listened) -> None:
        """Every run is asked about."""

    async def follow(
        self, listened: Listened, told: Callable[[RunOutcome], Awaitable[None]]
    ) -> None:
        """Tell of every run that ends, until cancelled."""
        del listened
        while True:
            asked = list(self._open)
            for first in range(0, len(asked), AT_ONCE):
                some = asked[first : first + AT_ONCE]
                found = await asyncio.gather(*(self.of(one) for one in some))
                for outcome in found:
                    if outcome is not None:
                        self._open.pop(outcome.execution_id, None)
                        await told(outcome)
            await asyncio.sleep(ASK_S)

    async def of(self, execution_id: str) -> RunOutcome | None:
        """How a run has ended; none while it goes on, or when nobody can say."""
        try:
            found = await self._client.status(execution_id)
            if not found.is_terminal:
                return None
            if execution_id in self._open:
                await self._note(execution_id)
        except NoetlError:
            return None
        error = found.error or {}
        return RunOutcome(
            execution_id=execution_id,
            status=found.status,
            error_kind=str(error.get("kind", "")),
            is_retryable=bool(error.get("retryable")),
        )

    async def _note(self, execution_id: str) -> None:
        """Tell of the start and the end of a run in the file."""
        wanted = [_STARTED, *_ENDS]
        page = await self._client.events(execution_id, limit=_MOST_EVENTS, event_type=wanted)
        for row in page.items:
            self._events.row(row)
