"""Answers from outside to commands that wait for one: whoever has the key may give it, once."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.callbacks import CallbackTaken
from noetl.edge.bodies import must_be_plain
from noetl.edge.errors import BadJson, Expired, NotFound, TooLarge
from noetl.engine import events as ev
from noetl.server.fleet.reports import find_command
from noetl.server.ingest.posts import Post, Stamped
from noetl.store.views import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.engine.state import State
    from noetl.server.ingest.queue import Ingest
    from noetl.store.base import Store

MOST_BYTES: Final = 64 * 1024


class Answers:
    """Resumes parked commands."""

    def __init__(self, store: Store, ingest: Ingest) -> None:
        self._store = store
        self._ingest = ingest

    async def answer(self, callback_key: str, body: bytes) -> CallbackTaken:
        """Give the data of the step that waits; the same answer again is 200, a late one 410."""
        if len(body) > MOST_BYTES:
            raise TooLarge(f"an answer has at most {MOST_BYTES} bytes")
        must_be_plain(body)
        data = _decoded(body)
        found = await self._store.callbacks.command_of(digest_of(callback_key))
        if found is None:
            raise NotFound("no command waits for this key")
        execution_id, command_id = found
        # Derived from key and body, so that a repeat is found and another answer is late.
        event_id = _event_id(callback_key, body)

        stored = await self._store.log.find(execution_id, event_id)

        def make(state: State) -> Iterator[Stamped]:
            command = find_command(state, command_id)
            if command is not None and command.callback_key == callback_key:
                yield Stamped(
                    ev.CallDone(
                        step=command.step,
                        command_key=command.key,
                        attempt=command.attempt,
                        result=data,
                    ),
                    event_id,
                    command.id,
                )
            elif stored is None:
                raise Expired("the command waits no more")

        await self._ingest.post(Post(execution_id, make))
        return CallbackTaken(execution_id=execution_id, command_id=command_id)


def _decoded(body: bytes) -> Any:  # noqa: ANN401 - JSON of the caller's own
    try:
        return msgspec.json.decode(body) if body else None
    except msgspec.DecodeError as fault:
        raise BadJson(f"the body is not JSON: {fault}") from None


def _event_id(callback_key: str, body: bytes) -> str:
    digest = sha256(callback_key.encode() + b"\0" + body).digest()
    return str(int.from_bytes(digest[:8], "big") >> 1 | 1)
