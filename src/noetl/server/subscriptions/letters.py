"""Dead letters: listed, kept for runtimes that have no spool, sent again and dropped on request."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.subscriptions import DeadLetter, DeadLetters, LettersRequested
from noetl.edge.errors import NotFound, Unacceptable
from noetl.engine.events import OF_SUBSCRIPTIONS
from noetl.engine.subscriptions import DEAD_LETTERED, DISCARD_REQUESTED, REDRIVE_REQUESTED
from noetl.ids import parse
from noetl.server.access.caller import LOCAL
from noetl.server.access.listening import CONTROL, READ
from noetl.server.subscriptions.logs import Entry, Told
from noetl.server.values.stored import Wish

if TYPE_CHECKING:
    from noetl.api.subscriptions import LettersWanted, PutDeadLetter
    from noetl.edge.cursor import Cursors
    from noetl.server.access.caller import Caller
    from noetl.server.subscriptions.desk import SubscriptionDesk
    from noetl.server.values.stored import Values
    from noetl.store.subscriptions import LetterRow, Letters

MOST_REFS: Final = 1_000
MOST_REF: Final = 2_048
MOST_REASON: Final = 255
_encode: Final = msgspec.json.Encoder().encode


class LetterDesk:
    """What callers do with dead letters."""

    def __init__(
        self, desk: SubscriptionDesk, letters: Letters, values: Values, cursors: Cursors
    ) -> None:
        self._desk = desk
        self._letters = letters
        self._values = values
        self._cursors = cursors
        self.asked = asyncio.Event()
        """Letters that lie here may be wanted."""

    async def page(
        self,
        caller: Caller,
        subscription_id: str,
        limit: int,
        cursor: str | None,
        *,
        with_items: bool = False,
    ) -> DeadLetters:
        """A page, oldest first."""
        row = await self._desk.found(caller, READ, subscription_id)
        filters = {"letters": row.subscription_id}
        after = None if cursor is None else tuple(self._cursors.decode(cursor, filters))
        found = await self._letters.page(row.subscription_id, after, limit + 1)
        page = found[:limit]
        items = [_shown(letter) for letter in page]
        if with_items:
            items = [await self._with_item(item) for item in items]
        more = len(found) > limit
        place = (page[-1].at, page[-1].ref) if more else None
        return DeadLetters(
            items=tuple(items),
            next_cursor=self._cursors.encode(filters, place) if more else None,
        )

    async def _with_item(self, letter: DeadLetter) -> DeadLetter:
        if letter.result_ref is None:
            return letter
        data = await self.data(letter.result_ref)
        return msgspec.structs.replace(letter, item=msgspec.json.decode(data))

    async def data(self, result_ref: str) -> bytes:
        """The message of a letter that lies here, as it was put."""
        resolved = await self._values.resolved(LOCAL, result_ref)
        return b"".join([part async for part in resolved.bytes(0, None)])

    async def put(self, caller: Caller, subscription_id: str, body: PutDeadLetter) -> DeadLetter:
        """Keep a message that no spool keeps, and tell of it in one go; once per reference."""
        row = await self._desk.told_by(caller, subscription_id)
        if not 1 <= len(body.ref) <= MOST_REF or len(body.reason) > MOST_REASON:
            raise Unacceptable(
                "the letter is out of bounds",
                hint=f"`ref` has 1..{MOST_REF}, `reason` up to {MOST_REASON} characters",
            )
        known = await self._letters.get(row.subscription_id, body.ref)
        if known is not None:
            return _shown(known)
        digest = sha256(body.ref.encode()).hexdigest()[:32]
        wish = Wish(name="dead-letters", scope="permanent", id=digest)
        kept, _ = await self._values.put(caller, row.subscription_id, wish, _encode(body.item))
        facts: dict[str, Any] = {
            "ref": body.ref,
            "message_id": body.message_id,
            "reason": body.reason,
            "attempts": body.attempts,
        }
        facts |= {
            name: value
            for name in ("recv_seq", "downstream")
            if (value := getattr(body, name)) is not None
        }
        event_id = None if body.event_id is None else parse(body.event_id)

        def make(_row: object) -> Entry:
            event = OF_SUBSCRIPTIONS[DEAD_LETTERED](facts=facts, about={"actor": caller.account})
            return Entry([Told(event, event_id)], results={body.ref: kept.ref})

        await self._desk.logs.append(row.subscription_id, make)
        letter = await self._letters.get(row.subscription_id, body.ref)
        if letter is None:  # it was sent again or dropped in the meantime
            raise NotFound(f"the letter {body.ref[:80]} is gone")
        return _shown(letter)

    async def redrive(
        self, caller: Caller, subscription_id: str, body: LettersWanted
    ) -> LettersRequested:
        """Ask whoever keeps letters to try them again: the holder of the spool, or a server."""
        return await self._request(caller, subscription_id, body, REDRIVE_REQUESTED)

    async def discard(
        self, caller: Caller, subscription_id: str, body: LettersWanted
    ) -> LettersRequested:
        """Ask whoever keeps letters to drop them."""
        if body.rate is not None:
            raise Unacceptable("letters are dropped at once: `rate` is for a redrive")
        return await self._request(caller, subscription_id, body, DISCARD_REQUESTED)

    async def _request(
        self, caller: Caller, subscription_id: str, body: LettersWanted, name: str
    ) -> LettersRequested:
        row = await self._desk.found(caller, CONTROL, subscription_id)
        if bool(body.refs) == body.all or len(body.refs) > MOST_REFS:
            raise Unacceptable(f"name up to {MOST_REFS} letters in `refs`, or `all`, not both")
        if body.rate is not None and body.rate <= 0:
            raise Unacceptable("`rate` is more than 0 a second")
        refs = tuple(dict.fromkeys(body.refs))
        lying_here = 0
        for ref in refs:
            letter = await self._letters.get(row.subscription_id, ref)
            if letter is None:
                raise NotFound(f"there is no dead letter {ref[:80]}")
            lying_here += letter.result_ref is not None
        count = len(refs) or await self._letters.counted(row.subscription_id)
        if count == 0:
            return LettersRequested(request_id="", count=0, status="nothing")
        if body.all:
            lying_here = await self._letters.counted(row.subscription_id, is_here=True)
        facts: dict[str, Any] = {"remaining": count}
        if lying_here:  # whoever holds a spool does not know when these are done
            facts["lying_here"] = lying_here
        facts |= {"all": True} if body.all else {"refs": list(refs)}
        if body.rate is not None:
            facts["rate"] = body.rate
        about = {"actor": caller.account, "reason": body.reason}

        def make(_row: object) -> Entry:
            return Entry([Told(OF_SUBSCRIPTIONS[name](facts=facts, about=about))])

        entry = await self._desk.logs.append(row.subscription_id, make)
        self.asked.set()
        await self._desk.hints.changed(row.listener)
        return LettersRequested(request_id=entry.events[0].minted, count=count)


def _shown(letter: LetterRow) -> DeadLetter:
    return DeadLetter(
        ref=letter.ref,
        message_id=letter.message_id,
        reason=letter.reason,
        attempts=letter.attempts,
        at=letter.at,
        result_ref=letter.result_ref,
    )
