"""Bytes made smaller on their way into a store, and as they were on their way out.

They are packed in pieces of 1 MiB, each of which can be unpacked alone: a reader never has more
than one of them in memory, however small a store has made it. Any `gunzip` or `zstd` reads them.
"""

from __future__ import annotations

import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

from noetl.blobs.base import CHUNK_BYTES, BlobDamaged

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator

Packing = Literal["none", "gzip", "zstd"]
SUFFIXES: Final[dict[Packing, str]] = {"none": "", "gzip": ".gz", "zstd": ".zst"}
"""How the names of packed objects end."""
ENCODINGS: Final[dict[Packing, str]] = {"gzip": "gzip", "zstd": "zstd"}
"""How web servers call it (`Content-Encoding`)."""
PIECE_BYTES: Final = 1 << 20
_GZIP: Final = 31  # the window of zlib, with the header of gzip
_FED_BYTES: Final = 64 * 1024


def packing_of(name: str) -> Packing:
    """How an object of this name is packed."""
    return next((how for how, end in SUFFIXES.items() if end and name.endswith(end)), "none")


def packed(data: bytes, how: Packing) -> bytes:
    """Bytes that are there as a whole, packed."""
    pack = _packer(how)
    starts = range(0, max(1, len(data)), PIECE_BYTES)
    return b"".join(pack(data[start : start + PIECE_BYTES]) for start in starts)


async def packed_stream(chunks: AsyncIterable[bytes], how: Packing) -> AsyncIterator[bytes]:
    """The same bytes, packed."""
    pack, rest, count = _packer(how), bytearray(), 0
    async for chunk in chunks:
        rest += chunk
        while len(rest) >= PIECE_BYTES:
            yield pack(bytes(rest[:PIECE_BYTES]))
            del rest[:PIECE_BYTES]
            count += 1
    if rest or not count:
        yield pack(bytes(rest))


async def unpacked_stream(
    chunks: AsyncIterable[bytes], how: Packing, most_bytes: int | None = None
) -> AsyncIterator[bytes]:
    """The bytes as they were; refused when they are damaged, or more than was said."""
    reader, size = _Reader(how), 0
    async for chunk in chunks:
        for start in range(0, len(chunk), _FED_BYTES):
            for piece in reader.feed(chunk[start : start + _FED_BYTES]):
                size += len(piece)
                if most_bytes is not None and size > most_bytes:
                    raise BlobDamaged("more comes out of a packed object than went in")
                for part in range(0, len(piece), CHUNK_BYTES):
                    yield piece[part : part + CHUNK_BYTES]
    reader.end()


async def part_of(
    chunks: AsyncIterator[bytes], first: int, last: int | None
) -> AsyncIterator[bytes]:
    """Those of the bytes from `first` to `last`, both included."""
    place = 0
    async for chunk in chunks:
        start, end = max(0, first - place), len(chunk)
        if last is not None:
            end = min(end, last + 1 - place)
        if start < end:
            yield chunk[start:end]
        place += len(chunk)
        if last is not None and place > last:
            return


class _Reader:
    """Unpacks piece after piece."""

    def __init__(self, how: Packing) -> None:
        self._make = _unpacker(how)
        self._now: Any = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What this chunk tells; at most one piece at a time."""
        while data:
            if self._now is None:
                self._now = self._make()
            with _damage():
                made = self._now.decompress(data)
            if made:
                yield made
            if not self._now.eof:
                return
            data, self._now = self._now.unused_data, None

    def end(self) -> None:
        """Nothing more comes: the last piece must be whole."""
        if self._now is not None:
            raise BlobDamaged("a packed object ends in the middle")


def _packer(how: Packing) -> Callable[[bytes], bytes]:
    if how == "zstd":
        import zstandard  # noqa: PLC0415 - most values are not packed

        return zstandard.ZstdCompressor().compress
    if how == "gzip":
        return lambda data: zlib.compress(data, wbits=_GZIP)
    return lambda data: data


def _unpacker(how: Packing) -> Callable[[], Any]:
    if how == "zstd":
        import zstandard  # noqa: PLC0415 - as above

        return zstandard.ZstdDecompressor(max_window_size=8 << 20).decompressobj
    if how == "gzip":
        return lambda: zlib.decompressobj(wbits=_GZIP)
    return _Plain


class _Plain:
    """What is not packed."""

    eof, unused_data = True, b""

    @staticmethod
    def decompress(data: bytes) -> bytes:
        """The same."""
        return data


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except Exception as fault:  # both libraries have errors of their own, and one is not loaded
        if isinstance(fault, zlib.error) or type(fault).__name__ == "ZstdError":
            raise BlobDamaged("a packed object cannot be unpacked") from None
        raise
