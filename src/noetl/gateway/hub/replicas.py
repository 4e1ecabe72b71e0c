"""Words among gateways: what concerns a stream that another one holds."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.bus import subjects
from noetl.bus.base import BusGone

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.bus.base import Bus

_log: Final = logging.getLogger(__name__)
_encode: Final = msgspec.json.Encoder().encode


class Word(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """Something about a client, for whoever holds its stream."""

    client_id: str


class Superseded(Word, frozen=True, tag="superseded"):
    """A newer connection of the client was made elsewhere."""

    generation: int


class Watch(Word, frozen=True, tag="watch"):
    """The client is to be told of these runs; it was looked whether it may."""

    user_id: str
    execution_ids: tuple[str, ...]
    channels: tuple[str, ...]


class Unwatch(Word, frozen=True, tag="unwatch"):
    """The client wants to be told of these runs no more."""

    user_id: str
    execution_ids: tuple[str, ...]
    channels: tuple[str, ...]


class Acknowledged(Word, frozen=True, tag="acknowledged"):
    """The client has everything up to a message."""

    user_id: str
    event_id: str


AnyWord = Superseded | Watch | Unwatch | Acknowledged
_decode: Final = msgspec.json.Decoder(AnyWord).decode


class Replicas:
    """The other gateways."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def tell(self, word: AnyWord) -> None:
        """Tell all of them; a word that gets lost costs a client some minutes at most."""
        try:
            await self._bus.tell(subjects.HUB, _encode(word))
        except BusGone:
            _log.warning("the other gateways could not be told")

    async def listen(self, heard: Callable[[AnyWord], None]) -> None:
        """Hear what they tell, this one included."""
        async with self._bus.listen(subjects.HUB) as words:
            async for told in words:
                try:
                    word = _decode(told.payload)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    _log.warning("a gateway says what nobody understands")
                    continue
                heard(word)
