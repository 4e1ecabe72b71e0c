"""Large bytes between code and the run: pieces of them pass the channel, one at a time.

The child opens its own files with its own rights, so nothing here follows a path that code chose.
A piece is answered before the next one comes: neither side ever has more than one in memory.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from noetl.tools.base import ToolError
from noetl.tools.interpreter.frames import Exchanged, Next, Open, Part
from noetl.tools.stored import UNKNOWN, Spool, about, stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.tools.base import ToolContext
    from noetl.tools.interpreter.limits import Limits

MOST_PART_BYTES: Final = 1 << 20


class Exchange:
    """The blobs of one command; it is closed with the command."""

    def __init__(self, ctx: ToolContext, limits: Limits) -> None:
        self._ctx = ctx
        self._most = None if limits.disk_mb is None else limits.disk_mb << 20
        self._turn = asyncio.Lock()
        self._opened = AsyncExitStack()
        self._spool: Spool | None = None
        self._written = 0
        self._read: AsyncIterator[bytes] | None = None

    async def answered(self, frame: Exchanged) -> dict[str, Any]:
        """What the child is told; a fault becomes an exception of the code."""
        async with self._turn:
            try:
                return {"op": "value", "value": await self._done(frame)}
            except Exception as fault:  # noqa: BLE001 - the border: the code sees it as its own exception
                await self.close()
                said = fault.message if isinstance(fault, ToolError) else str(fault)
                return {"op": "value", "error": said or type(fault).__name__}

    async def close(self) -> None:
        """Forget what was not stored."""
        await self._opened.aclose()
        self._opened = AsyncExitStack()
        self._spool = self._read = None

    async def _done(self, frame: Exchanged) -> Any:  # noqa: ANN401 - what the frame asks for
        if isinstance(frame, Part):
            return await self._taken(frame.data)
        if isinstance(frame, Open):
            await self.close()
            found = await about(frame.ref, self._ctx)
            self._must_fit(found.size)
            self._read = stream(frame.ref, self._ctx)
            self._opened.push_async_callback(self._read.aclose)  # type: ignore[attr-defined]  # a generator
            return found.size
        if isinstance(frame, Next):
            return None if self._read is None else await anext(self._read, None)
        if self._spool is None:
            await self._taken(b"")
        made = await self._stored(frame.content_type)
        await self.close()
        return made

    async def _taken(self, data: bytes) -> None:
        if self._spool is None:
            await self.close()
            self._spool, self._written = Spool(self._ctx), 0
            await self._opened.enter_async_context(self._spool)
        self._written += len(data)
        if len(data) > MOST_PART_BYTES:
            raise ToolError("limit", "output_limit", "a piece of a blob is too large")
        self._must_fit(self._written)
        await self._spool.write(data)

    async def _stored(self, media_type: str) -> dict[str, Any]:
        if self._spool is None:
            raise AssertionError("there is a spool when something is stored")
        return await self._spool.store(media_type or UNKNOWN)

    def _must_fit(self, size: int) -> None:
        if self._most is not None and size > self._most:
            message = f"a blob of over {self._most >> 20} MiB: raise `limits.disk_mb`"
            raise ToolError("limit", "disk_limit", message)
