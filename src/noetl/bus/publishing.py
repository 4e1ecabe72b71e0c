"""Publishing to streams: many messages under way at once, each with an answer of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.bus.base import BusGone
from noetl.bus.link import ANSWER_S, is_nobody
from noetl.bus.streams import ApiFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.msg import Msg

    from noetl.bus.base import Letter
    from noetl.bus.link import Link

_MSG_ID: Final = "Nats-Msg-Id"


class Unanswered(BusGone):
    """The broker was there and kept nothing."""


class _Refusal(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class Ack(msgspec.Struct, frozen=True):
    """What the broker says about a published message."""

    seq: int = 0
    duplicate: bool = False
    error: _Refusal | None = None


_ACK: Final = msgspec.json.Decoder(Ack)


async def publish(link: Link, letters: Sequence[Letter]) -> tuple[list[Ack], list[Letter]]:
    """Send all, then wait for all; what was kept, and what no stream takes."""
    asked: list[tuple[Letter, asyncio.Future[Msg | None]]] = []
    try:
        async with asyncio.timeout(ANSWER_S):
            for letter in letters:
                headers = {_MSG_ID: letter.msg_id} if letter.msg_id else {}
                headers |= dict(letter.headers)
                asked.append((letter, await link.ask(letter.subject, letter.payload, headers)))
            answers = [(letter, await answer) for letter, answer in asked]
    except TimeoutError as fault:
        raise Unanswered(f"the broker kept no message in {ANSWER_S:g} s") from fault
    finally:
        for _, answer in asked:
            answer.cancel()
    kept, homeless = [], []
    for letter, msg in answers:
        if msg is None:
            raise BusGone("the connection to the broker was lost while publishing")
        if is_nobody(msg):
            homeless.append(letter)
            continue
        ack = _ACK.decode(msg.data)
        if ack.error is not None:
            why = f"the broker did not keep a message: {ack.error.description}"
            raise ApiFault(ack.error.code, ack.error.err_code, why)
        kept.append(ack)
    return kept, homeless
