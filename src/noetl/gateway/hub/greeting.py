"""What a client is told first, and what it is told again when its history is lost."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from noetl.errors import NoetlError
from noetl.gateway import frames
from noetl.gateway.hub.stream import PAGE

if TYPE_CHECKING:
    from noetl.gateway.hub.stream import Stream
    from noetl.gateway.hub.switchboard import Hub
    from noetl.gateway.requests import Requests

MOST_UNREAD: Final = 1024 * 1024
"""Bytes of results that are told again before the reader has taken them; at most `PAGE` results."""
AGAIN_S: Final = 1.0
_log: Final = logging.getLogger(__name__)


async def greeting(requests: Requests, stream: Stream) -> dict[str, Any]:
    """The first message: who the client is, what it has missed, and what it waits for."""
    if not (stream.is_new or stream.is_lost):
        stream.is_lost = await requests.owes(stream.client_id)
    if stream.is_lost:
        await requests.owe(stream.client_id)
        try:
            await requests.restored(stream.person, stream.client_id)
        except NoetlError as fault:  # the bucket may know what the server cannot tell
            _log.warning("requests of a client are not restored", extra={"code": fault.code})
    pending = [] if stream.is_new else await requests.pending(stream.person, stream.client_id)
    return frames.init(
        client_id=stream.client_id,
        epoch=stream.epoch,
        expires_at=stream.person.expires_at,
        recovery=stream.recovery.told(),
        pending=pending,
    )


def tell_again(requests: Requests, hub: Hub, stream: Stream) -> None:
    """Begin to tell every result that has ended and was not acknowledged, when the log cannot."""
    if stream.is_lost:
        hub.beside(stream, _tell_all(requests, hub, stream))


async def _tell_all(requests: Requests, hub: Hub, stream: Stream) -> None:
    """Tell results, however often the bus goes away meanwhile, as long as the stream is there.

    A client that leaves before the last one is told them when it comes back.
    """
    told: set[str] = set()
    while True:
        try:
            await _tell_rest(requests, hub, stream, told)
            await requests.owe_nothing(stream.client_id)
        except NoetlError as fault:
            _log.warning("results of a client are told again later", extra={"code": fault.code})
            await asyncio.sleep(AGAIN_S)
        else:
            return


async def _tell_rest(requests: Requests, hub: Hub, stream: Stream, told: set[str]) -> None:
    """Tell results at the pace of the reader: neither his queue nor his log takes all of them."""
    is_known, count, size, last = stream.recovery.requested is not None, 0, 0, 0
    ended = requests.undelivered(stream.person, stream.client_id, is_known=is_known)
    async with aclosing(ended):
        async for document in ended:
            if document.request_id in told:
                continue
            frame = frames.result(document)
            if count >= PAGE or size >= MOST_UNREAD:
                await stream.taken(last)
                count, size = 0, 0
            count, size = count + 1, size + len(frame)
            name = f"{document.request_id}/result/{document.state}"
            last = max(last, await hub.again(stream, frame, name))
            told.add(document.request_id)
    await stream.taken(last)
