"""Dead letters that the server keeps itself: sent again and dropped, as somebody has asked.

A letter goes with the event that tells what became of it. The key of its run follows from the
letter alone: whoever starts it once more, after a crash or beside another server, finds that run.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.executions import MOST_START_BYTES
from noetl.api.models import decoder_of
from noetl.blobs.spool.item import Corrupt, Item
from noetl.engine.events import OF_SUBSCRIPTIONS
from noetl.engine.subscriptions import DEAD_LETTERED, DISCARDED, REDRIVEN
from noetl.errors import NoetlError
from noetl.intake.deliveries import Listener, replay_start
from noetl.intake.dispatch import Start
from noetl.intake.lanes import Pace
from noetl.server.access.caller import Caller
from noetl.server.subscriptions.errors import UnknownSubscription
from noetl.server.subscriptions.logs import Entry, Told
from noetl.telemetry.failpoint import armed, failpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from noetl.api.executions import Started
    from noetl.server.parts import ServerParts
    from noetl.server.subscriptions.desk import SubscriptionDesk
    from noetl.server.subscriptions.letters import LetterDesk
    from noetl.store.subscriptions import LetterRow, SubscriptionRow

    Asked = Mapping[str, Any]
    Execute = Callable[[Start, Caller], Awaitable[Started]]

_LISTENER: Final = ("runtime",)
"""A letter may do what it could when it came: what those may who take messages in."""
_UNREADABLE: Final = "corrupt"
_REFUSED: Final = "dispatch_rejected"
_PAGE: Final = 100
_FAULTS: Final = (
    KeyError, TypeError, ValueError, AttributeError, RecursionError, msgspec.MsgspecError,
)  # fmt: skip
"""What comes of a letter that never was a message."""
_log: Final = logging.getLogger(__name__)


class Redriving:
    """Does what is wanted of letters that no spool keeps."""

    def __init__(
        self, parts: ServerParts, desk: SubscriptionDesk, letters: LetterDesk, execute: Execute
    ) -> None:
        self._clock = parts.clock
        self._kept = parts.store.letters
        self._desk = desk
        self._letters = letters
        self._execute = execute

    async def do(self, subscription_id: str) -> None:
        """All that is wanted of one subscription; what cannot be now is left for later."""
        row = await self._discard(subscription_id)
        for asked in _asked(row, "redrive"):
            await self._redrive(subscription_id, asked)

    async def _discard(self, subscription_id: str) -> SubscriptionRow:
        """Drop what is to be dropped; the subscription as it was found."""
        row = await self._desk.logs.row(subscription_id)
        if row is None:
            raise UnknownSubscription(f"there is no subscription {subscription_id}")
        for asked in _asked(row, "discard"):
            async for letter in self._named(subscription_id, asked):
                facts = {**_about(letter), "reason": str(asked.get("reason") or "")}
                await self._tell(row, letter, asked, [(DISCARDED, facts)])
        return row

    async def _redrive(self, subscription_id: str, asked: Asked) -> None:
        rate = asked.get("rate")
        pace = Pace(float(rate) if rate else None, self._clock)
        async for letter in self._named(subscription_id, asked):
            await pace.wait()
            row = await self._discard(subscription_id)
            if row.state == "PAUSED" or not _is_open(row, asked):  # what is paused waits
                return
            if await self._kept.get(subscription_id, letter.ref) is None:
                continue
            if not await self._again(row, letter, asked):
                return

    async def _named(self, subscription_id: str, asked: Asked) -> AsyncIterator[LetterRow]:
        """The letters of a request that lie here; those that came after it are not meant."""
        if not asked.get("all"):
            for ref in asked.get("refs", ()):
                found = await self._kept.get(subscription_id, ref)
                if found is not None and found.result_ref is not None:
                    yield found
            return
        after = None
        while page := await self._kept.page(subscription_id, after, _PAGE):
            for letter in page:
                if letter.at > str(asked["at"]):
                    return
                if letter.result_ref is not None:
                    yield letter
            after = (page[-1].at, page[-1].ref)

    async def _again(self, row: SubscriptionRow, letter: LetterRow, asked: Asked) -> bool:
        """Start the run of one; false when that cannot be now.

        One that is refused for good was tried again, and is a dead letter once more.
        """
        about, reason = _about(letter), _UNREADABLE
        caller = Caller(str(asked.get("actor") or ""), _LISTENER, tenant_id=row.tenant_id)
        try:
            start = await self._start(row, letter)
            reason = _REFUSED
            started = await self._execute(start, caller)
        except NoetlError as fault:
            _log.warning("a dead letter cannot run", extra={"path": row.path, "code": fault.code})
            if fault.retryable:
                return False
            dead = {**about, "reason": reason, "code": fault.code, "attempts": letter.attempts}
            await self._tell(row, letter, asked, [(REDRIVEN, about), (DEAD_LETTERED, dead)])
            return True
        if armed:
            await failpoint("subscription.redrive")
        run = started.execution_id  # the event has its id: told twice it is one event
        await self._tell(row, letter, asked, [(REDRIVEN, {**about, "execution_id": run})], run)
        return True

    async def _start(self, row: SubscriptionRow, letter: LetterRow) -> Start:
        """The run that a letter asks for, as its listener would have asked for it."""
        item = Item.decode(await self._letters.data(letter.result_ref or "")).redriven()
        _, spec = await self._desk.specs.of(row)
        listener = Listener(subscription_id=row.subscription_id, path=row.path, spec=spec)
        try:
            data = msgspec.json.encode(replay_start(listener, item))
            start: Start = decoder_of(Start).decode(data)
        except _FAULTS as fault:
            raise Corrupt(f"the letter {letter.ref[:80]} is no message") from fault
        if len(data) > MOST_START_BYTES:
            raise Corrupt(f"the letter {letter.ref[:80]} is too large")
        return start

    async def _tell(
        self,
        row: SubscriptionRow,
        letter: LetterRow,
        asked: Asked,
        events: Iterable[tuple[str, dict[str, Any]]],
        event_id: str | None = None,
    ) -> None:
        about = {"actor": str(asked.get("actor") or "")}
        results = {} if letter.result_ref is None else {letter.ref: letter.result_ref}

        def make(_row: object) -> Entry:
            told = [
                Told(OF_SUBSCRIPTIONS[name](facts=facts, about=about), event_id)
                for name, facts in events
            ]
            return Entry(told, results=results)

        await self._desk.logs.append(row.subscription_id, make)


def _asked(row: SubscriptionRow, action: str) -> list[Asked]:
    """The requests of a kind that are not done."""
    return [asked for asked in row.summary.get("requests", ()) if asked.get("action") == action]


def _is_open(row: SubscriptionRow, asked: Asked) -> bool:
    """Whether something of a request is left."""
    named = asked["request_id"]
    return any(one["request_id"] == named for one in row.summary.get("requests", ()))


def _about(letter: LetterRow) -> dict[str, Any]:
    return {"ref": letter.ref, "message_id": letter.message_id}
