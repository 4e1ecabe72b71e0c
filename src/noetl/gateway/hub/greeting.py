"""What a client is told first, and what it is told again when its history is lost."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from noetl.errors import NoetlError
from noetl.gateway import frames

if TYPE_CHECKING:
    from noetl.gateway.hub.stream import Stream
    from noetl.gateway.hub.switchboard import Hub
    from noetl.gateway.requests import Requests

_log: Final = logging.getLogger(__name__)


async def greeting(requests: Requests, stream: Stream) -> dict[str, Any]:
    """The first message: who the client is, what it has missed, and what it waits for."""
    if stream.is_lost:
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


async def tell_again(requests: Requests, hub: Hub, stream: Stream) -> None:
    """Tell every result that has ended and was not acknowledged, when the log cannot."""
    if stream.is_lost:
        for ended in await requests.undelivered(
            stream.person, stream.client_id, is_known=stream.recovery.requested is not None
        ):
            name = f"{ended.request_id}/result/{ended.state}"
            await hub.again(stream, frames.result(ended), name)
