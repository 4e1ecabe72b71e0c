"""Compressed bodies: unpacked in small pieces, and never taken for whole when they are not."""

from __future__ import annotations

import gzip
import zlib

import pytest
import zstandard

from noetl.tools.base import ToolError
from noetl.tools.http.encodings import decoded

TEXT = b"hello, world. " * 500


def bare(data):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def zstd(data):
    return zstandard.ZstdCompressor().compress(data)


PACKED = {
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "deflate ": bare(TEXT),
    "zstd": zstd(TEXT),
    "gzip, zstd": zstd(gzip.compress(TEXT)),
    "deflate,gzip": gzip.compress(zlib.compress(TEXT)),
    "identity": TEXT,
    "": TEXT,
}


async def unpacked(encoding, *chunks):
    async def coming():
        for chunk in chunks:
            yield chunk

    return [piece async for piece in decoded(coming(), encoding)]


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
async def test_a_body_comes_out_as_it_went_in(encoding, size):
    packed = PACKED[encoding]
    chunks = [packed[at : at + size] for at in range(0, len(packed), size)]
    assert b"".join(await unpacked(encoding, *chunks)) == TEXT


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_members_follow_each_other(encoding):
    pack = gzip.compress if encoding == "gzip" else zstd
    packed = pack(b"one ") + pack(b"") + pack(b"two")
    for size in (1, 5, 1000):
        chunks = [packed[at : at + size] for at in range(0, len(packed), size)]
        assert b"".join(await unpacked(encoding, *chunks)) == b"one two"


async def test_what_fills_up_a_block_is_no_member():
    assert b"".join(await unpacked("gzip", gzip.compress(b"one"), b"\0" * 512)) == b"one"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "deflate ", "zstd", "gzip, zstd"])
async def test_a_body_that_ends_too_early_is_not_taken_for_whole(encoding):
    with pytest.raises(ToolError) as caught:
        await unpacked(encoding, PACKED[encoding][:-3])
    assert (caught.value.kind, caught.value.code) == ("parse", "invalid_encoding")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
async def test_an_empty_body_is_whole(encoding):
    assert await unpacked(encoding) == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
async def test_what_is_not_packed_is_an_error(encoding):
    with pytest.raises(ToolError) as caught:
        await unpacked(encoding, b"this is plain text, whatever the header says")
    assert (caught.value.kind, caught.value.code) == ("parse", "invalid_encoding")


@pytest.mark.parametrize("encoding", ["br", "gzip, br", "compress", "gzip, gzip, gzip, gzip"])
async def test_codings_that_we_do_not_know_are_named(encoding):
    with pytest.raises(ToolError, match=encoding.split(",", maxsplit=1)[0]) as caught:
        await unpacked(encoding, b"x")
    assert caught.value.code == "unsupported_encoding"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "gzip, gzip", "gzip, zstd"])
async def test_a_bomb_unfolds_in_small_pieces(encoding):
    packed = b"\0" * (16 << 20)
    for word in encoding.split(", "):
        packed = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd}[word](packed)
    largest = total = 0

    async def coming():
        yield packed

    async for piece in decoded(coming(), encoding):
        largest, total = max(largest, len(piece)), total + len(piece)
    assert total == 16 << 20
    assert largest <= 8 << 20
