"""The log of clients on NATS: one subject per client, read back in one question.

The broker republishes what it keeps, with its sequence and the one before, so that whoever holds
a client's connection hears it without a consumer, and knows when something was missed.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.bus import streams, subjects
from noetl.bus.base import BusGone, Letter
from noetl.bus.clients import History, Logged
from noetl.bus.link import is_nobody, status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from nats.aio.msg import Msg

    from noetl.bus.broker import Broker

EPOCH_S: Final = 1.0
"""How long it may take until a log is noticed that somebody else made anew."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""What the broker sends for one question; the rest is asked for again."""
_DIRECT: Final = f"$JS.API.DIRECT.GET.{subjects.CLIENTS_STREAM}"
_SEQUENCE: Final = "Nats-Sequence"
_BEFORE: Final = "Nats-Last-Sequence"
_LEFT: Final = "Nats-Num-Pending"
_END: Final = "204"
_NOTHING: Final = "404"
_MICROS: Final = 1_000_000
_encode: Final = msgspec.json.Encoder().encode


class NatsClients:
    """What each client was told."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._epoch = ""
        self._epoch_of: tuple[int, int] = (0, 0)
        self._epoch_until = 0.0
        self._asking = asyncio.Lock()

    async def epoch(self) -> str:
        """Which log it is: the time at which its stream was made."""
        async with self._asking:  # many ask at the same time, after a lost connection
            now = asyncio.get_running_loop().time()
            life = (self._broker.connections, self._broker.repairs)
            is_known = self._epoch_of == life and now < self._epoch_until
            if not (is_known and self._broker.is_connected):
                await self._info()
            return self._epoch

    async def append(self, client_id: str, payload: bytes, msg_id: str) -> int:
        """Keep a message, once per client and id."""
        name = f"{subjects.token(client_id)}/{msg_id}" if msg_id else ""
        letter = Letter(subjects.clients(client_id), payload, name)
        (ack,) = await self._broker.publish((letter,))
        return 0 if ack.duplicate else ack.seq

    async def after(self, client_id: str, seq: int, limit: int = 1000) -> History:
        """What came after a sequence, in order."""
        messages, is_there = await self._read(client_id, seq, limit)
        is_whole = is_there or await self._is_whole(seq)
        return History(tuple(messages), is_whole)

    @asynccontextmanager
    async def hear(self, client_id: str, heard: Callable[[Logged], None]) -> AsyncIterator[None]:
        """Have a function called with what comes from now on."""

        def read(msg: Msg) -> None:
            if (message := _logged(msg)) is not None:
                heard(message)

        async with self._broker.hear(subjects.live(client_id), read):
            yield

    async def forget(self, client_id: str) -> None:
        """Delete a client's messages."""
        purge = {"filter": subjects.clients(client_id)}
        self._epoch_until = 0.0  # whoever forgets wants to know which log it is
        link = self._broker.here()
        try:
            await link.call(f"STREAM.PURGE.{subjects.CLIENTS_STREAM}", purge)
        except streams.ApiFault as fault:
            if fault.err_code != streams.NO_STREAM:
                raise

    async def _read(self, client_id: str, seq: int, limit: int = 1000) -> tuple[list[Logged], bool]:
        """Messages after a sequence, and whether the one that has it is there."""
        found: list[Logged] = []
        is_there, start, before = False, max(seq, 1), 0
        while len(found) < limit:
            asked = {
                "seq": start,
                "next_by_subj": subjects.clients(client_id),
                "batch": limit - len(found) + (start == seq),
                "max_bytes": MOST_BYTES,
            }
            *messages, end = await self._ask(_encode(asked))
            if status(end) not in {_END, _NOTHING}:
                raise BusGone(f"the broker does not tell what a client was told: {status(end)}")
            for msg in messages:
                at = int((msg.headers or {})[_SEQUENCE])
                if at == seq:
                    is_there = True
                else:
                    found.append(Logged(at, msg.data, before))
                start, before = at + 1, at
            if not messages or (end.headers or {}).get(_LEFT, "0") == "0":
                break
        return found, is_there

    async def _ask(self, asked: bytes) -> list[Msg]:
        """What the broker tells of the log; one that is missing is made."""
        link = self._broker.here()
        parts = await link.ask_all(_DIRECT, asked)
        if is_nobody(parts[-1]):
            await self._broker.repair(link)
            parts = await link.ask_all(_DIRECT, asked)
        return parts

    async def _is_whole(self, seq: int) -> bool:
        """Whether nothing of any client that came after a sequence was forgotten."""
        state = (await self._info())["state"]
        is_in_reach: bool = state["first_seq"] - 1 <= seq <= state["last_seq"]
        return is_in_reach and not state.get("num_deleted", 0)

    async def _info(self) -> dict[str, Any]:
        """What the stream says of itself; its epoch is kept for a while."""
        found = await self._broker.info(subjects.CLIENTS_STREAM)
        made_at = datetime.fromisoformat(found["created"])
        self._epoch = f"{round(made_at.timestamp() * _MICROS):x}"
        self._epoch_of = (self._broker.connections, self._broker.repairs)
        self._epoch_until = asyncio.get_running_loop().time() + EPOCH_S
        return found


def _logged(msg: Msg) -> Logged | None:
    headers = msg.headers or {}
    if _SEQUENCE not in headers:
        return None  # not from the log
    return Logged(int(headers[_SEQUENCE]), msg.data, int(headers.get(_BEFORE) or 0))
