"""Server-sent events: how a stream is read, and which transports carry one or take one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import msgspec

from noetl.api.http import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from noetl.api.http import Answer

_decode: Final = msgspec.json.Decoder().decode


@runtime_checkable
class StreamTransport(Protocol):
    """Carries an answer that comes bit by bit."""

    def stream(
        self, path: str, headers: Mapping[str, str] = NO_HEADERS
    ) -> AbstractAsyncContextManager[tuple[int, AsyncIterator[bytes]]]:
        """The status, and the body as it comes."""


@runtime_checkable
class UploadTransport(Protocol):
    """Carries a body that comes bit by bit."""

    async def upload(
        self,
        method: str,
        path: str,
        chunks: AsyncIterable[bytes],
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Answer:
        """The answer; `NoAnswer` when there is none."""


async def parsed(chunks: AsyncIterable[bytes]) -> AsyncIterator[dict[str, Any]]:
    """Events of a stream as `{event, id, data}`; `data` is read as JSON. Comments are left out."""
    rest = b""
    async for chunk in chunks:
        *blocks, rest = (rest + chunk.replace(b"\r\n", b"\n")).split(b"\n\n")
        for block in blocks:
            told = _event(block)
            if told is not None:
                yield told


def _event(block: bytes) -> dict[str, Any] | None:
    fields: dict[str, list[str]] = {}
    for line in block.decode().split("\n"):
        name, _, value = line.partition(":")
        if name:
            fields.setdefault(name, []).append(value.removeprefix(" "))
    if "data" not in fields:
        return None
    return {
        "event": fields.get("event", ["message"])[-1],
        "id": fields.get("id", [None])[-1],
        "data": _decode("\n".join(fields["data"])),
    }
