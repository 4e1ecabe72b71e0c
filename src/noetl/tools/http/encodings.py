"""Bodies as they were before they were compressed, in pieces that fit in memory."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, Protocol

from noetl.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

ACCEPTED: Final = "gzip, deflate, zstd"
MOST_CODINGS: Final = 3
_PIECE: Final = 1 << 20
_WINDOW: Final = 8 << 20
"""What a decoder of zstd must be able to remember, and no more (RFC 9659)."""
_STEP: Final = 64
_ZLIB_HEAD: Final = 2


class Decoder(Protocol):
    """Expands a body while it comes."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The pieces that this chunk gives."""

    def is_complete(self) -> bool:
        """Whether the body may end here."""


async def decoded(chunks: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """The body without its codings; those that were applied last are taken off first."""
    decoders = _decoders(encoding)
    async for chunk in chunks:
        for piece in _through(decoders, chunk):
            yield piece
    if not all(one.is_complete() for one in decoders):
        raise _broken("it ends too early")


def _decoders(encoding: str) -> list[Decoder]:
    words = [word.strip().lower() for word in encoding.split(",")]
    words = [word for word in words if word not in {"", "identity"}]
    unknown = [word for word in words if word not in _KNOWN]
    if unknown or len(words) > MOST_CODINGS:
        message = f"the answer is encoded as {encoding.strip()[:40]}"
        raise ToolError("parse", "unsupported_encoding", message)
    return [_KNOWN[word]() for word in reversed(words)]


def _through(decoders: list[Decoder], chunk: bytes) -> Iterator[bytes]:
    if not decoders:
        yield chunk
        return
    first, *others = decoders
    for piece in first.feed(chunk):
        yield from _through(others, piece)


def _broken(said: object) -> ToolError:
    message = f"the answer cannot be decompressed: {said}"
    return ToolError("parse", "invalid_encoding", message)


class Gzip:
    """Members of gzip, one after the other."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._is_begun = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Expand so much at a time as memory is worth."""
        self._is_begun = self._is_begun or bool(chunk)
        while chunk:
            if self._stream.eof:
                if not chunk.lstrip(b"\0"):  # some writers fill up their last block
                    return
                self._stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                piece = self._stream.decompress(chunk, _PIECE)
            except zlib.error as fault:
                raise _broken(fault) from None
            chunk = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            if piece:
                yield piece

    def is_complete(self) -> bool:
        """Whether a member has just ended, or nothing came at all."""
        return self._stream.eof or not self._is_begun


class Deflate:
    """A stream of zlib, or a bare one: servers do not agree on what the word means."""

    def __init__(self) -> None:
        self._head = b""
        self._stream: zlib._Decompress | None = None

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Expand so much at a time as memory is worth."""
        if self._stream is None:
            self._head += chunk
            if len(self._head) < _ZLIB_HEAD:
                return
            chunk, is_zlib = self._head, _begins_zlib(self._head)
            self._stream = zlib.decompressobj(zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)
        while chunk and not self._stream.eof:
            try:
                piece = self._stream.decompress(chunk, _PIECE)
            except zlib.error as fault:
                raise _broken(fault) from None
            chunk = self._stream.unconsumed_tail
            if piece:
                yield piece

    def is_complete(self) -> bool:
        """Whether the stream has ended, or nothing came at all."""
        return not self._head if self._stream is None else self._stream.eof


def _begins_zlib(head: bytes) -> bool:
    """Whether the first two bytes are those of a stream of zlib (RFC 1950)."""
    return head[0] & 0x0F == zlib.DEFLATED and int.from_bytes(head[:2], "big") % 31 == 0


class Zstd:
    """Frames of zstd, one after the other.

    A block of a few bytes may expand to 128 KiB, and the decoder takes no limit: it is fed so
    little at a time that the pieces stay small.
    """

    def __init__(self) -> None:
        import zstandard  # noqa: PLC0415 - few servers send it

        self._fault = zstandard.ZstdError
        self._maker = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        self._frame = self._maker.decompressobj()
        self._is_begun = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Expand a few blocks at a time."""
        self._is_begun = self._is_begun or bool(chunk)
        for start in range(0, len(chunk), _STEP):
            step = chunk[start : start + _STEP]
            while step:
                if self._frame.eof:
                    self._frame = self._maker.decompressobj()
                try:
                    piece = self._frame.decompress(step)
                except self._fault as fault:
                    raise _broken(fault) from None
                step = self._frame.unused_data
                if piece:
                    yield piece

    def is_complete(self) -> bool:
        """Whether a frame has just ended, or nothing came at all."""
        return self._frame.eof or not self._is_begun


_KNOWN: Final[dict[str, type[Decoder]]] = {
    "gzip": Gzip, "x-gzip": Gzip, "deflate": Deflate, "zstd": Zstd,
}  # fmt: skip
