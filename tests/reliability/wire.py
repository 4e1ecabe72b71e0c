"""A connection between two parts that a test harms: cut, stalled, deaf on one side, slow, reset."""

from __future__ import annotations

import asyncio
import enum
import socket
import struct
from contextlib import asynccontextmanager, suppress

from tests.reliability.listening import listening

PART_BYTES = 65536
AT_ONCE = struct.pack("ii", 1, 0)
"""Of SO_LINGER: closing sends a reset instead of an end."""


class Mode(enum.Enum):
    """What becomes of the bytes of one direction."""

    OPEN = "open"
    STALLED = "stalled"
    """They wait, as in a network that loses every packet; they arrive when it heals."""
    SWALLOWED = "swallowed"
    """They are gone: such a connection is reset when the wire heals."""
    DRIPPING = "dripping"
    """A few bytes a second."""


class Way:
    """One direction of a wire, shared by all its connections."""

    def __init__(self):
        self.mode = Mode.OPEN
        self._rate = 1.0
        self._fuse = self._left = 0
        self._changed = asyncio.Event()

    def set(self, mode, *, rate=1.0, fuse=0):
        """Treat bytes so from now on; a fuse resets a connection each time so many have passed."""
        self.mode, self._rate = mode, rate
        self._fuse = self._left = fuse
        self._changed.set()
        self._changed = asyncio.Event()

    async def carry(self, line, reader, writer):
        """Copy what one side says to the other, until it ends."""
        while data := await reader.read(PART_BYTES):
            while data:
                data = await self._pass_on(line, data, writer)
        while self.mode in {Mode.STALLED, Mode.SWALLOWED}:
            await self._changed.wait()  # the end is not heard either

    async def _pass_on(self, line, data, writer):
        """What is left of the data."""
        if self.mode is Mode.SWALLOWED:
            line.has_lost = True
        if line.has_lost:
            return b""
        if self.mode is Mode.STALLED:
            await self._changed.wait()
            return data
        count = 1 if self.mode is Mode.DRIPPING else len(data)
        if self._fuse:
            count = min(count, self._left)
            self._left -= count
        writer.write(data[:count])
        await writer.drain()
        if self._fuse and not self._left:
            self._left = self._fuse
            raise ConnectionResetError
        if self.mode is Mode.DRIPPING:
            await self._pause(1 / self._rate)
        return data[count:]

    async def _pause(self, seconds):
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return


class Wire:
    """A way to a server that can be harmed; `there` is what callers say, `back` the answers."""

    def __init__(self, port):
        self._target = port
        self._lines = set()
        self._used = asyncio.Event()
        self.is_cut = False
        self.there, self.back = Way(), Way()
        self.port = 0

    @asynccontextmanager
    async def open(self):
        async with listening(self._accepted, self._left) as self.port:
            yield self

    def _left(self):
        self.cut()
        return [line.task for line in self._lines]

    def cut(self):
        """End what is connected, refuse what comes."""
        self.is_cut = True
        self._used.clear()
        for line in self._lines:
            line.end()

    def reset(self):
        """End what is connected with a reset; what comes is let through."""
        for line in self._lines:
            line.end(is_reset=True)

    def stall(self, *ways):
        """Hold back what is said, on both ways or on those that are named."""
        self._set(ways, Mode.STALLED)

    def swallow(self, *ways):
        """Lose what is said."""
        self._set(ways, Mode.SWALLOWED)

    def drip(self, *ways, rate=1.0):
        """Let through so many bytes a second."""
        self._set(ways, Mode.DRIPPING, rate=rate)

    def blow(self, *ways, after):
        """Reset a connection each time so many bytes have passed: in the middle of something."""
        self._set(ways, Mode.OPEN, fuse=after)

    def forsake(self):
        """Lose what is said on the connections that there are, for ever; new ones are well."""
        for line in self._lines:
            line.has_lost = True

    def heal(self):
        """Let everything through; a connection that has lost bytes is no use any more."""
        self.is_cut = False
        self._set((), Mode.OPEN)
        for line in self._lines:
            if line.has_lost:
                line.end(is_reset=True)

    async def carries(self):
        """Wait until somebody is connected."""
        await self._used.wait()

    @property
    def lines(self):
        """How many connections there are."""
        return len(self._lines)

    def _set(self, ways, mode, **more):
        for way in ways or (self.there, self.back):
            way.set(mode, **more)

    def _accepted(self, reader, writer):
        if self.is_cut:
            writer.close()
            return
        self._used.set()
        line = _Line(self, reader, writer)
        self._lines.add(line)
        line.task = asyncio.create_task(line.carry(self._target))
        line.task.add_done_callback(lambda _task: self._lines.discard(line))


class _Line:
    """One connection."""

    def __init__(self, wire, reader, writer):
        self.task = None
        self.has_lost = False
        self._is_reset = False
        self._is_over = False
        self._wire = wire
        self._near = (reader, writer)

    def end(self, *, is_reset=False):
        """Close both sides."""
        if not self._is_over:
            self._is_over, self._is_reset = True, is_reset
            self.task.cancel()

    async def carry(self, port):
        """Be there until one side ends."""
        reader, writer = self._near
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
        except (OSError, asyncio.CancelledError):
            await self._close(writer)
            return
        both = [
            asyncio.create_task(self._copy(self._wire.there, reader, back)),
            asyncio.create_task(self._copy(self._wire.back, there, writer)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._is_over = True
            for task in both:
                task.cancel()
            await asyncio.wait(both)
            await self._close(writer)
            await self._close(back)

    async def _copy(self, way, reader, writer):
        try:
            await way.carry(self, reader, writer)
        except OSError:
            self._is_reset = True

    async def _close(self, writer):
        taken = writer.get_extra_info("socket")
        is_open = taken.fileno() >= 0  # the other side may have closed it
        if is_open and (self._is_reset or writer.transport.get_write_buffer_size()):
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            writer.transport.abort()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
